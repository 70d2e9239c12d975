/* The layouts that programs are compiled against (classic specification 1.1), held by the compiler. Produces no code.
 */
#include <assert.h>
#include <stddef.h>

#include "core/log.h"
#include "core/settings.h"
#include "core/status.h"
#include "core/task.h"
#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

#define TE_LAYOUT(type, member, at, size_of_member)                                                                    \
    static_assert(offsetof(type, member) == (at) && sizeof(((type *)0)->member) == (size_of_member), #type "." #member)

static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8 && sizeof(int) == 4, "LP64");

static_assert(sizeof(struct transfer_request) == 40 && _Alignof(struct transfer_request) == 8, "transfer_request");
TE_LAYOUT(struct transfer_request, opcode, 0, 4);
TE_LAYOUT(struct transfer_request, source, 8, 8);
TE_LAYOUT(struct transfer_request, target_id, 16, 4);
TE_LAYOUT(struct transfer_request, target_offset, 24, 8);
TE_LAYOUT(struct transfer_request, length, 32, 8);

static_assert(sizeof(struct notify_msg) == 16, "notify_msg");
TE_LAYOUT(struct notify_msg, name, 0, 8);
TE_LAYOUT(struct notify_msg, msg, 8, 8);

static_assert(sizeof(struct transfer_status) == 16, "transfer_status");
TE_LAYOUT(struct transfer_status, status, 0, 4);
TE_LAYOUT(struct transfer_status, transferred_bytes, 8, 8);

static_assert(sizeof(struct buffer_entry) == 16, "buffer_entry");
TE_LAYOUT(struct buffer_entry, addr, 0, 8);
TE_LAYOUT(struct buffer_entry, length, 8, 8);

static_assert(sizeof(struct nic_load_stat) == 80, "nic_load_stat");
TE_LAYOUT(struct nic_load_stat, device_name, 0, 64);
TE_LAYOUT(struct nic_load_stat, inflight_bytes, 64, 8);
TE_LAYOUT(struct nic_load_stat, ewma_bandwidth_bps, 72, 8);

static_assert(sizeof(struct segment_desc) == 48, "segment_desc");
TE_LAYOUT(struct segment_desc, type, 0, 4);
TE_LAYOUT(struct segment_desc, desc_, 8, 40);
TE_LAYOUT(struct segment_desc, desc_.rdma.addr, 8, 8);
TE_LAYOUT(struct segment_desc, desc_.rdma.size, 16, 8);
TE_LAYOUT(struct segment_desc, desc_.rdma.location, 24, 8);
TE_LAYOUT(struct segment_desc, desc_.nvmeof.file_path, 8, 8);
TE_LAYOUT(struct segment_desc, desc_.nvmeof.port, 40, 8);

static_assert(sizeof(struct te_setting) == 1088, "te_setting");
TE_LAYOUT(struct te_setting, struct_size, 0, 8);
TE_LAYOUT(struct te_setting, name, 8, 8);
TE_LAYOUT(struct te_setting, alias, 16, 8);
TE_LAYOUT(struct te_setting, group, 24, 8);
TE_LAYOUT(struct te_setting, accepted, 32, 8);
TE_LAYOUT(struct te_setting, default_value, 40, 8);
TE_LAYOUT(struct te_setting, help, 48, 8);
TE_LAYOUT(struct te_setting, has_effect, 56, 4);
TE_LAYOUT(struct te_setting, source, 60, 4);
TE_LAYOUT(struct te_setting, value, 64, 1024);

static_assert(LOCAL_SEGMENT == 0 && INVALID_BATCH + 1 == 0 && sizeof(INVALID_BATCH) == 8, "special ids");
static_assert((segment_id_t)-1 < 0 && sizeof(segment_id_t) == 4, "segment ids are signed");
static_assert((segment_handle_t)-1 < 0 && sizeof(segment_handle_t) == 4, "segment handles are signed");
static_assert(sizeof(batch_id_t) == 8 && (batch_id_t)-1 > 0, "batch ids are unsigned");
static_assert(OPCODE_READ == 0 && OPCODE_WRITE == 1, "opcodes");
static_assert(STATUS_WAITING == 0 && STATUS_PENDING == 1 && STATUS_INVALID == 2 && STATUS_CANCELED == 3 &&
                  STATUS_COMPLETED == 4 && STATUS_TIMEOUT == 5 && STATUS_FAILED == 6,
              "states");

