/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving memory between processes: the C interface of Mooncake's Transfer Engine, with the names, numbers and layouts
 * that programs are compiled against. Additions of this library are in transfer_engine_ext.h.
 *
 * An engine publishes the memory that is registered with it as one segment, named host:port. Other engines open that
 * segment by its name and read from or write to the registered ranges. A transfer is a task in a batch: allocate a
 * batch, submit requests to it, query the status of each, free the batch.
 *
 * What holds for every function, unless its own comment says otherwise:
 *
 *   Engine     A null engine, one that was destroyed, or one made by the parent of a fork()ed process is refused with
 *              the result for an invalid argument; nothing is dereferenced.
 *   Arguments  A null pointer where data is needed is an invalid argument. Text is copied before the call returns.
 *   Outputs    Written only on success.
 *   Threads    Any function may be called from any thread at any time. destroyTransferEngine is the last call on its
 *              engine.
 *   Blocking   "Does not block" means that the call waits for no peer. "A control call" is one question to one peer:
 *              it waits for the connection at most MC_HANDSHAKE_CONNECT_TIMEOUT (5 s) and for the answer at most
 *              TE_HANDSHAKE_REPLY_TIMEOUT_MS (10 s). A host with several addresses is asked at one after the other,
 *              connecting to all of them for at most twice that time. A host given by name is resolved before, and so
 *              is one that the peer itself names: that takes as long as the system's resolver, on top of the bounds.
 *   Reasons    After a failure te_last_error() (transfer_engine_ext.h) gives the reason in words, per thread.
 *   Forking    An engine belongs to the process that created it. A child may only destroy it, and may create its own.
 *
 * Results come in two number spaces; each function names its own:
 *
 *   negative   0 or a negative number, the ERR_* constants of transfer_engine_ext.h: -1 invalid argument, -2 too many
 *              requests, -3 address not registered, -6 device not found, -7 address overlapped, -101 name resolution,
 *              -102 socket, -103 malformed JSON, -104 handshake rejected, -200 metadata, -302 memory, -303 not
 *              implemented.
 *   positive   0 or a positive number: 1 invalid argument, 2 too many requests, 3 address not registered, 4 batch busy,
 *              8 transport not supported, 302 memory, 999 not implemented.
 */
#ifndef TRANSFER_ENGINE_C
#define TRANSFER_ENGINE_C

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names, not types: programs rely on seeing the integers behind them. */
#define segment_handle_t int32_t
#define segment_id_t     int32_t
#define batch_id_t       uint64_t

#define LOCAL_SEGMENT (0)        /* the engine's own segment */
#define INVALID_BATCH UINT64_MAX /* what allocateBatchID returns when it fails */

#define OPCODE_READ  (0) /* from the segment into local memory */
#define OPCODE_WRITE (1) /* from local memory into the segment */

#define STATUS_WAITING   (0) /* under way */
#define STATUS_PENDING   (1) /* under way; not used by this library */
#define STATUS_INVALID   (2) /* not used by this library */
#define STATUS_CANCELED  (3) /* ended by te_cancel_task or te_cancel_batch */
#define STATUS_COMPLETED (4) /* ended: the bytes are where they should be and visible there */
#define STATUS_TIMEOUT   (5) /* ended: only where MC_SLICE_TIMEOUT asks for it */
#define STATUS_FAILED    (6) /* ended: nothing can be said about the content of the destination */

/* An engine. Made by createTransferEngine, never to be dereferenced. */
typedef void *transfer_engine_t;
/* A transport of an engine. Belongs to the engine; can only be compared with NULL. */
typedef void *transport_t;

/* One transfer between local memory and a range of a segment. */
struct transfer_request {
    int opcode;             /* OPCODE_READ or OPCODE_WRITE */
    void *source;           /* local memory, whatever the direction; must stay valid until the task has ended */
    segment_id_t target_id; /* from openSegment, or LOCAL_SEGMENT */
    uint64_t target_offset; /* the address in the target process, inside one region registered there */
    uint64_t length;        /* bytes; a request of 0 bytes completes at once */
};
typedef struct transfer_request transfer_request_t;

/* A notification. In arguments the texts belong to the caller; in the result of getNotifsFromEngine they are freed by
 * freeNotifsMsgBuf. Any bytes but NUL. */
struct notify_msg {
    char *name;
    char *msg;
};
typedef struct notify_msg notify_msg_t;

struct transfer_status {
    int status;                 /* STATUS_* */
    uint64_t transferred_bytes; /* the length once STATUS_COMPLETED */
};
typedef struct transfer_status transfer_status_t;

