/*
 * te bench target: offers one region of memory until it is stopped. With --control it prints JSON lines only and takes
 * commands, one a line, from the standard input, whose end stops it:
 *
 *   usage                        {"cpu_seconds", "resident_bytes"} of this process so far
 *   fill SEED OFFSET LENGTH      fills that part of the region; {"sha256"} of it
 *   checksum OFFSET LENGTH       {"sha256"} of that part
 *   notifications                {"notifications": [{"name", "message"}]} that came since it was last asked
 */
#include "bench.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "te.h"

static void print_line(struct json_object *line)
{
    puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    fflush(stdout);
    json_object_put(line);
}

static struct json_object *refuse(const char *reason)
{
    struct json_object *answer = json_object_new_object();
    json_object_object_add(answer, "error", json_object_new_string(reason));
    return answer;
}

static struct json_object *report_usage(void)
{
    unsigned long pages = 0;
    g_autofree char *text = NULL;
    if (g_file_get_contents("/proc/self/statm", &text, NULL, NULL))
        sscanf(text, "%*u %lu", &pages);
    struct json_object *answer = json_object_new_object();
    json_object_object_add(answer, "cpu_seconds", json_object_new_double(te_own_cpu_seconds()));
    json_object_object_add(answer, "resident_bytes", json_object_new_uint64(pages * (uint64_t)sysconf(_SC_PAGESIZE)));
    return answer;
}

static struct json_object *report_checksum(const struct te_node *node, uint64_t offset, uint64_t length)
{
    if (offset > node->size || length > node->size - offset)
        return refuse("that is outside the region");
    g_autofree char *checksum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, node->memory + offset, length);
    struct json_object *answer = json_object_new_object();
    json_object_object_add(answer, "sha256", json_object_new_string(checksum));
    return answer;
}

static struct json_object *report_notifications(const struct te_node *node)
{
    struct json_object *answer = json_object_new_object(), *list = json_object_new_array();
    int count = 0;
    notify_msg_t *messages = getNotifsFromEngine(node->engine, &count);
    for (int i = 0; messages && i < count; i++) {
        struct json_object *one = json_object_new_object();
        json_object_object_add(one, "name", json_object_new_string(messages[i].name));
        json_object_object_add(one, "message", json_object_new_string(messages[i].msg));
        json_object_array_add(list, one);
    }
    freeNotifsMsgBuf(messages, messages ? count : 0);
    json_object_object_add(answer, "notifications", list);
    return answer;
}

static struct json_object *obey(const struct te_node *node, const char *command)
{
    uint64_t seed, offset, length;
    if (!strcmp(command, "usage"))
        return report_usage();
    if (!strcmp(command, "notifications"))
        return report_notifications(node);
    if (sscanf(command, "checksum %" SCNu64 " %" SCNu64, &offset, &length) == 2)
        return report_checksum(node, offset, length);
    if (sscanf(command, "fill %" SCNu64 " %" SCNu64 " %" SCNu64, &seed, &offset, &length) == 3) {
        if (offset > node->size || length > node->size - offset)
            return refuse("that is outside the region");
        te_pattern_fill(node->memory + offset, length, seed);
        return report_checksum(node, offset, length);
    }
    return refuse("unknown command");
}

static void obey_until_end(const struct te_node *node, int signals)
{
    char *line = NULL;
    size_t capacity = 0;
    struct pollfd sources[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    setvbuf(stdin, NULL, _IONBF, 0); /* so that poll() sees every line that is left */
    while (poll(sources, 2, -1) >= 0 && !(sources[1].revents & POLLIN)) {
        if (getline(&line, &capacity, stdin) <= 0)
            break;
        line[strcspn(line, "\r\n")] = '\0';
        print_line(obey(node, line));
    }
    free(line);
}

static void wait_for_signal(int signals)
{
    struct pollfd source = {.fd = signals, .events = POLLIN};
    while (poll(&source, 1, -1) < 0)
        continue;
}

static void serve(const struct te_node *node, bool control, int signals)
{
    char words[TE_SIZE_TEXT_MAX];
    if (control) {
        struct json_object *greeting = json_object_new_object();
        json_object_object_add(greeting, "ready", json_object_new_string(node->name));
        json_object_object_add(greeting, "pid", json_object_new_int(getpid()));
        json_object_object_add(greeting, "address", json_object_new_uint64((uintptr_t)node->memory));
        json_object_object_add(greeting, "size", json_object_new_uint64(node->size));
        print_line(greeting);
        obey_until_end(node, signals);
        return;
    }
    printf("%s of memory are offered as %s; on the other side run\n    te bench initiator %s\nCtrl-C stops it.\n",
           te_size_text(node->size, words), node->name, node->name);
    fflush(stdout);
    double before = te_own_cpu_seconds();
    int64_t start_ns = te_now_ns();
    wait_for_signal(signals);
    printf("\nstopped after %.1f s; %.2f s of CPU used\n", (double)(te_now_ns() - start_ns) / 1e9,
           te_own_cpu_seconds() - before);
}

int te_bench_target_main(int argc, char **argv)
{
    struct te_node_options options = {0};
    struct te_node node;
    g_autofree char *region_text = NULL;
    size_t region = (size_t)64 << 20;
    gboolean control = FALSE;
    const GOptionEntry entries[] = {
        {"region", 0, 0, G_OPTION_ARG_STRING, &region_text, "Memory to offer (64M)", "SIZE"},
        {"name", 0, 0, G_OPTION_ARG_STRING, &options.host, "Address of this host for peers (127.0.0.1)", "HOST"},
        {"metadata", 0, 0, G_OPTION_ARG_STRING, &options.metadata, "Metadata service (P2PHANDSHAKE)", "CONNECTION"},
        {"protocol", 0, 0, G_OPTION_ARG_STRING, &options.protocol, "Transport (tcp)", "NAME"},
        {"control", 0, 0, G_OPTION_ARG_NONE, &control, "Take commands from the standard input, print JSON", NULL},
        {0},
    };
    int result = TE_EXIT_USAGE;
    if (te_options_parse(&argc, &argv, entries, "bench target", NULL,
                         "Offers memory to initiators until it is stopped.") &&
        (!region_text || te_size_parse(region_text, "region", &region))) {
        sigset_t stop;
        sigemptyset(&stop);
        sigaddset(&stop, SIGINT);
        sigaddset(&stop, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &stop, NULL); /* before the engine has threads, which inherit it */
        int signals = signalfd(-1, &stop, SFD_CLOEXEC);
        result = TE_EXIT_FAILED;
        if (te_node_open(&node, &options, region)) {
            serve(&node, control, signals);
            te_node_close(&node);
            result = TE_EXIT_DONE;
        }
        close(signals);
    }
    te_node_options_clear(&options);
    return result;
}
