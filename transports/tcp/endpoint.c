#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/segment_descriptor.h"
#include "transports/tcp/tcp_private.h"

/* A lane is filled up to here before the next one is used: fewer sockets mean fewer system calls per byte. Within a
 * host, more connections only help when several threads drive them. */
#define LANE_FILL_BYTES       (UINT64_C(1) << 20)
#define LOCAL_LANE_FILL_BYTES (UINT64_C(16) << 20)

static int negotiated_version(const struct te_transport *transport, const struct te_segment_descriptor *descriptor)
{
    return descriptor->tcp_protocol_version >= 2 && transport->options.version_limit >= 2 ? 2 : 1;
}

static char *make_key(const struct te_transport *transport, const struct te_segment_descriptor *descriptor,
                      const char *resolved_host)
{
    return g_strdup_printf("%s/%u/%d", resolved_host, descriptor->tcp_data_port,
                           negotiated_version(transport, descriptor));
}

/* With endpoints_lock. */
static struct te_endpoint *endpoint_new(struct te_transport *transport)
{
    struct te_endpoint *endpoint = g_queue_pop_head(&transport->free_endpoints);

    if (endpoint == NULL) {
        endpoint = g_new0(struct te_endpoint, 1);
        endpoint->transport = transport;
        pthread_mutex_init(&endpoint->lanes_lock, NULL);
        g_ptr_array_add(transport->all_endpoints, endpoint);
    }
    return endpoint;
}

struct te_endpoint *endpoint_open(struct te_transport *transport, const struct te_segment_descriptor *descriptor,
                                  const char *resolved_host)
{
    struct te_endpoint *endpoint;
    struct te_address address;
    size_t count;
    char *key;

    if (descriptor->tcp_data_port == 0) {
        te_fail(TE_ENDPOINT, "\"%s\" publishes no TCP data port", descriptor->name);
        return NULL;
    }
    if (te_address_resolve(resolved_host, descriptor->tcp_data_port, false, &address, 1, &count) != TE_OK)
        return NULL;
    key = make_key(transport, descriptor, resolved_host);
    pthread_mutex_lock(&transport->endpoints_lock);
    endpoint = g_hash_table_lookup(transport->endpoints, key);
    if (endpoint == NULL) {
        endpoint = endpoint_new(transport);
        endpoint->key = key;
        endpoint->address = address;
        endpoint->protocol_version = negotiated_version(transport, descriptor);
        te_address_text(&address, endpoint->text, sizeof(endpoint->text));
        atomic_store(&endpoint->window, transport->options.pool ? WINDOW_REQUESTS : 1);
        g_hash_table_insert(transport->endpoints, endpoint->key, endpoint);
    } else {
        g_free(key);
    }
    endpoint->references++;
    pthread_mutex_unlock(&transport->endpoints_lock);
    return endpoint;
}

void endpoint_close(struct te_endpoint *endpoint)
{
    struct te_transport *transport = endpoint->transport;

    pthread_mutex_lock(&transport->endpoints_lock);
    endpoint->references--;
    pthread_mutex_unlock(&transport->endpoints_lock);
}

bool endpoint_matches(const struct te_endpoint *endpoint, const struct te_segment_descriptor *descriptor,
                      const char *resolved_host)
{
    char *key = make_key(endpoint->transport, descriptor, resolved_host);
    bool same = strcmp(key, endpoint->key) == 0;

    g_free(key);
    return same;
}

/* Lanes */

static struct lane *lane_at(const struct te_endpoint *endpoint, unsigned index)
{
    return endpoint->lanes[index];
}

static struct lane *add_lane(struct te_endpoint *endpoint, unsigned seen, unsigned limit)
{
    struct lane *lane = NULL;
    unsigned count;

    pthread_mutex_lock(&endpoint->lanes_lock);
    count = atomic_load_explicit(&endpoint->lane_count, memory_order_relaxed);
    if (count != seen) {
        lane = endpoint->lanes[count - 1]; /* somebody else was faster */
    } else if (count < limit) {
        lane = lane_new(endpoint, patrol_for_new_lane(endpoint->transport));
        endpoint->lanes[count] = lane;
        atomic_store_explicit(&endpoint->lane_count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&endpoint->lanes_lock);
    return lane;
}

static uint64_t lane_fill(struct te_endpoint *endpoint)
{
    if (!endpoint->transport->options.pool)
        return 1;
    return atomic_load_explicit(&endpoint->local, memory_order_relaxed) ? LOCAL_LANE_FILL_BYTES : LANE_FILL_BYTES;
}

/* The first lane that is not full yet; when all are, the one with the least to do, or a new one. NULL: all are being
 * fenced and there is no room for another. */
static struct lane *choose_lane(struct te_endpoint *endpoint)
{
    const struct tcp_options *options = &endpoint->transport->options;
    unsigned count = atomic_load_explicit(&endpoint->lane_count, memory_order_acquire);
    uint64_t fill = lane_fill(endpoint);
    unsigned usable = 0;
    struct lane *best = NULL, *last_resort = NULL;
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < count; i++) {
        struct lane *lane = lane_at(endpoint, i);
        uint64_t bytes = atomic_load_explicit(&lane->outstanding_bytes, memory_order_relaxed);

        if (atomic_load_explicit(&lane->refuses, memory_order_relaxed))
            continue;
        if (atomic_load_explicit(&lane->burdened, memory_order_relaxed)) {
            last_resort = lane;
            continue;
        }
        usable++;
        if (bytes < fill)
            return lane;
        if (bytes < least) {
            least = bytes;
            best = lane;
        }
    }
    if (usable < options->lanes_per_peer && count < LANES_MAX) {
        struct lane *added = add_lane(endpoint, count, LANES_MAX);

        if (added != NULL)
            return added;
    }
    return best != NULL ? best : last_resort;
}

