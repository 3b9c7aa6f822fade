/*
 * Postfix's attribute protocol, without I/O: what its daemons say to each other over Unix sockets.
 *
 *     list = *( name NUL value NUL ) NUL
 *
 * Receivers are strict: exactly the names that they expect, in that order. A name may stand twice
 * in a list; its position says which is meant. Numbers are unsigned decimal text; a negative int
 * travels as its 32 bits (-1 is 4294967295).
 *
 * Reading has two steps. attributes_scan looks for the end of the first list in whatever bytes have
 * arrived; the others then take the attributes out of the complete list, one by one.
 *
 * Limits: a list of ATTRIBUTES_LIST_MAX bytes, which a peer that never ends one runs into.
 */
#ifndef POSTFIX_ATTRIBUTES_H
#define POSTFIX_ATTRIBUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Bytes. Status texts come from remote sites; Postfix cuts their lines at some thousand bytes. */
#define ATTRIBUTES_LIST_MAX ((size_t)1 << 17)

/* ---- writing: appended to *out, whose error is sticky ---- */

/* A value with a NUL in it can't be sent and is cut there. */
void attributes_put(struct buf *out, const char *name, struct slice value);
void attributes_put_int(struct buf *out, const char *name, int32_t value);
void attributes_put_size(struct buf *out, const char *name, uint64_t value);
/* The bytes in base64. */
void attributes_put_data(struct buf *out, const char *name, const void *bytes, size_t len);
/* The end of the list. */
void attributes_end(struct buf *out);

/* ---- reading ---- */

enum attributes_event {
    ATTRIBUTES_MORE, /* not complete yet */
    ATTRIBUTES_LIST, /* complete: its first *ret_len bytes, with the NUL that ends it */
    ATTRIBUTES_BAD,  /* longer than ATTRIBUTES_LIST_MAX: no list can come any more */
};

/* Where the search stands. All zero at the start, and after each list. */
struct attributes_scan {
    size_t at; /* bytes that were looked at */
    bool in_value;
    bool in_name;
};

/* Look on in `in`, which begins as in the call before and may have grown. After ATTRIBUTES_LIST and
 * ATTRIBUTES_BAD the scan stands at the start again. */
enum attributes_event attributes_scan(struct attributes_scan *scan, struct slice in,
                                      size_t *ret_len);

/* Take the next attribute out of a complete list, which has to have this name. False: it has not,
 * or the list is at its end; *list is then as it was. The value is borrowed from the list. */
bool attributes_take(struct slice *list, const char *name, struct slice *ret_value);
/* The same of a number of 32 bits, as attributes_put_int writes it; digits only. */
bool attributes_take_int(struct slice *list, const char *name, int32_t *ret_value);
/* Is nothing left of the list but its end? */
bool attributes_at_end(struct slice list);

#endif
