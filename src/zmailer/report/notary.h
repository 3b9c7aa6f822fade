/*
 * Notary data of ZMailer: the data for one recipient's report, six fields separated by the byte 1.
 *
 *     address  action  status  diagnostic  wtthost [taid]
 *     u1@x     failed  5.1.1 (no such user)  smtp; 550 (unknown)  dns; mx.x (192.0.2.1)  smtp[4711]
 *
 * Agents print them with each result and write them into `d` lines. Some programs write fewer or
 * more fields: a missing field is empty, and surplus fields are part of the last one.
 */
#ifndef ZMAILER_NOTARY_H
#define ZMAILER_NOTARY_H

#include "buf.h"
#include "slice.h"

/* Address that stands for the user word of the recipient line. */
#define NOTARY_ADDRESS_OF_LINE "\003"

struct notary {
    struct slice address;
    struct slice action;     /* delivered, relayed, expanded, delayed, failed */
    struct slice status;     /* enhanced status, with an optional comment after it */
    struct slice diagnostic; /* "smtp; 550 (no such user)" */
    struct slice host;       /* "wtthost": host that sent the diagnostic, with an optional type
                              * before it */
    struct slice agent;      /* "taid", "smtp[4711]"; may be empty */
};

/* Parses the fields, which point into `text`. */
void notary_parse(struct slice text, struct notary *ret_notary);

/* Appends the fields. Bytes that would end a field or the line become blanks. */
void notary_put(struct buf *out, const struct notary *n);

/* Returns the enhanced status without its comment; empty if there is none. */
struct slice notary_status(const struct notary *n);

/* Returns the host without its type and without the words after it; empty if there is none. */
struct slice notary_host(const struct notary *n);

#endif
