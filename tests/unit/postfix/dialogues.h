/*
 * Dialogues of a real Postfix with its services, recorded and decoded (data/captures): what was
 * written and read on a socket, byte by byte again.
 *
 *     0.037 write fd 128 [private/smtp#8] 774 bytes
 *                > flags = 3
 *                > <end of list: lone 00>
 */
#ifndef TESTS_DIALOGUES_H
#define TESTS_DIALOGUES_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

struct dialogue_message {
    const char *file;    /* of the recording */
    unsigned line;       /* in it */
    char service[64];    /* "private/smtp" */
    bool written;        /* by the queue manager */
    size_t recorded_len; /* bytes that were counted */
    struct slice bytes;  /* made again from the lines */
};

/* Call `each` for every message on a socket of a service, in all recordings. */
void dialogues_read(void (*each)(void *arg, const struct dialogue_message *m), void *arg);

#endif