/* The public numbers are the internal ones. */
static_assert(ERR_INVALID_ARGUMENT == TE_INVALID_ARGUMENT && ERR_TOO_MANY_REQUESTS == TE_TOO_MANY_REQUESTS &&
                  ERR_ADDRESS_NOT_REGISTERED == TE_ADDRESS_NOT_REGISTERED && ERR_BATCH_BUSY == TE_BATCH_BUSY &&
                  ERR_DEVICE_NOT_FOUND == TE_DEVICE_NOT_FOUND && ERR_ADDRESS_OVERLAPPED == TE_ADDRESS_OVERLAPPED &&
                  ERR_DNS == TE_DNS && ERR_SOCKET == TE_SOCKET && ERR_MALFORMED_JSON == TE_MALFORMED_JSON &&
                  ERR_REJECT_HANDSHAKE == TE_REJECT_HANDSHAKE && ERR_METADATA == TE_METADATA &&
                  ERR_ENDPOINT == TE_ENDPOINT && ERR_CONTEXT == TE_CONTEXT && ERR_NUMA == TE_NUMA &&
                  ERR_CLOCK == TE_CLOCK && ERR_MEMORY == TE_MEMORY && ERR_NOT_IMPLEMENTED == TE_NOT_IMPLEMENTED &&
                  TE_ERR_NOT_SUPPORTED_TRANSPORT == TE_NOT_SUPPORTED_TRANSPORT && TE_ERR_TIMED_OUT == TE_TIMED_OUT,
              "errors");
static_assert(TE_INVALID_ARGUMENT == -1 && TE_ADDRESS_OVERLAPPED == -7 && TE_DNS == -101 &&
                  TE_REJECT_HANDSHAKE == -104 && TE_METADATA == -200 && TE_CONTEXT == -202 && TE_NUMA == -300 &&
                  TE_NOT_IMPLEMENTED == -303,
              "errors as Mooncake numbers them");
static_assert((int)STATUS_WAITING == (int)TE_TASK_WAITING && (int)STATUS_CANCELED == (int)TE_TASK_CANCELED &&
                  (int)STATUS_COMPLETED == (int)TE_TASK_COMPLETED && (int)STATUS_TIMEOUT == (int)TE_TASK_TIMEOUT &&
                  (int)STATUS_FAILED == (int)TE_TASK_FAILED,
              "states");
static_assert((int)OPCODE_READ == (int)TE_OPCODE_READ && (int)OPCODE_WRITE == (int)TE_OPCODE_WRITE, "opcodes");
static_assert((int)TE_PRIORITY_HIGH - TE_PRIORITY_HIGH == (int)TE_TASK_PRIORITY_HIGH &&
                  (int)TE_PRIORITY_MEDIUM - TE_PRIORITY_HIGH == (int)TE_TASK_PRIORITY_MEDIUM &&
                  (int)TE_PRIORITY_LOW - TE_PRIORITY_HIGH == (int)TE_TASK_PRIORITY_LOW,
              "priorities");
static_assert((int)TE_LOG_LEVEL_TRACE == (int)TE_LOG_TRACE && (int)TE_LOG_LEVEL_INFO == (int)TE_LOG_INFO &&
                  (int)TE_LOG_LEVEL_WARNING == (int)TE_LOG_WARNING && (int)TE_LOG_LEVEL_ERROR == (int)TE_LOG_ERROR,
              "log levels");
static_assert((int)TE_SETTING_FROM_DEFAULT == (int)TE_FROM_DEFAULT && (int)TE_SETTING_FROM_FILE == (int)TE_FROM_FILE &&
                  (int)TE_SETTING_FROM_ENVIRONMENT == (int)TE_FROM_ENVIRONMENT,
              "sources of settings");
