/*
 * The segment descriptor as JSON (classic specification 2.5), in the form of the released wheel: rdma_server_name
 * always present, tcp_data_host unless empty. The older form without them is understood.
 */
#ifndef TE_WIRE_CLASSIC_DESCRIPTOR_H
#define TE_WIRE_CLASSIC_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <glib.h>

#include "core/segment_descriptor.h"
#include "core/status.h"

enum { TE_DESCRIPTOR_TIME_BYTES = 32 };

/* Local time as "YYYY-MM-DD HH:MM:SS.uuuuuu", with NUL. */
void te_descriptor_format_time(char text[TE_DESCRIPTOR_TIME_BYTES], const struct timespec *real_time);

/* Appends the descriptor, without line feed (te_json_end_line() for all but HTTP stores), to an empty text; the
 * timestamp of the descriptor itself is not used. Takes time linear in the number of buffers. TE_INVALID_ARGUMENT, and
 * text untouched, for a protocol other than tcp, rdma, efa, cxi and barex. */
te_status te_descriptor_write(GString *text, const struct te_segment_descriptor *descriptor, const char *timestamp);

/* A new descriptor with one reference. TE_MALFORMED_JSON: no JSON, a wrong type, or refused by the table of the
 * specification (unknown protocol, buffer without name, address or length, ...). TE_MEMORY.
 *
 * All protocols of the table are readable, but of those other than the five above only what the structure has room for:
 * name (nvmeof: file_path), address (cxl: offset; nvmeof: 0) and length of the buffers, and name, lid and gid (ub: eid)
 * of the devices. A port outside 0..65535 reads as 0. Keys are read with 64 bits; local keys without remote keys are
 * dropped: such memory cannot be reached. Of a priority matrix, what precedes its first badly shaped entry is kept, in
 * the form a writer would give it. */
te_status te_descriptor_read(const char *text, size_t length, struct te_segment_descriptor **descriptor);

#endif
