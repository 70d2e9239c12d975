/*
 * How the TCP transport is cut.
 *
 *   transport.c     the ops table, creation and destruction, what both halves share
 *   target.c        serves peers: accepts them, one loop per reactor
 *   connection.c    one peer's connection: takes requests, moves registered memory
 *   endpoint.c      one remote data port and its lanes: which lane a slice takes
 *   lane.c          one connection to it: who drives it, its life
 *   lane_queue.c    what it holds: waiting slices, requests on the wire
 *   lane_time.c     cancels, deadlines, silent peers
 *   lane_end.c      how a connection ends and what becomes of its slices: break, rejection, fence
 *   lane_send.c     requests and bodies out
 *   lane_receive.c  status frames and bodies in
 *   patrol.c        looks after lanes that no calling thread drives
 *
 * A lane is driven by whichever thread needs it: the one that submits, one that polls or waits, or the reactor. Whoever
 * wants to touch it becomes its owner by an atomic flag, or leaves a note (inbox, attention) that the present owner
 * reads before it lets go. No thread ever waits for a lane.
 */
#ifndef TE_TRANSPORTS_TCP_TCP_PRIVATE_H
#define TE_TRANSPORTS_TCP_TCP_PRIVATE_H

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "core/engine.h"
#include "core/net/acceptor.h"
#include "core/net/address.h"
#include "core/net/reactor.h"
#include "transports/tcp/tcp.h"
#include "wire/classic/tcp_header.h"

enum {
    LANES_MAX = 16,        /* slots of an endpoint; those beyond the setting are used while others are being fenced */
    WINDOW_REQUESTS = 256, /* requests on the wire per lane */
    CALLS_MAX = 256,       /* of sendmsg or recvmsg in one go: a calling thread is not to be held by its peer */
    VECTOR_MAX = 64,       /* parts of one sendmsg or recvmsg */
};
#define WINDOW_BYTES        (UINT64_C(16) << 20) /* bodies on the wire per lane; one larger body is let through alone */
#define DISCARD_LIMIT_BYTES (UINT64_C(8) << 20)  /* a given-up read with more to come costs the connection instead */

/* Everything that creation reads from the settings. */
struct tcp_options {
    bool pool;
    unsigned lanes_per_peer;
    int version_limit;
    int64_t silence_ns;
    int64_t connect_ns;
    int64_t fence_ns;
    int64_t idle_ns;
    uint64_t piece_bytes;
    const char *congestion_control; /* for connections within this host; "" = leave alone */
};

struct tcp_target;
struct patrol;

struct te_transport {
    struct te_engine *engine;
    te_slice_finished_function finished;
    struct tcp_options options;
    struct tcp_target *target;
    struct patrol *patrols; /* one per reactor */
    _Atomic bool closing;
    _Atomic unsigned next_patrol;
    pthread_mutex_t endpoints_lock;
    GHashTable *endpoints;    /* key text -> struct te_endpoint, in use or draining */
    GPtrArray *all_endpoints; /* every one ever made; freed with the transport, since stale drivers may still point to
                                 their lanes */
    GQueue retired_endpoints; /* drained, and no longer found; lanes may still have to be closed by their owners */
    GQueue free_endpoints;    /* all lanes closed: for the next address */
};

/* Requests on the wire, in order. slice is NULL once nobody waits for the answer any more: its bytes are then thrown
 * away. */
struct request {
    struct te_slice *slice;
    uint64_t local_address, remote_address, length;
    bool write;
    bool fenced; /* given up; ends with result once the connection is seen through */
    enum te_slice_result result;
};

enum lane_state { LANE_CLOSED, LANE_CONNECTING, LANE_OPEN, LANE_FENCING };

enum lane_attention {
    ATTENTION_SUBMIT = 1 << 0,  /* the inbox has something */
    ATTENTION_READY = 1 << 1,   /* the socket may be ready */
    ATTENTION_CANCEL = 1 << 2,  /* look for slices whose task is canceled */
    ATTENTION_TIME = 1 << 3,    /* look at the clock */
    ATTENTION_WATCH = 1 << 4,   /* let the reactor watch it from now on */
    ATTENTION_IDLE = 1 << 5,    /* close it if it has been unused for long */
    ATTENTION_ABANDON = 1 << 6, /* the transport goes: give everything up */
    ATTENTION_RESET = 1 << 7,   /* ... and now without waiting for the peer */
};

struct slice_queue {
    struct te_slice *head, **tail;
};

struct lane {
    struct te_watch watch; /* first: the reactor hands it back */
    struct te_endpoint *endpoint;
    struct patrol *patrol;
    struct lane *patrol_next;

