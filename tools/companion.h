/* A `te bench target` that this process started: it runs on this host and takes commands through a pipe. */
#ifndef TE_TOOLS_COMPANION_H
#define TE_TOOLS_COMPANION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>
#include <glib.h>
#include <json-c/json.h>

#include "node.h"

struct te_companion {
    pid_t process;
    FILE *commands, *answers;
    char name[TE_NODE_NAME_MAX]; /* its segment name */
};

/* Complains and returns false if it does not come up. */
bool te_companion_start(struct te_companion *companion, const struct te_node_options *options, size_t region);

/* Sends a command (see target.c) and returns the answer, to be released with json_object_put(). NULL, after a
 * complaint, if the process has gone or does not know the command. */
struct json_object *te_companion_ask(struct te_companion *companion, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* CPU seconds it has used so far, or NAN. */
double te_companion_cpu_seconds(void *companion);

/* Ends the process and waits for it; returns whether it ended well. */
bool te_companion_stop(struct te_companion *companion);

#endif
