#include "companion.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "te.h"

static struct json_object *read_answer(struct te_companion *companion)
{
    g_autofree char *line = NULL;
    size_t capacity = 0;
    char *buffer = NULL;
    ssize_t length = getline(&buffer, &capacity, companion->answers);
    line = g_strdup(length > 0 ? buffer : "");
    free(buffer);
    struct json_object *answer = length > 0 ? json_tokener_parse(line) : NULL;
    if (!answer)
        te_complain("the target process has ended; what it printed above says why");
    return answer;
}

bool te_companion_start(struct te_companion *companion, const struct te_node_options *options, size_t region)
{
    g_autoptr(GPtrArray) words = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GError) error = NULL;
    g_autofree char *program = g_file_read_link("/proc/self/exe", &error);
    int input, output;
    if (!program) {
        te_complain("the path of this program is not known: %s", error->message);
        return false;
    }
    g_ptr_array_add(words, g_strdup(program));
    g_ptr_array_add(words, g_strdup("bench"));
    g_ptr_array_add(words, g_strdup("target"));
    g_ptr_array_add(words, g_strdup("--control"));
    g_ptr_array_add(words, g_strdup_printf("--region=%zu", region));
    if (options->host)
        g_ptr_array_add(words, g_strdup_printf("--name=%s", options->host));
    if (options->metadata)
        g_ptr_array_add(words, g_strdup_printf("--metadata=%s", options->metadata));
    if (options->protocol)
        g_ptr_array_add(words, g_strdup_printf("--protocol=%s", options->protocol));
    g_ptr_array_add(words, NULL);
    if (!g_spawn_async_with_pipes(NULL, (char **)words->pdata, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL,
                                  &companion->process, &input, &output, NULL, &error)) {
        te_complain("the target process could not be started: %s", error->message);
        return false;
    }
    companion->commands = fdopen(input, "w");
    companion->answers = fdopen(output, "r");
    struct json_object *greeting = read_answer(companion);
    if (!greeting) {
        te_companion_stop(companion);
        return false;
    }
    g_strlcpy(companion->name, json_object_get_string(json_object_object_get(greeting, "ready")),
              sizeof(companion->name));
    json_object_put(greeting);
    return true;
}

struct json_object *te_companion_ask(struct te_companion *companion, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *command = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    fprintf(companion->commands, "%s\n", command);
    fflush(companion->commands);
    struct json_object *answer = read_answer(companion), *refusal;
    if (answer && json_object_object_get_ex(answer, "error", &refusal)) {
        te_complain("the target process refused `%s`: %s", command, json_object_get_string(refusal));
        json_object_put(answer);
        return NULL;
    }
    return answer;
}

double te_companion_cpu_seconds(void *companion)
{
    struct json_object *answer = te_companion_ask(companion, "usage");
    double seconds = answer ? json_object_get_double(json_object_object_get(answer, "cpu_seconds")) : NAN;
    json_object_put(answer);
    return seconds;
}

bool te_companion_stop(struct te_companion *companion)
{
    int status = -1;
    fclose(companion->commands);
    waitpid(companion->process, &status, 0);
    fclose(companion->answers);
    g_spawn_close_pid(companion->process);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
