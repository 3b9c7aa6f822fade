/*
 * Postfix's attribute protocol, without I/O: the form of messages between its daemons over Unix
 * sockets.
 *
 *     list = *( name NUL value NUL ) NUL
 *
 * Receivers are strict: they expect certain names in a certain order. A name may occur twice in a
 * list; its position distinguishes the two. Numbers are unsigned decimal text; a negative int is
 * sent as its 32 bits (-1 is 4294967295).
 *
 * Reading has two steps. attributes_scan finds the end of the first list in the bytes that have
 * arrived; the other functions then remove the attributes from the complete list, one by one.
 *
 * A list has at most ATTRIBUTES_LIST_MAX bytes, so a peer that never ends a list is detected.
 */
#ifndef POSTFIX_ATTRIBUTES_H
#define POSTFIX_ATTRIBUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Limit in bytes. Status texts are from remote sites; Postfix cuts their lines at some thousand
 * bytes. */
#define ATTRIBUTES_LIST_MAX ((size_t)1 << 17)

/* ---- writing: appended to *out, whose error is sticky ---- */

/* Appends an attribute; the next two append numbers. A value can't contain a NUL and is cut
 * there. */
void attributes_put(struct buf *out, const char *name, struct slice value);
void attributes_put_int(struct buf *out, const char *name, int32_t value);
void attributes_put_size(struct buf *out, const char *name, uint64_t value);
/* Appends an attribute whose value is the bytes in base64. */
void attributes_put_data(struct buf *out, const char *name, const void *bytes, size_t len);
/* Appends the end of the list. */
void attributes_end(struct buf *out);

/* ---- reading ---- */

enum attributes_event {
    ATTRIBUTES_MORE, /* not complete yet */
    ATTRIBUTES_LIST, /* complete: its first *ret_len bytes, including the NUL that ends it */
    ATTRIBUTES_BAD,  /* longer than ATTRIBUTES_LIST_MAX: no list can follow */
};

/* Position of the scan. All zero at the start, and after each list. */
struct attributes_scan {
    size_t at; /* number of bytes that were scanned */
    bool in_value;
    bool in_name;
};

/* Continues a scan of `in`, which begins as in the previous call and may have grown. After
 * ATTRIBUTES_LIST and ATTRIBUTES_BAD the scan is at the start again. */
enum attributes_event attributes_scan(struct attributes_scan *scan, struct slice in,
                                      size_t *ret_len);

/* Removes the first attribute, which must have this name, from a complete list. Returns false and
 * leaves *list unchanged if it has another name, or the list is at its end. The value is borrowed
 * from the list. */
bool attributes_take(struct slice *list, const char *name, struct slice *ret_value);
/* Removes an attribute that is a number of 32 bits, as attributes_put_int writes it; digits
 * only. */
bool attributes_take_int(struct slice *list, const char *name, int32_t *ret_value);
/* Has the list no attribute left? */
bool attributes_at_end(struct slice list);

#endif
