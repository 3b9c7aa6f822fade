/*
 * Recorded dialogues of a real ZMailer 3.0.1, for the tests of the mailq protocols.
 */
#ifndef TEST_CAPTURE_H
#define TEST_CAPTURE_H

#include "buf.h"
#include "slice.h"

/* The bytes of a file among the data; fails the test when it is not there. */
void capture_read(const char *name, struct buf *ret_text);

/* "\t" and "\r" as they are written in the recordings, to bytes. */
void capture_unescape(struct slice text, struct buf *ret_bytes);

#endif
