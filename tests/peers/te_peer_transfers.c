/* The commands that have to do with other engines. */
#include "te_peer.h"

#include <string.h>

#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

void run_probe(struct peer *peer)
{
    const char *name = needed_text(peer, "peer");
    if (name)
        answer_result(peer, te_probe(peer->engine, name));
}

void run_first_buffer(struct peer *peer)
{
    uint64_t address = 0;
    const char *name = needed_text(peer, "peer");
    if (!name)
        return;
    if (te_first_buffer_address(peer->engine, name, &address) != 0)
        answer_text(peer, "reason", te_last_error());
    answer_unsigned(peer, "addr", address);
}

void run_notifies(struct peer *peer)
{
    int count = 0;
    notify_msg_t *messages = getNotifsFromEngine(peer->engine, &count);
    json_object *list = json_object_new_array();
    for (int i = 0; i < count; i++) {
        json_object *message = json_object_new_object();
        json_object_object_add(message, "name", json_object_new_string(messages[i].name));
        json_object_object_add(message, "msg", json_object_new_string(messages[i].msg));
        json_object_array_add(list, message);
    }
    freeNotifsMsgBuf(messages, count);
    json_object_object_add(peer->reply, "notifies", list);
}

/* The id of the segment that the command names; negative when it cannot be opened. */
static segment_id_t segment(struct peer *peer)
{
    const char *name = needed_text(peer, "peer");
    if (!name)
        return -1;
    gpointer known;
    if (g_hash_table_lookup_extended(peer->segments, name, NULL, &known))
        return GPOINTER_TO_INT(known);
    segment_id_t id = openSegment(peer->engine, name);
    if (id >= 0)
        g_hash_table_insert(peer->segments, g_strdup(name), GINT_TO_POINTER(id));
    return id;
}

void run_open(struct peer *peer)
{
    segment_id_t id = segment(peer);
    answer_number(peer, "ret", id);
    if (id < 0)
        answer_text(peer, "reason", te_last_error());
}

/* The texts of "notify"; false when there is none. */
static bool notification(const struct peer *peer, notify_msg_t *message)
{
    json_object *notify = field_of(peer->command, "notify");
    if (!notify)
        return false;
    message->name = (char *)(uintptr_t)json_object_get_string(field_of(notify, "name"));
    message->msg = (char *)(uintptr_t)json_object_get_string(field_of(notify, "msg"));
    return true;
}

/* Sends "notify" to "peer", without a transfer. */
void run_notify(struct peer *peer)
{
    notify_msg_t message;
    if (!notification(peer, &message)) {
        refuse(peer, "missing field 'notify'");
        return;
    }
    segment_id_t id = segment(peer);
    answer_result(peer, id < 0 ? id : genNotifyInEngine(peer->engine, (uint64_t)id, message));
}

/* One request from an object with "buf" and "off" or "addr", "remote_addr" and "len"; false after refusing. */
static bool read_request(struct peer *peer, json_object *item, int opcode, segment_id_t id, transfer_request_t *request)
{
    uint64_t length = number_of(item, "len", 0);
    uint64_t address = number_of(item, "addr", 0);
    if (!field_of(item, "addr")) {
        const struct memory *memory = memory_of(peer, item);
        uint64_t offset = number_of(item, "off", 0);
        if (!memory)
            return false;
        if (!memory_has(memory, offset, length)) {
            refuse(peer, "item outside of a buffer of %zu bytes", memory->size);
            return false;
        }
        address = (uintptr_t)memory->bytes + offset;
    }
    *request = (transfer_request_t){
        .opcode = opcode,
        .source = (void *)(uintptr_t)address,
        .target_id = id,
        .target_offset = number_of(item, "remote_addr", 0),
        .length = length,
    };
    return true;
}

/* The requests of the command, the single one or those of "items", for g_free(); NULL after refusing. */
static transfer_request_t *read_requests(struct peer *peer, int opcode, segment_id_t id, size_t *count)
{
    json_object *items = field_of(peer->command, "items");
    *count = items ? json_object_array_length(items) : 1;
    transfer_request_t *requests = g_new0(transfer_request_t, *count + 1);
    for (size_t i = 0; i < *count; i++) {
        json_object *item = items ? json_object_array_get_idx(items, i) : peer->command;
        if (!read_request(peer, item, opcode, id, &requests[i])) {
            g_free(requests);
            return NULL;
        }
    }
    return requests;
}

static int submit(struct peer *peer, batch_id_t batch, transfer_request_t *requests, size_t count)
{
    notify_msg_t message;
    if (notification(peer, &message))
        return submitTransferWithNotify(peer->engine, batch, requests, count, message);
    if (!given(peer, "priority") && !given(peer, "deadline_ns"))
        return submitTransfer(peer->engine, batch, requests, count);
    te_submit_options_t options = {
        .struct_size = sizeof(options),
        .priority = given(peer, "priority") ? (int32_t)number(peer, "priority", 0) : TE_PRIORITY_DEFAULT,
        .deadline_ns = number(peer, "deadline_ns", 0),
    };
    return te_submit(peer->engine, batch, requests, count, &options);
}

