/* Notifications that peers sent and nobody has taken yet. */
#include <glib.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/notification.h"

struct received {
    struct received *next;
    char *name, *text;
    size_t bytes;
};

struct te_inbox {
    pthread_mutex_t lock;
    struct received *head, **tail;
    size_t count, bytes;
};

struct te_inbox *te_inbox_new(void)
{
    struct te_inbox *inbox = g_new0(struct te_inbox, 1);

    pthread_mutex_init(&inbox->lock, NULL);
    inbox->tail = &inbox->head;
    return inbox;
}

static void received_free(struct received *message)
{
    free(message->name);
    free(message->text);
    free(message);
}

void te_inbox_free(struct te_inbox *inbox)
{
    while (inbox->head != NULL) {
        struct received *message = inbox->head;

        inbox->head = message->next;
        received_free(message);
    }
    pthread_mutex_destroy(&inbox->lock);
    g_free(inbox);
}

/* A copy that the C API can hand to its caller. */
static char *copy_text(const char *text, size_t length)
{
    char *copy = malloc(length + 1);

    if (copy == NULL)
        return NULL;
    if (length > 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

bool te_inbox_put(struct te_inbox *inbox, const char *name, size_t name_length, const char *text, size_t text_length)
{
    struct received *message = calloc(1, sizeof(*message));
    bool taken = false;

    if (message == NULL)
        return false;
    message->name = copy_text(name, name_length);
    message->text = copy_text(text, text_length);
    message->bytes = name_length + text_length;
    if (message->name == NULL || message->text == NULL) {
        received_free(message);
        return false;
    }
    pthread_mutex_lock(&inbox->lock);
    if (inbox->count < TE_NOTIFICATIONS_MAX && message->bytes <= TE_NOTIFICATION_BYTES_MAX - inbox->bytes) {
        *inbox->tail = message;
        inbox->tail = &message->next;
        inbox->count++;
        inbox->bytes += message->bytes;
        taken = true;
    }
    pthread_mutex_unlock(&inbox->lock);
    if (!taken)
        received_free(message);
    return taken;
}

size_t te_inbox_count(struct te_inbox *inbox)
{
    size_t count;

    pthread_mutex_lock(&inbox->lock);
    count = inbox->count;
    pthread_mutex_unlock(&inbox->lock);
    return count;
}

bool te_inbox_take(struct te_inbox *inbox, char **name, char **text)
{
    struct received *message;

    pthread_mutex_lock(&inbox->lock);
    message = inbox->head;
    if (message != NULL) {
        inbox->head = message->next;
        if (inbox->head == NULL)
            inbox->tail = &inbox->head;
        inbox->count--;
        inbox->bytes -= message->bytes;
    }
    pthread_mutex_unlock(&inbox->lock);
    if (message == NULL)
        return false;
    *name = message->name;
    *text = message->text;
    free(message);
    return true;
}
