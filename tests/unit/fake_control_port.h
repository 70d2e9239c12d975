/* A handshake port under a test's control: answers metadata requests with a descriptor that may change, counts them,
 * and can be told to hold back its answers. */
#ifndef TE_TESTS_UNIT_FAKE_CONTROL_PORT_H
#define TE_TESTS_UNIT_FAKE_CONTROL_PORT_H

#include <pthread.h>

#include "classic/runtime.h"
#include "core/segment_descriptor.h"
#include "tests/unit/socket_helpers.h"
#include "wire/classic/descriptor.h"
#include "wire/classic/frame.h"
#include "wire/classic/json_text.h"
#include "wire/classic/notification.h"

struct fake_control_port {
    int listener;
    uint16_t port;
    char name[32]; /* to open it by */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    struct te_segment_descriptor *descriptor; /* NULL: connections are closed without an answer */
    bool hold;
    unsigned fetches;
    GPtrArray *notifications; /* their texts */
};

static inline struct te_frame fake_receive(int descriptor, GString *bytes)
{
    struct te_frame frame = {0};
    uint64_t length;

    if (!test_receive(descriptor, &length, sizeof(length)) || length == 0 || length > 64 * 1024 * 1024)
        return frame;
    g_string_set_size(bytes, length);
    if (!test_receive(descriptor, bytes->str, length))
        return frame;
    frame.has_type = true;
    frame.type = (uint8_t)bytes->str[0];
    frame.text = bytes->str + 1;
    frame.length = length - 1;
    return frame;
}

static inline void fake_answer(int descriptor, uint8_t type, const GString *text)
{
    struct te_frame frame = {.has_type = true, .type = type, .text = text->str, .length = text->len};
    GString *bytes = g_string_new(NULL);

    te_frame_encode(bytes, &frame);
    test_send(descriptor, bytes->str, bytes->len);
    g_string_free(bytes, TRUE);
}

/* Under the lock, which is released while the answer is held back. */
static inline void fake_answer_metadata(struct fake_control_port *fake, int descriptor)
{
    GString *text = g_string_new(NULL);

    fake->fetches++;
    pthread_cond_broadcast(&fake->changed);
    while (fake->hold)
        pthread_cond_wait(&fake->changed, &fake->lock);
    if (fake->descriptor != NULL) {
        te_descriptor_write(text, fake->descriptor, "2026-01-01 00:00:00.000000");
        te_json_end_line(text);
        fake_answer(descriptor, TE_FRAME_METADATA, text);
    }
    g_string_free(text, TRUE);
}

static inline void fake_serve_one(struct fake_control_port *fake, int descriptor)
{
    GString *bytes = g_string_new(NULL);
    struct te_frame request = fake_receive(descriptor, bytes);

    pthread_mutex_lock(&fake->lock);
    if (request.has_type && request.type == TE_FRAME_METADATA)
        fake_answer_metadata(fake, descriptor);
    if (request.has_type && request.type == TE_FRAME_NOTIFY && fake->descriptor != NULL) {
        GString *text = g_string_new(NULL);
        struct te_notify_message message;

        if (te_notify_request_read(request.text, request.length, &message) == TE_OK) {
            g_ptr_array_add(fake->notifications, g_strdup(message.text));
            te_notify_message_clear(&message);
        }
        pthread_cond_broadcast(&fake->changed);
        te_notify_reply_write(text, true);
        fake_answer(descriptor, TE_FRAME_NOTIFY, text);
        g_string_free(text, TRUE);
    }
    pthread_mutex_unlock(&fake->lock);
    g_string_free(bytes, TRUE);
}

static inline void *fake_serve(void *data)
{
    struct fake_control_port *fake = data;
    int descriptor;

    while ((descriptor = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        test_socket_patience(descriptor);
        fake_serve_one(fake, descriptor);
        close(descriptor);
    }
    return NULL;
}

static inline void fake_start(struct fake_control_port *fake)
{
    memset(fake, 0, sizeof(*fake));
    fake->listener = test_listen(&fake->port);
    assert_true(fake->listener >= 0);
    g_snprintf(fake->name, sizeof(fake->name), "127.0.0.1:%u", fake->port);
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    fake->notifications = g_ptr_array_new_with_free_func(g_free);
    assert_int_equal(pthread_create(&fake->thread, NULL, fake_serve, fake), 0);
}

static inline void fake_stop(struct fake_control_port *fake)
{
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    te_segment_descriptor_unref(fake->descriptor);
    g_ptr_array_unref(fake->notifications);
    pthread_mutex_destroy(&fake->lock);
    pthread_cond_destroy(&fake->changed);
}

/* From now on it says that its data port is the one of target (NULL: answers no more), with the same buffers. */
static inline void fake_lead_to(struct fake_control_port *fake, struct te_classic *target)
{
    struct te_segment_descriptor *descriptor = NULL, *own;

    if (target != NULL) {
        own = te_local_segment_describe(target->engine);
        descriptor = te_segment_descriptor_new();
        g_free(descriptor->name);
        descriptor->name = g_strdup(fake->name);
        g_free(descriptor->protocol);
        descriptor->protocol = g_strdup("tcp");
        descriptor->tcp_data_port = own->tcp_data_port;
        descriptor->tcp_protocol_version = 2;
        descriptor->buffers = g_new0(struct te_segment_buffer, own->buffer_count);
        descriptor->buffer_count = own->buffer_count;
        for (size_t i = 0; i < own->buffer_count; i++) {
            descriptor->buffers[i].address = own->buffers[i].address;
            descriptor->buffers[i].length = own->buffers[i].length;
            descriptor->buffers[i].name = g_strdup(fake->name);
        }
        te_segment_descriptor_unref(own);
    }
    pthread_mutex_lock(&fake->lock);
    te_segment_descriptor_unref(fake->descriptor);
    fake->descriptor = descriptor;
    pthread_mutex_unlock(&fake->lock);
}

static inline void fake_hold(struct fake_control_port *fake, bool hold)
{
    pthread_mutex_lock(&fake->lock);
    fake->hold = hold;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}

/* Waits until so many metadata requests have come. */
static inline void fake_await_fetches(struct fake_control_port *fake, unsigned count)
{
    pthread_mutex_lock(&fake->lock);
    while (fake->fetches < count)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

static inline unsigned fake_fetches(struct fake_control_port *fake)
{
    unsigned fetches;

    pthread_mutex_lock(&fake->lock);
    fetches = fake->fetches;
    pthread_mutex_unlock(&fake->lock);
    return fetches;
}

static inline void fake_await_notifications(struct fake_control_port *fake, unsigned count)
{
    pthread_mutex_lock(&fake->lock);
    while (fake->notifications->len < count)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

#endif