/* Submits what the command says to a batch of its own. Returns its id, or 0 with the reason in the reply. */
static batch_id_t start(struct peer *peer, int opcode)
{
    size_t count;
    segment_id_t id = segment(peer);
    if (id < 0) {
        answer_text(peer, "reason", te_last_error());
        return 0;
    }
    transfer_request_t *requests = read_requests(peer, opcode, id, &count);
    if (!requests)
        return 0;
    batch_id_t batch = allocateBatchID(peer->engine, count);
    int result = batch == INVALID_BATCH ? -1 : submit(peer, batch, requests, count);
    if (result != 0) {
        answer_number(peer, "submit", result);
        answer_text(peer, "reason", te_last_error());
        if (batch != INVALID_BATCH)
            freeBatchID(peer->engine, batch);
        batch = 0;
    }
    g_free(requests);
    return batch;
}

static void answer_batch(struct peer *peer, const te_batch_status_t *status)
{
    answer_number(peer, "waiting", (int64_t)status->waiting);
    answer_number(peer, "completed", (int64_t)status->completed);
    answer_number(peer, "failed", (int64_t)status->failed);
    answer_number(peer, "canceled", (int64_t)status->canceled);
    answer_unsigned(peer, "bytes", status->transferred_bytes);
}

/* Waits for a batch; true when all of it has completed. */
static bool finish(struct peer *peer, batch_id_t batch)
{
    te_batch_status_t status = {.struct_size = sizeof(status)};
    te_wait_batch(peer->engine, batch, timeout_ns(peer));
    if (te_batch_status(peer->engine, batch, &status) != 0)
        return false;
    answer_batch(peer, &status);
    return status.completed == status.tasks;
}

static void transfer(struct peer *peer, int opcode)
{
    batch_id_t batch = start(peer, opcode);
    bool completed = batch != 0 && finish(peer, batch);
    if (batch != 0)
        answer_number(peer, "free", freeBatchID(peer->engine, batch));
    answer_number(peer, "ret", completed ? 0 : -1);
}

void run_write(struct peer *peer)
{
    transfer(peer, OPCODE_WRITE);
}

void run_read(struct peer *peer)
{
    transfer(peer, OPCODE_READ);
}

void run_submit(struct peer *peer)
{
    bool reads = strcmp(text(peer, "op", "write"), "read") == 0;
    batch_id_t batch = start(peer, reads ? OPCODE_READ : OPCODE_WRITE);
    answer_unsigned(peer, "batch", batch);
}

/* 0 under way, 1 completed, -1 failed; the last two free the batch. */
void run_status(struct peer *peer)
{
    batch_id_t batch = number(peer, "batch", 0);
    te_batch_status_t status = {.struct_size = sizeof(status)};
    if (te_batch_status(peer->engine, batch, &status) != 0) {
        answer_result(peer, -1);
        return;
    }
    int result = 0;
    if (status.waiting == 0) {
        result = status.completed == status.tasks ? 1 : -1;
        freeBatchID(peer->engine, batch);
    }
    answer_number(peer, "ret", result);
}

void run_wait(struct peer *peer)
{
    json_object *list = needed_array(peer, "batches");
    if (!list)
        return;
    bool completed = true;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        batch_id_t batch = json_object_get_uint64(json_object_array_get_idx(list, i));
        completed = finish(peer, batch) && completed;
        freeBatchID(peer->engine, batch);
    }
    answer_number(peer, "ret", completed ? 0 : -1);
}

/* Waits for a batch and keeps it. */
void run_await(struct peer *peer)
{
    batch_id_t batch = number(peer, "batch", 0);
    answer_result(peer, te_wait_batch(peer->engine, batch, timeout_ns(peer)));
    finish(peer, batch);
}

void run_task(struct peer *peer)
{
    transfer_status_t status = {0};
    answer_result(peer, getTransferStatus(peer->engine, number(peer, "batch", 0), number(peer, "task", 0), &status));
    answer_number(peer, "status", status.status);
    answer_unsigned(peer, "bytes", status.transferred_bytes);
}

void run_cancel(struct peer *peer)
{
    batch_id_t batch = number(peer, "batch", 0);
    answer_result(peer, given(peer, "task") ? te_cancel_task(peer->engine, batch, number(peer, "task", 0))
                                            : te_cancel_batch(peer->engine, batch));
}

void run_free(struct peer *peer)
{
    answer_result(peer, freeBatchID(peer->engine, number(peer, "batch", 0)));
}
