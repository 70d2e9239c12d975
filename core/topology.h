/*
 * Which network devices are close to which memory (classic specification 6.1): for each location the preferred and the
 * other available ones. Read from a caller or a file; the machine itself is not looked at, as TCP needs no device.
 * Immutable once made.
 */
#ifndef TE_CORE_TOPOLOGY_H
#define TE_CORE_TOPOLOGY_H

#include <stddef.h>

#include <glib.h>

#include "core/status.h"

struct te_topology;

struct te_topology *te_topology_new(void);
void te_topology_free(struct te_topology *topology);

/* From the text of a matrix: an object of location to two arrays of device names, or null. TE_MALFORMED_JSON. */
te_status te_topology_parse(const char *text, size_t length, struct te_topology **topology);
/* From a file of at most 16 MiB. TE_METADATA: it cannot be read or is empty. */
te_status te_topology_read(const char *path, struct te_topology **topology);

/* What showLinks prints (classic specification 1.7), as long as no transport uses devices: text for people or JSON. */
void te_topology_show(const struct te_topology *topology, GString *text);
void te_topology_show_json(const struct te_topology *topology, GString *text);

#endif
