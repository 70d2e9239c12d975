/* The life of the classic runtime: creation, transports, what it says of itself, destruction. */
#include "classic/internal.h"

#include <stdio.h>
#include <string.h>

#include "classic/dialect.h"
#include "core/clock.h"
#include "core/local_segment.h"
#include "core/log.h"
#include "core/stores/store.h"
#include "core/worker.h"
#include "transports/tcp/tcp.h"

#define FLUSH_NS (2 * TE_NS_PER_SECOND) /* for notifications, when the engine is destroyed */

static const struct te_transport_ops *const transports[] = {&te_tcp_transport_ops};

/* Names of the classic engine's other transports, so that a refusal can tell "not here" from "no such thing". */
static const char *const absent_transports[] = {
    "rdma", "efa",  "cxi",  "ub",     "barex", "nvmeof", "nvlink",  "nvlink_intra", "nccl",
    "hip",  "maca", "musa", "ascend", "cxl",   "shm",    "ubshmem", "sunrise_link",
};

/* Background refreshing of descriptors */

static void start_refresh(struct te_timer *timer);

static void schedule_refresh(void *data)
{
    struct te_classic *classic = data;
    int64_t interval_ns = (int64_t)classic->engine->settings.metadata_refresh_interval_seconds * TE_NS_PER_SECOND;

    if (!atomic_load(&classic->closing))
        te_reactor_timer_set(classic->engine->reactors[0], &classic->refresh_timer, te_now_ns() + interval_ns);
}

static void refresh(void *data)
{
    struct te_classic *classic = data;

    te_classic_sync_segment_cache(classic);
    te_reactor_run(classic->engine->reactors[0], schedule_refresh, classic);
}

static void start_refresh(struct te_timer *timer)
{
    struct te_classic *classic = (void *)((char *)timer - offsetof(struct te_classic, refresh_timer));

    te_worker_run(classic->engine->workers, TE_WORK_PROMPT, refresh, classic);
}

/* Transports */

static const struct te_transport_ops *find_transport(const char *protocol)
{
    for (size_t i = 0; i < G_N_ELEMENTS(transports); i++)
        if (strcmp(transports[i]->name, protocol) == 0)
            return transports[i];
    for (size_t i = 0; i < G_N_ELEMENTS(absent_transports); i++)
        if (strcmp(absent_transports[i], protocol) == 0) {
            te_fail(TE_NOT_SUPPORTED_TRANSPORT, "transport %s is not part of this build; there is tcp", protocol);
            return NULL;
        }
    te_fail(TE_NOT_SUPPORTED_TRANSPORT, "there is no transport %s", protocol);
    return NULL;
}

/* Under install_lock. Everything that can fail comes before other threads may use the transport: from then on it cannot
 * be taken away from them. */
static te_status install(struct te_classic *classic, const struct te_transport_ops *ops, struct installed **handle)
{
    size_t count = atomic_load_explicit(&classic->installed_count, memory_order_relaxed);
    struct installed *installed = &classic->installed[count];
    struct te_engine *engine = classic->engine;
    struct te_segment_descriptor *descriptor;
    te_status status;

    if (count == TRANSPORTS_MAX)
        return te_fail(TE_TOO_MANY_REQUESTS, "no room for another transport");
    status = ops->create(engine, classic_slice_finished, &installed->transport);
    if (status != TE_OK)
        return status;
    installed->ops = ops;
    status = te_local_segment_add(engine, ops->name, installed->transport, ops->describe);
    if (status != TE_OK)
        goto destroy_transport;
    descriptor = te_local_segment_describe(engine);
    if (descriptor == NULL) {
        status = te_fail(TE_MEMORY, "no memory to describe the own segment");
        goto remove_part;
    }
    status = engine->store->ops->publish(engine->store);
    if (status != TE_OK)
        goto unref_descriptor;
    atomic_store_explicit(&classic->installed_count, count + 1, memory_order_release);
    classic_open_local(classic, descriptor);
    te_segment_descriptor_unref(descriptor);
    te_log(TE_LOG_INFO, "engine %s: transport %s is installed", engine->name, ops->name);
    *handle = installed;
    return TE_OK;

unref_descriptor:
    te_segment_descriptor_unref(descriptor);
remove_part:
    te_local_segment_remove(engine, installed->transport);
destroy_transport:
    ops->destroy(installed->transport);
    return status;
}

