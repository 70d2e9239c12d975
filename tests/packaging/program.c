/* The smallest use of the library, built against the installed tree in every way that users build. */
#include <stdio.h>

#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

int main(void)
{
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    char name[64];

    if (!engine || getLocalIpAndPort(engine, name, sizeof(name)) != 0) {
        fprintf(stderr, "%s\n", te_last_error());
        return 1;
    }
    printf("%s %s %d\n", te_version(), name, openSegment(engine, name));
    destroyTransferEngine(engine);
    return 0;
}
