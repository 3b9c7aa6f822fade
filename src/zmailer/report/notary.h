/*
 * The notary data of ZMailer: what one recipient's report needs to know, six fields separated by
 * the byte 1.
 *
 *     address  action  status  diagnostic  wtthost [taid]
 *     u1@x     failed  5.1.1 (no such user)  smtp; 550 (unknown)  dns; mx.x (192.0.2.1)  smtp[4711]
 *
 * Agents print them with each result and write them into `d` lines. Those in circulation have fewer
 * fields than that, or more; what is missing is empty, what is too much belongs to the last field.
 */
#ifndef ZMAILER_NOTARY_H
#define ZMAILER_NOTARY_H

#include "buf.h"
#include "slice.h"

/* An address that stands for the user word of the recipient line. */
#define NOTARY_ADDRESS_OF_LINE "\003"

struct notary {
    struct slice address;
    struct slice action;     /* delivered, relayed, expanded, delayed, failed */
    struct slice status;     /* an enhanced status, perhaps with a comment behind it */
    struct slice diagnostic; /* "smtp; 550 (no such user)" */
    struct slice host;       /* "wtthost": who said so, with a type in front of it or without */
    struct slice agent;      /* "taid", "smtp[4711]"; may be empty */
};

/* The fields, pointing into `text`. */
void notary_parse(struct slice text, struct notary *ret_notary);

/* Append them. Bytes that would end a field or the line become blanks. */
void notary_put(struct buf *out, const struct notary *n);

/* The enhanced status alone, without its comment; empty when there is none. */
struct slice notary_status(const struct notary *n);

/* The host alone, without its type and what stands behind it; empty when there is none. */
struct slice notary_host(const struct notary *n);

#endif
