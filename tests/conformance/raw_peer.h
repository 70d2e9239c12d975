/*
 * A foreign target on bare sockets, in threads of the test's process: it publishes a descriptor as a classic engine
 * does and behaves on its data port as it is told, so that an initiator meets every fault a peer can have. It keeps
 * count of what it was asked.
 */
#ifndef TESTS_CONFORMANCE_RAW_PEER_H
#define TESTS_CONFORMANCE_RAW_PEER_H

#include "raw_wire.h"
#include "support.h"

enum raw_behaviour {
    RAW_SERVE,                /* as a good target */
    RAW_CLOSE_AT_ONCE,        /* closes when it has read the header */
    RAW_REJECT,               /* status 1, then closes */
    RAW_STATUS_TWO,           /* status 2, then closes */
    RAW_BAD_MAGIC,            /* eight other bytes instead of a status */
    RAW_CLOSE_HALF_WAY,       /* takes or gives half of the body, then closes */
    RAW_STALL_HALF_WAY,       /* takes or gives half of the body, then waits for raw_peer_release() and goes on */
    RAW_STALL_BEFORE_STATUS,  /* read: nothing is sent; write: the body is taken; then waits as above and goes on */
    RAW_LOSE_ACKNOWLEDGEMENT, /* stores the body of a write, then closes without a status; a read: sends no status */
    RAW_TRICKLE,              /* serves, in pieces of a kilobyte with short pauses */
};

enum raw_control_behaviour {
    RAW_CONTROL_SERVE,
    RAW_CONTROL_SILENT,    /* reads, never answers; goes on after raw_peer_release() */
    RAW_CONTROL_CLOSE,     /* closes without an answer */
    RAW_CONTROL_HALF,      /* sends half of the answer, then waits for raw_peer_release() and closes */
    RAW_CONTROL_OVERSIZED, /* announces more than a mebibyte */
    RAW_CONTROL_NULL,      /* answers null */
    RAW_CONTROL_WRONG_TYPE /* answers with another type */
};

struct raw_request_seen {
    uint8_t opcode;
    uint8_t padding[7];
    uint64_t address;
    uint64_t length;
    uint64_t body_bytes; /* of a write: how many came */
    bool acknowledged;   /* a write whose status was sent */
    unsigned releases;   /* calls of raw_peer_release() before it came */
    bool refused_rest;   /* the initiator had closed or reset when the peer went on after a stall */
};

struct raw_peer {
    char name[NAME_SIZE]; /* to open */
    int control_port, data_port;
    uint8_t *memory; /* its one buffer */
    size_t memory_size;
};

/* On 127.0.0.1, protocol version 2, a mebibyte of memory. Stopped by test_end(). */
struct raw_peer *raw_peer_start(void);
/* host: where it listens ("127.0.0.2", "::1"), and the host part of its own name unless raw_peer_publish() changes it.
 */
struct raw_peer *raw_peer_start_at(const char *host);
/* On ports that a peer at another host has: the other half of a machine with several addresses. */
struct raw_peer *raw_peer_start_on(const char *host, int control_port, int data_port);
void raw_peer_stop(struct raw_peer *peer);
void raw_peers_stop_all(void);

/* Replaces the answer to metadata requests. The text is copied. */
void raw_peer_publish(struct raw_peer *peer, const char *descriptor);
/* The descriptor of a peer with these values, malloc'ed. data_host NULL: the field is left out. */
char *raw_descriptor(const struct raw_peer *peer, const char *name, const char *data_host, int protocol_version);
/* The next times requests (of any connection) are treated so, later ones served. times 0: for ever. */
void raw_peer_behave(struct raw_peer *peer, enum raw_behaviour behaviour, unsigned times);
void raw_peer_behave_control(struct raw_peer *peer, enum raw_control_behaviour behaviour);
/* Lets everything that stalls go on. */
void raw_peer_release(struct raw_peer *peer);

/* So far. */
unsigned raw_peer_connections(struct raw_peer *peer);
unsigned raw_peer_open_connections(struct raw_peer *peer);
unsigned raw_peer_control_calls(struct raw_peer *peer, enum raw_message type);
unsigned raw_peer_requests(struct raw_peer *peer);
/* A copy of a request; waits until there are that many and the peer has done with it if done is set. */
struct raw_request_seen raw_peer_request(struct raw_peer *peer, unsigned index, bool done);
/* Waits until every data connection so far has ended; whether one of them delivered a body byte of that value after
 * raw_peer_release(). */
bool raw_peer_saw_byte(struct raw_peer *peer, uint8_t byte);
/* The text of the last control call of a type, malloc'ed, "" before the first. */
char *raw_peer_last_call(struct raw_peer *peer, enum raw_message type);

/* An engine with size bytes of memory at local, and a peer that it has open, which stalls in the middle of each request
 * until raw_peer_release(). */
struct stalling {
    transfer_engine_t engine;
    struct raw_peer *peer;
    segment_id_t segment;
    uint8_t *local;
    size_t size;
};

/* size: at most a mebibyte. */
struct stalling stalling_new(size_t size);
/* Reads all of it; the request is with the peer when this returns. */
batch_id_t stalling_submit(const struct stalling *stalling);

#endif
