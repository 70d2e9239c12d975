/*
 * A fuzz target is one function in NAME_fuzz.c that must hold for any bytes. It is built twice: as fuzz_NAME with
 * libFuzzer (preset "fuzz"), and in every preset as replay_NAME, a test that gives it the corpus in corpus/NAME.
 */
#ifndef TE_TESTS_FUZZ_FUZZ_TARGET_H
#define TE_TESTS_FUZZ_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike assert() it is there in every build. */
#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