    _Atomic uint32_t owned;
    _Atomic uint32_t attention;
    _Atomic(struct te_slice *) inbox;   /* latest first */
    _Atomic uint64_t outstanding_bytes; /* of all slices it holds, inbox included */
    _Atomic uint32_t outstanding;
    _Atomic bool refuses;  /* being fenced: new slices go elsewhere */
    _Atomic bool burdened; /* must first throw away what was given up: new slices go elsewhere if they can */
    _Atomic bool open;     /* connected and not being fenced */
    _Atomic bool patrolled;
    _Atomic bool sleeper;         /* a calling thread sleeps on the socket */
    _Atomic int64_t driven_ns;    /* when somebody last looked */
    _Atomic int64_t polled_ns;    /* when a calling thread last polled */
    _Atomic int64_t empty_ns;     /* when somebody last looked and found nothing; 0 = found something */
    _Atomic unsigned empty_looks; /* in a row */

    /* The rest belongs to the owner. */
    enum lane_state state;
    int protocol_version;
    bool watched; /* the reactor is told of input and output, not only of the end */
    bool send_blocked;
    bool one_by_one; /* some local address is not there: find out which by sending requests alone */
    struct slice_queue waiting[TE_TASK_PRIORITY_COUNT];
    unsigned waiting_count;
    unsigned turn;            /* for the weights of the priorities */
    struct request *requests; /* ring; capacity a power of two */
    unsigned request_capacity, request_first, request_count;
    unsigned send_index;     /* how many requests of the ring are sent whole */
    uint64_t send_offset;    /* into the next one */
    uint64_t receive_offset; /* into the answer to the first one */
    uint64_t wire_bytes;     /* bodies of the requests in the ring */
    uint64_t acknowledged_seen;
    uint8_t status[TE_TCP_STATUS_BYTES];
    int64_t progress_ns, connect_due_ns, fence_begin_ns, earliest_deadline_ns;
    int64_t looked_ns;          /* when the clock was last looked at with work on the wire */
    int64_t silent_ns;          /* how long nothing had moved then */
    int64_t carried_silence_ns; /* the same of connections before this one, as long as nothing has come since */
};

struct te_endpoint {
    struct te_transport *transport;
    char *key;
    unsigned references; /* under endpoints_lock */
    struct te_address address;
    char text[TE_ADDRESS_TEXT_MAX];
    int protocol_version;
    pthread_mutex_t lanes_lock; /* for adding lanes */
    _Atomic unsigned lane_count;
    struct lane *lanes[LANES_MAX];
    _Atomic bool local;      /* the peer is on this host, as the last connection showed */
    _Atomic unsigned window; /* requests per lane; small after a rejection, doubles with success */
};

/* transport.c */
/* Sets up a connected socket; whether the peer is on this host. */
bool socket_prepare(const struct tcp_options *options, int descriptor);

/* target.c */
te_status tcp_target_new(struct te_transport *transport, struct tcp_target **target);
void tcp_target_free(struct tcp_target *target);
uint16_t tcp_target_port(const struct tcp_target *target);

/* endpoint.c */
struct te_endpoint *endpoint_open(struct te_transport *transport, const struct te_segment_descriptor *descriptor,
                                  const char *resolved_host);
void endpoint_close(struct te_endpoint *endpoint);
bool endpoint_matches(const struct te_endpoint *endpoint, const struct te_segment_descriptor *descriptor,
                      const char *resolved_host);
void endpoint_submit(struct te_endpoint *endpoint, struct te_slice *slices);
/* As submit, but to lanes that are not being fenced only. False, and nothing done, if there is none and no room for
 * one. */
bool endpoint_replace(struct te_endpoint *endpoint, struct te_slice *slices);
/* After a rejection one request at a time, until requests succeed again. */
void endpoint_narrow(struct te_endpoint *endpoint);
void endpoint_widen(struct te_endpoint *endpoint);
bool endpoint_has_other_open_lane(const struct te_endpoint *endpoint, const struct lane *except);
void endpoint_free(struct te_endpoint *endpoint);
/* Sets attention on every lane of the transport that holds slices (all_lanes: on all) and drives it. */
void transport_attend(struct te_transport *transport, uint32_t attention, bool all_lanes);
/* Slices held by all lanes. */
uint64_t transport_outstanding(struct te_transport *transport);
/* Forgets endpoints that are closed and drained, and keeps them for other addresses once their lanes are closed. */
void transport_tidy_endpoints(struct te_transport *transport);

