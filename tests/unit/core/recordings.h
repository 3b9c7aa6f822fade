/*
 * Recordings of a real Postfix, one JSON object a line, that have to come out equal.
 */
#ifndef TEST_RECORDINGS_H
#define TEST_RECORDINGS_H

#include <stddef.h>

#include "recording.h"

/* Play each object of the file with `replay`; fails the test when one differs, with what it said,
 * or when the file holds fewer than `least`. */
void recordings_replay(const char *path, size_t least, recording_replay *replay);

#endif
