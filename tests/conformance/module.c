/* An extension module that brings the engine along: built twice, once with the shared and once with the static library.
 */
#include <stdint.h>

#include "transfer_engine_c.h"

__attribute__((visibility("default"))) int module_run(void);

int module_run(void)
{
    static uint8_t memory[4096];
    int result = -1;
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    if (!engine)
        return result;
    if (registerLocalMemory(engine, memory, sizeof(memory), "*", 1) != 0)
        goto destroy;
    batch_id_t batch = allocateBatchID(engine, 1);
    struct transfer_request request = {.opcode = OPCODE_READ,
                                       .source = memory + sizeof(memory) / 2,
                                       .target_id = LOCAL_SEGMENT,
                                       .target_offset = (uintptr_t)memory,
                                       .length = sizeof(memory) / 2};
    struct transfer_status status = {.status = STATUS_WAITING};
    if (submitTransfer(engine, batch, &request, 1) != 0)
        goto destroy;
    while (status.status == STATUS_WAITING)
        getTransferStatus(engine, batch, 0, &status);
    if (status.status == STATUS_COMPLETED)
        result = freeBatchID(engine, batch);
destroy:
    destroyTransferEngine(engine);
    return result;
}