/* A segment by its parts. No function takes or returns it. */
struct segment_desc {
    int type;
    union {
        struct {
            void *addr;
            uint64_t size;
            const char *location;
        } rdma;
        struct {
            const char *file_path;
            const char *subsystem_name;
            const char *proto;
            const char *ip;
            uint64_t port;
        } nvmeof;
    } desc_;
};
typedef struct segment_desc segment_desc_t;

/* A range of memory. */
struct buffer_entry {
    void *addr;
    size_t length; /* bytes */
};
typedef struct buffer_entry buffer_entry_t;

/* Load of one network device. */
struct nic_load_stat {
    char device_name[64];      /* NUL-terminated */
    uint64_t inflight_bytes;   /* handed to the device and not yet completed */
    double ewma_bandwidth_bps; /* smoothed, in bytes per second */
};
typedef struct nic_load_stat nic_load_stat_t;

/* ---- Engines ---------------------------------------------------------------------------------------------------- */

/*
 * Creates an engine: opens its control port, starts its threads, reads the settings (environment and TE_CONFIG).
 *
 * metadata_conn_string  Where segments are looked up. "P2PHANDSHAKE": segments are named host:port and asked for
 *                       directly; no server is needed. A bare host:port or etcd://, redis://, http:// and https://
 *                       name a metadata server; this version refuses them with a reason.
 * local_server_name     With P2PHANDSHAKE the host that peers reach this engine by: an IPv4 or IPv6 address (with or
 *                       without brackets) or a name. A port after it is ignored and not bound: the engine takes a free
 *                       one from MC_MIN_RPC_PORT..MC_MAX_RPC_PORT (15000..17000); getLocalIpAndPort tells which.
 * ip_or_host_name       Ignored; may be NULL.
 * rpc_port              Ignored.
 * auto_discover         Non-zero: reads the topology from the file that MC_CUSTOM_TOPO_JSON names, if any, and installs
 *                       tcp. The machine is not looked at: no transport of this version uses network devices. 0: the
 *                       caller uses installTransport.
 *
 * MC_FORCE_TCP, present with any value, installs tcp alone whatever auto_discover says. MC_USE_TENT asks for the TENT
 * runtime; when the library does not have it, creation fails.
 *
 * Side effects on the process: the soft limit of open files is raised to the hard limit; nothing else. The library
 * installs no signal handlers and raises no signals.
 *
 * Returns an engine to be given to destroyTransferEngine, or NULL; a failed creation leaves nothing behind. Any number
 * of engines may exist in a process. Blocks for local work only: no name is resolved, no peer is asked.
 */
transfer_engine_t createTransferEngine(const char *metadata_conn_string, const char *local_server_name,
                                       const char *ip_or_host_name, uint64_t rpc_port, int auto_discover);

/*
 * Destroys an engine with all it holds: batches, registrations and opened segments need not be given back before. Work
 * under way is ended first, so that when the call returns no byte moves into or out of the memory that was registered
 * or named in requests. Blocks until the connections in use are closed on both sides or, after TE_TCP_FENCE_TIMEOUT_MS
 * (0.5 s), reset.
 *
 * NULL is allowed. A call that another thread is still in is waited for, and one that comes later is refused; both take
 * their time (a control call, the tasks of a wait), so a program better ends its calls first. Must not be called from a
 * log callback. In a fork()ed child it releases nothing but the handle: memory, descriptors and connections stay as
 * they are and the parent's engine is not disturbed.
 */
void destroyTransferEngine(transfer_engine_t engine);

/*
 * Writes the engine's address, host:port, as peers pass it to openSegment. Cut to buf_len - 1 bytes and
 * NUL-terminated; nothing is written after the NUL. An IPv6 host is written without brackets (::1:15270);
 * openSegment takes that form as well as the bracketed one. Does not block.
 *
 * Negative space: 0; -1 buf_out is NULL or buf_len is 0.
 */
int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/*
 * Replaces the engine's topology, wherever it came from, by the network devices of this machine that its transports can
 * use. In this version there is none, so that it is empty afterwards. Changes nothing in transports that are installed
 * nor in what peers see. MC_CUSTOM_TOPO_JSON is not read. Does not block.
 *
 * Negative space: 0, also when there is no device.
 */
int discoverTopology(transfer_engine_t engine);

/*
 * Makes a transport usable in this engine and registers with it all memory registered so far.
 *
 * proto  "tcp"; others depend on the machine and the build.
 * args   NULL, or an array of which only args[0] is looked at: NULL, or a text holding a topology matrix that replaces
 *        the engine's topology. Not kept.
 *
 * Returns a handle that belongs to the engine. A transport that is there already is returned again, the same handle,
 * args ignored. NULL: unknown protocol, no device for it, malformed matrix, or a region could not be registered; the
 * engine is then as it was before. Blocks for local work only.
 */
transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);

/*
 * Transports stay until the engine is destroyed; the call is there for programs that pair it with installTransport.
 * Does not block.
 *
 * Negative space: 0; -1 proto is NULL.
 */
int uninstallTransport(transfer_engine_t engine, const char *proto);

/*
 * Lets SIGTERM and SIGINT end the process in order: the first call in a process replaces the handlers of both signals
 * and registers an exit handler, after which a signal destroys all engines for which this was called and ends the
 * process with status 128 + signal number. The same engines are destroyed at a normal exit. Calling it again for the
 * same engine changes nothing. An engine that is destroyed before takes itself off the list. Does not block.
 */
void enableGracefulShutdown(transfer_engine_t engine);

/* ---- Segments --------------------------------------------------------------------------------------------------- */

/*
 * Opens a segment by name. With P2PHANDSHAKE the name is the host:port that the peer's getLocalIpAndPort tells; leading
 * slashes are skipped. The peer need not have registered memory yet: what it registers later is found without opening
 * again, and so is a peer that was restarted under the same name.
 *
 * Returns the segment's id: 0 (LOCAL_SEGMENT) for the engine's own name, else a positive number, the same one each time
 * the same name is opened. Negative space on failure: -1 no such peer, no usable answer, or an empty name.
 * Blocks for one control call when the name is new, else not.
 */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);

/*
 * As openSegment, but asks the peer again first when the segment has been opened before. That the peer does not answer
 * is not reported then: the id that is known is returned. Blocks for one control call, for two when another call is
 * just asking the same peer, whose answer could be too old.
 */
segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);

/*
 * Gives back what openSegment returned. May be left out, and never disturbs others who opened the same segment or
 * transfers under way. Does not block.
 *
 * Negative space: 0, whatever the id.
 */
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);

/*
 * Forgets what is cached about the segment of that name, so that the next use asks the peer again. For the engine's own
 * name nothing is forgotten: what it has registered stays registered. Does not block.
 *
 * Negative space: 0, also when nothing of that name is known; -1 empty name.
 */
int removeLocalSegment(transfer_engine_t engine, const char *segment_name);

/*
 * Asks the peers of all opened segments for their present state, so that later transfers do not meet an old one. Never
 * needed: what is found to be out of date is asked for again by itself. Blocks for control calls to all peers.
 *
 * Negative space: 0, also when peers do not answer (their old state is kept).
 */
int syncSegmentCache(transfer_engine_t engine);

/*
 * Connects the local devices to those of a segment ahead of the first transfer, for transport efa. With other
 * transports there is nothing to do.
 *
 * Negative space: 0 done or nothing to do (no efa transport, own name, no name, no engine); -1 the segment cannot be
 * found; -201 not all devices could be connected. Blocks for control calls to the peer, made in parallel.
 */
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/*
 * Registers memory: it becomes part of the engine's segment. The memory stays the caller's, is not touched, and must
 * stay mapped until it is unregistered or the engine destroyed. Adjacent regions are separate and legal; a transfer
 * must lie within one of them.
 *
 * location           Where the memory is: "cpu:0", "cuda:1"; "*" or NULL lets the transport find out.
 * remote_accessible  0: usable as local memory of transfers only; peers are refused.
 *
 * Negative space: 0; -1 addr is NULL or length 0 or the range wraps around the address space; -7 overlaps a registered
 * region, which is left as it is; -302 no memory, or a transport's own code; after a failure nothing is registered.
 * Does not block.
 */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
                        int remote_accessible);

/*
 * Ends a registration. addr is the address given when registering. When it returns, no peer can reach the region any
 * more and none is in the middle of doing so; the same memory may be registered again at once or freed. Local transfers
 * under way are not ended by it: free the memory of a request only once its task has ended. Does not block: it waits at
 * most for the pieces of peers' transfers that are being copied at that moment.
 *
 * Negative space: 0; -3 no region starts there.
 */
int unregisterLocalMemory(transfer_engine_t engine, void *addr);

/*
 * Registers buffer_len regions, remotely accessible, all or none. The list is only read. 0 regions: 0.
 *
 * Negative space: as registerLocalMemory; -7 also when regions of the list overlap each other. Does not block.
 */
int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list, size_t buffer_len,
                             const char *location);

/*
 * Ends several registrations. All addresses are tried; those that are registered are unregistered even when others are
 * not. Does not block, like unregisterLocalMemory.
 *
 * Negative space: 0; else the first failure, as of unregisterLocalMemory.
 */
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len);

