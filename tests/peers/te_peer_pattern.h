/* Test patterns and checksums. */
#ifndef TE_PEER_PATTERN_H
#define TE_PEER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

/*
 * Fills bytes as one of the fields of command says:
 *   "hex"      these bytes, repeated
 *   "counter"  byte i = (seed + i) mod 251
 *   "random"   the SplitMix64 sequence of the seed, words little-endian
 * Without any of them nothing is changed. False when the hex digits are malformed.
 */
bool pattern_fill(uint8_t *bytes, size_t length, json_object *command);

/* Lower-case hexadecimal digits, for g_free(). */
char *bytes_sha256(const uint8_t *bytes, size_t length);
char *bytes_hex(const uint8_t *bytes, size_t length);

#endif
