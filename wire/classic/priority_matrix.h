/* The topology of a peer as the descriptor carries it (classic specification 6.1). */
#ifndef TE_WIRE_CLASSIC_PRIORITY_MATRIX_H
#define TE_WIRE_CLASSIC_PRIORITY_MATRIX_H

#include "core/status.h"

struct json_object;

/* The matrix as a writer would give it: compact, locations in byte order, without what follows the first badly shaped
 * entry in that order. *text is for g_free(), or NULL when the matrix is NULL or nothing of it is left.
 * TE_MALFORMED_JSON: no object, or a name that is an array or object. TE_MEMORY. */
te_status te_priority_matrix_normalize(struct json_object *matrix, char **text);

#endif