/* lane.c */
struct lane *lane_new(struct te_endpoint *endpoint, struct patrol *patrol);
void lane_free(struct lane *lane);
/* Gives it a list of slices linked by next; drives it. */
void lane_submit(struct lane *lane, struct te_slice *slices);
/* Sets attention (may be 0) and drives the lane unless somebody else does, who then sees the attention. */
void lane_drive(struct lane *lane, uint32_t attention);
/* Closes a lane that holds no slice and will be given none. False: it has another owner, who closes it; ask again. */
bool lane_retire(struct lane *lane);
void lane_poll(void *data);
bool lane_claim(void *data, struct pollfd *descriptor);
/* The functions of te_task_drive_ops; data is the lane. */
void lane_unclaim(void *data);
/* Owner only. */
void lane_set_watched(struct lane *lane, bool watched);

/* lane_queue.c, owner only */
void slice_queue_append(struct slice_queue *queue, struct te_slice *slice);
void lane_take_inbox(struct lane *lane);
void lane_note_deadline(struct lane *lane, const struct te_slice *slice);
/* A peer that has nothing to do costs little memory. */
void lane_release_ring(struct lane *lane, int64_t now_ns);
struct request *lane_request(struct lane *lane, unsigned index);
void lane_push_request(struct lane *lane, struct te_slice *slice);
/* Takes the first request off the ring; its slice, if it has one, is the caller's to end. */
struct request lane_pop_request(struct lane *lane);
struct te_slice *lane_pop_waiting(struct lane *lane);
/* Back to where it came from, as the first. */
void lane_unpop_waiting(struct lane *lane, struct te_slice *slice);
/* Takes the last request off the ring. */
void lane_drop_request(struct lane *lane);
/* Takes the last request, of which no byte has been sent, back to the waiting ones. */
void lane_recall_request(struct lane *lane);
/* The lane holds the slice no longer. */
void lane_account_leaving(struct lane *lane, const struct te_slice *slice);
void lane_finish(struct lane *lane, struct te_slice *slice, enum te_slice_result result, uint64_t bytes);

/* lane_time.c, owner only */
/* Gives up what is canceled or past its deadline. */
void lane_give_up_overdue(struct lane *lane, int64_t now_ns);
/* ... and looks after fences and silence. */
void lane_look_at_clock(struct lane *lane);
void lane_close_if_idle(struct lane *lane);
/* Gives everything up; now: without waiting for the peer. */
void lane_abandon(struct lane *lane, bool now);

/* lane_end.c, owner only */
/* Closes the socket; rudely: with a reset, so that the peer drops what it has not taken yet. */
void lane_close_socket(struct lane *lane, bool rudely);
/* The peer closed (error 0) or a call failed with error (errno): ends or moves everything that was on the wire. */
void lane_broken(struct lane *lane, int error);
/* The peer refused the first request and takes no other one on this connection. */
void lane_rejected(struct lane *lane, uint32_t code);
/* The answer to the first request makes no sense. */
void lane_garbled(struct lane *lane);
/* Resets the connection and ends everything the lane holds with result. */
void lane_give_up(struct lane *lane, enum te_slice_result result);
/* The peer is silent in the middle of an answer that nobody waits for: others are not to suffer from it. False: they
 * must. */
bool lane_escape(struct lane *lane);
/* Ends what was given up with a reset; the others are sent again. No write that somebody still wants is on the wire. */
void lane_end_fenced(struct lane *lane);
/* Gives up the i-th request of the ring: a read at once, a write when it is certain that nothing of it lands any more.
 */
void lane_give_up_request(struct lane *lane, unsigned index, enum te_slice_result result);
void lane_connect_failed(struct lane *lane, int error);

/* lane_send.c, lane_receive.c: owner only, state open (receive: or fencing). True if bytes moved. */
bool lane_send(struct lane *lane);
bool lane_receive(struct lane *lane);
/* The first request is answered, but not sent whole: nothing more can be received before it is. Any state. */
bool lane_is_answered_early(const struct lane *lane);
/* Nothing is on the wire: closes the lane if the peer has. */
void lane_check_idle(struct lane *lane);

/* patrol.c */
void patrols_new(struct te_transport *transport);
/* No tick follows; the patrols stay until the lanes are gone. */
void patrols_stop(struct te_transport *transport);
struct patrol *patrol_for_new_lane(struct te_transport *transport);
struct te_reactor *patrol_reactor(const struct patrol *patrol);
/* The lane holds slices: see that it is looked after until it has been idle for a while. Any thread. */
void patrol_add(struct lane *lane);

#endif