void endpoint_submit(struct te_endpoint *endpoint, struct te_slice *slices)
{
    uint64_t fill = lane_fill(endpoint);

    while (slices != NULL) {
        struct lane *lane = choose_lane(endpoint);
        struct te_slice *last = slices;
        struct te_slice *rest;
        uint64_t bytes = slices->length;

        if (lane == NULL)
            lane = lane_at(endpoint, 0);
        /* As many as fill the lane, in one go. */
        while (last->next != NULL && bytes + last->next->length <= fill) {
            last = last->next;
            bytes += last->length;
        }
        rest = last->next;
        last->next = NULL;
        lane_submit(lane, slices);
        slices = rest;
    }
}

bool endpoint_replace(struct te_endpoint *endpoint, struct te_slice *slices)
{
    if (choose_lane(endpoint) == NULL)
        return false;
    endpoint_submit(endpoint, slices);
    return true;
}

bool endpoint_has_other_open_lane(const struct te_endpoint *endpoint, const struct lane *except)
{
    unsigned count = atomic_load_explicit(&((struct te_endpoint *)endpoint)->lane_count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        struct lane *lane = lane_at(endpoint, i);

        if (lane != except && atomic_load_explicit(&lane->open, memory_order_relaxed))
            return true;
    }
    return false;
}

void endpoint_narrow(struct te_endpoint *endpoint)
{
    atomic_store_explicit(&endpoint->window, 1, memory_order_relaxed);
}

void endpoint_widen(struct te_endpoint *endpoint)
{
    unsigned window = atomic_load_explicit(&endpoint->window, memory_order_relaxed);

    if (window < WINDOW_REQUESTS && endpoint->transport->options.pool)
        atomic_store_explicit(&endpoint->window, window * 2, memory_order_relaxed);
}

void endpoint_free(struct te_endpoint *endpoint)
{
    unsigned count = atomic_load(&endpoint->lane_count);

    for (unsigned i = 0; i < count; i++)
        lane_free(lane_at(endpoint, i));
    pthread_mutex_destroy(&endpoint->lanes_lock);
    g_free(endpoint->key);
    g_free(endpoint);
}

/* All endpoints */

static GPtrArray *snapshot(struct te_transport *transport)
{
    GPtrArray *endpoints;

    pthread_mutex_lock(&transport->endpoints_lock);
    endpoints = g_ptr_array_copy(transport->all_endpoints, NULL, NULL);
    pthread_mutex_unlock(&transport->endpoints_lock);
    return endpoints;
}

void transport_attend(struct te_transport *transport, uint32_t attention, bool all_lanes)
{
    GPtrArray *endpoints = snapshot(transport);

    for (guint i = 0; i < endpoints->len; i++) {
        struct te_endpoint *endpoint = g_ptr_array_index(endpoints, i);
        unsigned count = atomic_load_explicit(&endpoint->lane_count, memory_order_acquire);

        for (unsigned j = 0; j < count; j++) {
            struct lane *lane = lane_at(endpoint, j);

            if (all_lanes || atomic_load_explicit(&lane->outstanding, memory_order_seq_cst) > 0)
                lane_drive(lane, attention);
        }
    }
    g_ptr_array_unref(endpoints);
}

static uint64_t endpoint_outstanding(struct te_endpoint *endpoint)
{
    unsigned count = atomic_load_explicit(&endpoint->lane_count, memory_order_acquire);
    uint64_t outstanding = 0;

    for (unsigned i = 0; i < count; i++)
        outstanding += atomic_load_explicit(&lane_at(endpoint, i)->outstanding, memory_order_acquire);
    return outstanding;
}

uint64_t transport_outstanding(struct te_transport *transport)
{
    GPtrArray *endpoints = snapshot(transport);
    uint64_t outstanding = 0;

    for (guint i = 0; i < endpoints->len; i++)
        outstanding += endpoint_outstanding(g_ptr_array_index(endpoints, i));
    g_ptr_array_unref(endpoints);
    return outstanding;
}

/* With endpoints_lock. From now on nobody finds it and no slice can come. */
static void retire_unused(struct te_transport *transport)
{
    GHashTableIter iterator;
    gpointer value;

    g_hash_table_iter_init(&iterator, transport->endpoints);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        struct te_endpoint *endpoint = value;

        if (endpoint->references > 0 || endpoint_outstanding(endpoint) > 0)
            continue;
        g_hash_table_iter_remove(&iterator);
        g_clear_pointer(&endpoint->key, g_free);
        g_queue_push_tail(&transport->retired_endpoints, endpoint);
    }
}

/* What is left of the connections goes. False: some thread is still at one of them. */
static bool close_lanes(struct te_endpoint *endpoint)
{
    unsigned count = atomic_load(&endpoint->lane_count);
    bool closed = true;

    for (unsigned i = 0; i < count; i++)
        closed &= lane_retire(lane_at(endpoint, i));
    return closed;
}

void transport_tidy_endpoints(struct te_transport *transport)
{
    pthread_mutex_lock(&transport->endpoints_lock);
    retire_unused(transport);
    for (guint left = g_queue_get_length(&transport->retired_endpoints); left > 0; left--) {
        struct te_endpoint *endpoint = g_queue_pop_head(&transport->retired_endpoints);

        g_queue_push_tail(close_lanes(endpoint) ? &transport->free_endpoints : &transport->retired_endpoints, endpoint);
    }
    pthread_mutex_unlock(&transport->endpoints_lock);
}
