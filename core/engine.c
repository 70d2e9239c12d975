#include "core/engine.h"

#include <errno.h>
#include <glib.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/control.h"
#include "core/local_segment.h"
#include "core/log.h"
#include "core/metrics.h"
#include "core/notification.h"
#include "core/peer.h"
#include "core/stores/store.h"
#include "core/worker.h"

enum {
    WORKERS_MAX = 1024, /* calls that wait for peers, dead ones too, at a time */
    REACTORS_MAX = 64,
};

static void set_log_level(const char *name)
{
    static const struct {
        const char *name;
        enum te_log_level level;
    } levels[] = {{"TRACE", TE_LOG_TRACE}, {"INFO", TE_LOG_INFO}, {"WARNING", TE_LOG_WARNING}, {"ERROR", TE_LOG_ERROR}};

    for (size_t i = 0; name != NULL && i < G_N_ELEMENTS(levels); i++)
        if (strcmp(name, levels[i].name) == 0)
            te_log_set_level(levels[i].level);
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        te_log(TE_LOG_WARNING, "cannot raise the limit of open files: %s", strerror(errno));
}

static size_t reactors_wanted(const struct te_settings *settings)
{
    cpu_set_t cpus;
    size_t cores = 1;

    if (settings->io_threads > 0)
        return MIN(settings->io_threads, (uint64_t)REACTORS_MAX);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        cores = (size_t)CPU_COUNT(&cpus);
    return cores <= 4 ? 1 : MIN(cores / 4, (size_t)4);
}

static void free_reactors(struct te_engine *engine)
{
    for (size_t i = 0; i < engine->reactor_count; i++)
        te_reactor_free(engine->reactors[i]);
    g_free(engine->reactors);
    engine->reactors = NULL;
    engine->reactor_count = 0;
}

static te_status new_reactors(struct te_engine *engine)
{
    size_t count = reactors_wanted(&engine->settings);
    te_status status;

    engine->reactors = g_new0(struct te_reactor *, count);
    for (size_t i = 0; i < count; i++) {
        char name[16];

        g_snprintf(name, sizeof(name), "te-io-%zu", i);
        status = te_reactor_new(name, (int64_t)engine->settings.spin_us * 1000, &engine->reactors[i]);
        if (status != TE_OK) {
            free_reactors(engine);
            return status;
        }
        engine->reactor_count++;
    }
    return TE_OK;
}

/* Binds the control port and takes the engine's name from it. */
static te_status listen_for_peers(struct te_engine *engine, int *socket)
{
    const struct te_settings *settings = &engine->settings;
    te_status status =
        te_listen_any_port((uint16_t)settings->minimum_port, (uint16_t)settings->maximum_port,
                           (int)MIN(settings->handshake_listen_backlog, (uint64_t)G_MAXINT), socket, &engine->port);

    if (status == TE_OK)
        te_server_name_join(engine->host, engine->port, engine->name, sizeof(engine->name));
    return status;
}

te_status te_engine_new(const struct te_engine_options *options, struct te_engine **engine_p)
{
    struct te_engine *engine;
    uint16_t ignored_port;
    int socket;
    te_status status;

    if (options->connection == NULL || options->local_name == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "%s is a null pointer",
                       options->connection == NULL ? "the connection string" : "the local name");
    if (options->dialect_count > TE_ENGINE_DIALECTS)
        return te_fail(TE_INVALID_ARGUMENT, "an engine has room for %d dialects", TE_ENGINE_DIALECTS);
    engine = g_new0(struct te_engine, 1);
    status = te_settings_load(&engine->settings);
    if (status != TE_OK)
        goto free_engine;
    set_log_level(engine->settings.log_level);
    status = te_server_name_split(options->local_name, 0, engine->host, &ignored_port);
    if (status != TE_OK)
        goto clear_settings;
    status = te_store_open(engine, options->connection, &engine->store);
    if (status != TE_OK)
        goto clear_settings;
    raise_descriptor_limit();
    memcpy(engine->dialects, options->dialects, options->dialect_count * sizeof(options->dialects[0]));
    engine->dialect_count = options->dialect_count;
    engine->closing_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->closing_descriptor < 0) {
        status = te_fail(TE_SOCKET, "eventfd: %s", strerror(errno));
        goto close_store;
    }
    status = te_worker_pool_new(WORKERS_MAX, &engine->workers);
    if (status != TE_OK)
        goto close_event;
    status = new_reactors(engine);
    if (status != TE_OK)
        goto free_workers;
    status = listen_for_peers(engine, &socket);
    if (status != TE_OK)
        goto free_reactors;
    engine->registry = te_registry_new();
    engine->batches = te_batch_table_new(options->drive_ops);
    if (engine->registry == NULL || engine->batches == NULL) {
        close(socket);
        status = te_fail(TE_MEMORY, "no memory for an engine");
        goto free_tables;
    }
    if (engine->settings.metrics)
        engine->metrics = te_metrics_new(engine->name);
    te_batch_table_measure(engine->batches, engine->metrics);
    engine->peers = te_peer_memory_new();
    engine->local = te_local_segment_new();
    engine->segments = te_segment_table_new(engine, &options->segment_hooks);
    engine->inbox = te_inbox_new();
    engine->notifier = te_notifier_new(engine);
    status = te_control_open(engine, socket);
    if (status != TE_OK)
        goto free_parts;
    if (engine->metrics != NULL)
        te_metrics_start(engine->metrics, engine->reactors[0],
                         (int64_t)engine->settings.metrics_interval_seconds * TE_NS_PER_SECOND);
    te_log(TE_LOG_INFO, "engine %s: %zu I/O thread(s)", engine->name, engine->reactor_count);
    *engine_p = engine;
    return TE_OK;

free_parts:
    te_notifier_free(engine->notifier);
    te_inbox_free(engine->inbox);
    te_segment_table_free(engine->segments);
    te_local_segment_free(engine->local);
    te_peer_memory_free(engine->peers);
free_tables:
    te_batch_table_free(engine->batches);
    te_metrics_free(engine->metrics);
    te_registry_free(engine->registry);
free_reactors:
    free_reactors(engine);
free_workers:
    te_worker_pool_free(engine->workers);
close_event:
    close(engine->closing_descriptor);
close_store:
    te_store_close(engine->store);
clear_settings:
    te_settings_clear(&engine->settings);
free_engine:
    g_free(engine);
    return status;
}

void te_engine_stop(struct te_engine *engine, int64_t flush_ns)
{
    uint64_t one = 1;

    if (!te_notifier_stop(engine->notifier, flush_ns))
        te_log(TE_LOG_WARNING, "engine %s closes with notifications that could not be delivered in time", engine->name);
    te_control_close(engine);
    atomic_store_explicit(&engine->closing, true, memory_order_release);
    while (write(engine->closing_descriptor, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    te_worker_pool_free(engine->workers);
    engine->workers = NULL;
    if (engine->metrics != NULL)
        te_metrics_stop(engine->metrics);
}

void te_engine_free(struct te_engine *engine)
{
    te_notifier_free(engine->notifier);
    te_inbox_free(engine->inbox);
    te_segment_table_free(engine->segments);
    te_local_segment_free(engine->local);
    te_peer_memory_free(engine->peers);
    free_reactors(engine);
    te_batch_table_free(engine->batches);
    te_metrics_free(engine->metrics);
    te_registry_free(engine->registry);
    close(engine->closing_descriptor);
    te_store_close(engine->store);
    te_settings_clear(&engine->settings);
    g_free(engine);
}