/* Under install_lock. */
static te_status find_or_install(struct te_classic *classic, const char *protocol, const char *matrix,
                                 struct installed **handle)
{
    size_t count = atomic_load_explicit(&classic->installed_count, memory_order_relaxed);
    const struct te_transport_ops *ops;
    struct te_topology *topology = NULL;
    te_status status;

    for (size_t i = 0; i < count; i++)
        if (strcmp(classic->installed[i].ops->name, protocol) == 0) {
            *handle = &classic->installed[i];
            return TE_OK;
        }
    ops = find_transport(protocol);
    if (ops == NULL)
        return TE_NOT_SUPPORTED_TRANSPORT;
    if (matrix != NULL) {
        status = te_topology_parse(matrix, strlen(matrix), &topology);
        if (status != TE_OK)
            return status;
    }
    status = install(classic, ops, handle);
    if (status != TE_OK) {
        te_topology_free(topology);
    } else if (topology != NULL) {
        te_topology_free(classic->topology);
        classic->topology = topology;
    }
    return status;
}

transport_t te_classic_install_transport(struct te_classic *classic, const char *protocol, void **arguments)
{
    struct installed *handle = NULL;
    te_status status;

    if (protocol == NULL) {
        te_fail(TE_INVALID_ARGUMENT, "the name of the transport is a null pointer");
        return NULL;
    }
    pthread_mutex_lock(&classic->install_lock);
    status = find_or_install(classic, protocol, arguments != NULL ? arguments[0] : NULL, &handle);
    pthread_mutex_unlock(&classic->install_lock);
    if (status == TE_OK)
        return handle;
    te_log(TE_LOG_ERROR, "engine %s: transport %s cannot be installed: %s", classic->engine->name, protocol,
           te_status_message());
    return NULL;
}

int te_classic_uninstall_transport(struct te_classic *classic, const char *protocol)
{
    (void)classic;
    if (protocol == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "the name of the transport is a null pointer");
    return TE_OK;
}

/* Creation */

/* A file that cannot be used is no reason to fail: TCP needs no topology. */
static void read_topology_file(struct te_classic *classic)
{
    const char *path = classic->engine->settings.custom_topology_file;
    struct te_topology *topology;

    if (path == NULL || path[0] == '\0')
        return;
    if (te_topology_read(path, &topology) != TE_OK) {
        te_log(TE_LOG_WARNING, "MC_CUSTOM_TOPO_JSON is ignored: %s", te_status_message());
        return;
    }
    te_topology_free(classic->topology);
    classic->topology = topology;
}

static te_status create_engine(struct te_classic *classic, const char *connection, const char *local_name)
{
    static const struct te_dialect_ops *const dialects[] = {&te_classic_dialect};
    struct te_engine_options options = {
        .connection = connection,
        .local_name = local_name,
        .drive_ops = &te_tcp_transport_ops.drive,
        .dialects = dialects,
        .dialect_count = G_N_ELEMENTS(dialects),
        .segment_hooks =
            {
                .data = classic,
                .attach = classic_attach,
                .detach = classic_detach,
                .resume = classic_resume,
            },
    };

    return te_engine_new(&options, &classic->engine);
}

