/*
 * The classic runtime: one function for each slot of the ops table, with the meaning and the results that the public
 * headers document. None of them is called with a NULL runtime; every other argument may be anything a caller can pass.
 */
#ifndef TE_CLASSIC_RUNTIME_H
#define TE_CLASSIC_RUNTIME_H

#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

struct te_classic;

/* Arguments as of createTransferEngine. NULL with te_status_message() set when it fails. */
struct te_classic *te_classic_create(const char *connection, const char *local_name, const char *host,
                                     uint64_t rpc_port, int auto_discover);
void te_classic_destroy(struct te_classic *classic);

int te_classic_get_local_ip_and_port(struct te_classic *classic, char *buffer, size_t size);
int te_classic_discover_topology(struct te_classic *classic);
transport_t te_classic_install_transport(struct te_classic *classic, const char *protocol, void **arguments);
int te_classic_uninstall_transport(struct te_classic *classic, const char *protocol);
segment_id_t te_classic_open_segment(struct te_classic *classic, const char *name);
segment_id_t te_classic_open_segment_no_cache(struct te_classic *classic, const char *name);
int te_classic_warmup_efa_segment(struct te_classic *classic, const char *name);
int te_classic_close_segment(struct te_classic *classic, segment_id_t segment);
int te_classic_remove_local_segment(struct te_classic *classic, const char *name);
int te_classic_register_local_memory(struct te_classic *classic, void *address, size_t length, const char *location,
                                     int remote_accessible);
int te_classic_unregister_local_memory(struct te_classic *classic, void *address);
int te_classic_register_local_memory_batch(struct te_classic *classic, buffer_entry_t *buffers, size_t count,
                                           const char *location);
int te_classic_unregister_local_memory_batch(struct te_classic *classic, void **addresses, size_t count);
batch_id_t te_classic_allocate_batch_id(struct te_classic *classic, size_t capacity);
int te_classic_submit_transfer(struct te_classic *classic, batch_id_t batch, struct transfer_request *requests,
                               size_t count);
int te_classic_submit_transfer_with_notify(struct te_classic *classic, batch_id_t batch,
                                           struct transfer_request *requests, size_t count, notify_msg_t message);
int te_classic_get_transfer_status(struct te_classic *classic, batch_id_t batch, size_t task,
                                   struct transfer_status *status);
notify_msg_t *te_classic_get_notifs_from_engine(struct te_classic *classic, int *count);
int te_classic_gen_notify_in_engine(struct te_classic *classic, uint64_t segment, notify_msg_t message);
int te_classic_free_batch_id(struct te_classic *classic, batch_id_t batch);
int te_classic_sync_segment_cache(struct te_classic *classic);
int te_classic_get_nic_load_stats(struct te_classic *classic, nic_load_stat_t *stats, size_t *count);
int te_classic_show_links(struct te_classic *classic, char *buffer, size_t size, int json);

int te_classic_port(struct te_classic *classic);
int te_classic_probe(struct te_classic *classic, const char *name);
int te_classic_submit(struct te_classic *classic, batch_id_t batch, const struct transfer_request *requests,
                      size_t count, const te_submit_options_t *options);
int te_classic_batch_status(struct te_classic *classic, batch_id_t batch, te_batch_status_t *status);
int te_classic_wait_batch(struct te_classic *classic, batch_id_t batch, int64_t timeout_ns);
int te_classic_wait_task(struct te_classic *classic, batch_id_t batch, size_t task, int64_t timeout_ns,
                         struct transfer_status *status);
int te_classic_event_fd(struct te_classic *classic);
int te_classic_batch_event_fd(struct te_classic *classic, batch_id_t batch);
int te_classic_cancel_task(struct te_classic *classic, batch_id_t batch, size_t task);
int te_classic_cancel_batch(struct te_classic *classic, batch_id_t batch);
int te_classic_remote_buffers(struct te_classic *classic, segment_id_t segment, buffer_entry_t *buffers, size_t *count);
int te_classic_first_buffer_address(struct te_classic *classic, const char *name, uint64_t *address);

#endif
