#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "core/segment_descriptor.h"
#include "transports/tcp/tcp_private.h"

/* Within a host no congestion control is needed; the default of many systems (bbr) paces such connections to half their
 * speed. */
bool socket_prepare(const struct tcp_options *options, int descriptor)
{
    bool local = te_address_is_local(descriptor);

    if (local && options->congestion_control[0] != '\0')
        setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, options->congestion_control,
                   (socklen_t)strlen(options->congestion_control));
    return local;
}

static void read_options(struct tcp_options *options, const struct te_settings *settings)
{
    options->pool = settings->tcp_connection_pool;
    options->lanes_per_peer = options->pool ? (unsigned)CLAMP(settings->tcp_lanes_per_peer, 1, LANES_MAX) : LANES_MAX;
    options->version_limit = settings->tcp_force_version_1 ? 1 : 2;
    options->silence_ns = (int64_t)settings->tcp_silence_timeout_ms * TE_NS_PER_MS;
    options->connect_ns = (int64_t)settings->handshake_connect_timeout_seconds * TE_NS_PER_SECOND;
    options->fence_ns = (int64_t)settings->tcp_fence_timeout_ms * TE_NS_PER_MS;
    options->idle_ns = (int64_t)settings->tcp_idle_timeout_seconds * TE_NS_PER_SECOND;
    options->piece_bytes = settings->tcp_slice_size_bytes;
    options->congestion_control =
        settings->tcp_local_congestion_control != NULL ? settings->tcp_local_congestion_control : "";
}

static te_status create(struct te_engine *engine, te_slice_finished_function finished,
                        struct te_transport **transport_p)
{
    struct te_transport *transport = g_new0(struct te_transport, 1);
    te_status status;

    transport->engine = engine;
    transport->finished = finished;
    read_options(&transport->options, &engine->settings);
    status = tcp_target_new(transport, &transport->target);
    if (status != TE_OK) {
        g_free(transport);
        return status;
    }
    pthread_mutex_init(&transport->endpoints_lock, NULL);
    transport->endpoints = g_hash_table_new(g_str_hash, g_str_equal);
    transport->all_endpoints = g_ptr_array_new();
    g_queue_init(&transport->retired_endpoints);
    g_queue_init(&transport->free_endpoints);
    patrols_new(transport);
    *transport_p = transport;
    return TE_OK;
}

/* Gives everything up; peers have the fence time-out to let go of what they were being sent. */
static void abandon_all(struct te_transport *transport)
{
    int64_t end_ns = te_now_ns() + transport->options.fence_ns;

    atomic_store(&transport->closing, true);
    for (;;) {
        transport_attend(transport, ATTENTION_ABANDON, true);
        if (transport_outstanding(transport) == 0 || te_now_ns() >= end_ns)
            break;
        poll(NULL, 0, 1);
    }
    transport_attend(transport, ATTENTION_RESET, true);
    while (transport_outstanding(transport) > 0) {
        poll(NULL, 0, 1);
        transport_attend(transport, ATTENTION_RESET, true);
    }
}

/* In each reactor's thread: it may still be in a lane's handler for an event it had been told of, or poll the lane. */
static void forget_lanes(void *data)
{
    const struct te_transport *transport = data;

    for (guint i = 0; i < transport->all_endpoints->len; i++) {
        struct te_endpoint *endpoint = g_ptr_array_index(transport->all_endpoints, i);
        unsigned count = atomic_load(&endpoint->lane_count);

        for (unsigned j = 0; j < count; j++) {
            struct te_reactor *reactor = patrol_reactor(endpoint->lanes[j]->patrol);

            if (te_reactor_is_current(reactor))
                te_reactor_remove(reactor, &endpoint->lanes[j]->watch);
        }
    }
}

static void destroy(struct te_transport *transport)
{
    abandon_all(transport);
    patrols_stop(transport);
    for (size_t i = 0; i < transport->engine->reactor_count; i++)
        te_reactor_run_wait(transport->engine->reactors[i], forget_lanes, transport);
    tcp_target_free(transport->target);
    for (guint i = 0; i < transport->all_endpoints->len; i++)
        endpoint_free(g_ptr_array_index(transport->all_endpoints, i));
    g_ptr_array_free(transport->all_endpoints, TRUE);
    g_free(transport->patrols);
    g_hash_table_destroy(transport->endpoints);
    g_queue_clear(&transport->retired_endpoints);
    g_queue_clear(&transport->free_endpoints);
    pthread_mutex_destroy(&transport->endpoints_lock);
    g_free(transport);
}

static void describe(struct te_transport *transport, struct te_segment_descriptor *descriptor)
{
    descriptor->tcp_data_port = tcp_target_port(transport->target);
    descriptor->tcp_protocol_version = 2;
}

static void cancel(struct te_transport *transport)
{
    transport_attend(transport, ATTENTION_CANCEL, false);
}

const struct te_transport_ops te_tcp_transport_ops = {
    .name = "tcp",
    .capabilities = TE_TRANSPORT_READ | TE_TRANSPORT_WRITE | TE_TRANSPORT_FENCES_WRITES,
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .endpoint_open = endpoint_open,
    .endpoint_close = endpoint_close,
    .endpoint_matches = endpoint_matches,
    .submit = endpoint_submit,
    .cancel = cancel,
    .drive = {.drive = lane_poll, .claim = lane_claim, .unclaim = lane_unclaim},
};