/* ---- Transfers -------------------------------------------------------------------------------------------------- */

/*
 * A batch for at most batch_size tasks (0 is legal), to be given to freeBatchID or kept until the engine is destroyed.
 * The id means nothing outside this engine; it is never 0, INVALID_BATCH or above 2^63 - 1, and is not used again while
 * a program could remember it. Does not block.
 *
 * Returns INVALID_BATCH when batch_size is above 16 Mi or memory is short.
 */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);

/*
 * Adds count tasks to a batch and starts them, in the order of entries but without order between their ends. Task
 * numbers run on over all submits to the batch, from 0. Entries are copied, not written to. The memory at source must
 * stay valid until the task has ended; it need not be registered for tcp.
 *
 * Anything but 0 means that none of the entries was started and the batch is as before. What only the peer can tell (a
 * range that is not registered there, a peer that is gone) ends the task as STATUS_FAILED instead. Does not wait for
 * the transfers, nor for a peer; may move bytes while it runs.
 *
 * Positive space: 0, also for count 0; 1 unknown batch or segment, unknown opcode, a null source with a length, a range
 * that wraps around the address space; 2 more tasks than the batch has room for; 8 no installed transport reaches the
 * segment; 302 no memory.
 */
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries, size_t count);

/*
 * As submitTransfer, and sends a notification to the peer of the first entry once all tasks of this call have
 * completed: exactly once, after the data is in place, by itself (nobody need poll), and not at all if one of them
 * fails. Texts are copied. That the notification cannot be delivered shows in the log only.
 *
 * Positive space: as submitTransfer; 1 also for count 0, a null text, or texts that are too long for one message
 * (1 MiB as encoded).
 */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
                             size_t count, notify_msg_t notify_msg);

/*
 * The state of one task: STATUS_WAITING, then exactly one of STATUS_COMPLETED and STATUS_FAILED, for ever
 * (STATUS_CANCELED and STATUS_TIMEOUT only where asked for). Once it has ended, nothing of the task moves any more: the
 * local memory may be reused. Each task has its own state. Does not block: made to be polled. May move the transfer on
 * while it runs, and takes locks, for moments, only when it does so.
 *
 * Positive space: 0; 1 unknown batch or task.
 */
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id, struct transfer_status *status);

/*
 * Frees a batch. Whether its tasks were polled does not matter. Does not block.
 *
 * Positive space: 0 freed, the id is gone; 4 a task is still under way: the batch stays valid for queries and for
 * another freeBatchID, takes no more submits, and releases itself some time after its last task has ended; 1 unknown
 * batch.
 */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* ---- Notifications ---------------------------------------------------------------------------------------------- */

/*
 * Takes all notifications that have arrived, in the order of arrival.
 *
 * Returns an array of *size entries (from malloc; texts never NULL) to be given to freeNotifsMsgBuf, or NULL with
 * *size 0 when there is none, memory is short (they are kept then), size is NULL, or the engine is invalid. Does not
 * block.
 */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);

/*
 * Frees what getNotifsFromEngine returned; size as it was given. Needs no engine and works after it was destroyed.
 * (NULL, 0) is allowed. Does not block. Always 0.
 */
int freeNotifsMsgBuf(notify_msg_t *msg, int size);

/*
 * Sends one notification to the peer of a segment, at once and independent of transfers; 0 (LOCAL_SEGMENT) is the
 * engine itself. Texts are copied. Blocks for one control call.
 *
 * Negative space: 0 the peer has taken it; -1 a null text, or texts too long for one message (1 MiB as encoded); -101
 * the peer's name cannot be resolved; -102 it cannot be reached, closes or does not answer in time; -103 its answer is
 * not JSON; -200 unknown segment, or it refused; -302 no memory.
 */
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

/* ---- Inspection ------------------------------------------------------------------------------------------------- */

/*
 * Load of the network devices that the engine schedules over. *count is the room in stats when calling and the number
 * of devices afterwards; when that is larger, only the first ones were filled in and the caller may come back with more
 * room. The classic runtime schedules over none: 0 devices. Does not block.
 *
 * Result: 0; -1 a null pointer, the engine included.
 */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count);

/*
 * Describes local devices and topology as text for people (json = 0) or as JSON, cut to buf_len - 1 bytes and
 * NUL-terminated. Blocks for local file access only.
 *
 * Negative space: 0, also when cut; -1 buf is NULL or buf_len is 0; -302 no memory.
 */
int showLinks(transfer_engine_t engine, char *buf, size_t buf_len, int json);

#ifdef __cplusplus
}
#endif

#endif
