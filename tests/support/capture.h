/*
 * Recorded dialogues and files of a real ZMailer 3.0.1, for tests that play them again.
 */
#ifndef TEST_CAPTURE_H
#define TEST_CAPTURE_H

#include "buf.h"
#include "slice.h"

/* The bytes of a file; fails the test when it can't be read. */
void capture_read(const char *path, struct buf *ret_text);

/* A line as the recordings write it: "\t", "\r" and "\xNN" are bytes, "\n" its end. */
void capture_unescape(struct slice text, struct buf *ret_bytes);

#endif