struct te_classic *te_classic_create(const char *connection, const char *local_name, const char *host,
                                     uint64_t rpc_port, int auto_discover)
{
    struct te_classic *classic = g_new0(struct te_classic, 1);
    const struct te_settings *settings;

    (void)host;
    (void)rpc_port;
    pthread_mutex_init(&classic->install_lock, NULL);
    classic->topology = te_topology_new();
    classic->expiry_timer.fire = classic_expire;
    classic->refresh_timer.fire = start_refresh;
    if (create_engine(classic, connection, local_name) != TE_OK) {
        te_log(TE_LOG_ERROR, "no engine: %s", te_status_message());
        goto free_classic;
    }
    settings = &classic->engine->settings;
    if (auto_discover && !settings->force_tcp)
        read_topology_file(classic);
    if ((auto_discover || settings->force_tcp) && te_classic_install_transport(classic, "tcp", NULL) == NULL) {
        te_classic_destroy(classic);
        return NULL;
    }
    if (settings->metadata_refresh_interval_seconds > 0 && !settings->disable_metadata_cache)
        te_reactor_run(classic->engine->reactors[0], schedule_refresh, classic);
    return classic;

free_classic:
    te_topology_free(classic->topology);
    pthread_mutex_destroy(&classic->install_lock);
    g_free(classic);
    return NULL;
}

/* Destruction */

static void clear_timers(void *data)
{
    struct te_classic *classic = data;
    struct te_reactor *reactor = classic->engine->reactors[0];

    te_reactor_timer_clear(reactor, &classic->expiry_timer);
    te_reactor_timer_clear(reactor, &classic->refresh_timer);
}

void te_classic_destroy(struct te_classic *classic)
{
    struct te_engine *engine = classic->engine;
    size_t count = atomic_load(&classic->installed_count);

    engine->store->ops->withdraw(engine->store);
    atomic_store(&classic->closing, true);
    te_reactor_run_wait(engine->reactors[0], clear_timers, classic);
    classic_end_waiting(classic, te_segment_table_stop(engine->segments), TE_RESULT_CANCELED);
    te_engine_stop(engine, FLUSH_NS);
    /* Endpoints are given back before their transports go; those in use stay until their slices have ended. */
    te_local_segment_withdraw(engine);
    te_segment_table_clear(engine->segments);
    while (count-- > 0)
        classic->installed[count].ops->destroy(classic->installed[count].transport);
    te_engine_free(engine);
    te_topology_free(classic->topology);
    pthread_mutex_destroy(&classic->install_lock);
    g_free(classic);
}

/* What it says of itself */

int te_classic_get_local_ip_and_port(struct te_classic *classic, char *buffer, size_t size)
{
    if (buffer == NULL || size == 0)
        return te_fail(TE_INVALID_ARGUMENT, "no room for the address");
    snprintf(buffer, size, "%s:%u", classic->engine->host, classic->engine->port);
    return TE_OK;
}

int te_classic_port(struct te_classic *classic)
{
    return classic->engine->port;
}

int te_classic_discover_topology(struct te_classic *classic)
{
    pthread_mutex_lock(&classic->install_lock);
    te_topology_free(classic->topology);
    classic->topology = te_topology_new();
    pthread_mutex_unlock(&classic->install_lock);
    return TE_OK;
}

int te_classic_get_nic_load_stats(struct te_classic *classic, nic_load_stat_t *stats, size_t *count)
{
    (void)classic;
    if (stats == NULL || count == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "no room for the statistics");
    *count = 0;
    return TE_OK;
}

int te_classic_show_links(struct te_classic *classic, char *buffer, size_t size, int json)
{
    GString *text;

    if (buffer == NULL || size == 0)
        return te_fail(TE_INVALID_ARGUMENT, "no room for the text");
    text = g_string_new(NULL);
    pthread_mutex_lock(&classic->install_lock);
    if (json)
        te_topology_show_json(classic->topology, text);
    else
        te_topology_show(classic->topology, text);
    pthread_mutex_unlock(&classic->install_lock);
    g_strlcpy(buffer, text->str, size);
    g_string_free(text, TRUE);
    return TE_OK;
}
