/*
 * Endpoints: which calls the HTTP API has, and which parameters each of them takes.
 *
 * The table in endpoint.c is the only place in the program that says so. openapi.json, beside it,
 * describes the same calls to people and programs; a test (unit/control/test_endpoint) compares the
 * two, both ways.
 */
#ifndef CONTROL_ENDPOINT_H
#define CONTROL_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "buf.h"
#include "slice.h"

/* What answers. */
enum endpoint_kind {
    ENDPOINT_QUESTION, /* the queue process; its answer is the answer */
    ENDPOINT_STATUS,   /* likewise, and the control process adds what it knows itself */
    ENDPOINT_CLUSTER,  /* likewise, what it has said a moment ago */
    ENDPOINT_LIST,     /* the queue process, page by page */
    ENDPOINT_CONTENT,  /* the queue process, with the bytes of a message */
    ENDPOINT_METRICS,
    ENDPOINT_SERIES,
    ENDPOINT_EVENTS,
    ENDPOINT_TRACE,
    ENDPOINT_WHATIF,      /* the process whatif */
    ENDPOINT_DESCRIPTION, /* openapi.json */
    ENDPOINT_RELOAD,
    ENDPOINT_STOP,
    ENDPOINT_CLOCK
};

struct endpoint {
    const char *method; /* "GET", which stands for HEAD, too, or "POST" */
    const char *path;   /* "{..}" in it is one part, any */
    enum endpoint_kind kind;
    const char *op;      /* of the question to the queue process, or NULL */
    unsigned parameters; /* bits: numbers of endpoint_parameter */
    bool steers;         /* it needs the right "steer", else "look" */
    bool has_body;       /* an object of JSON; else none, or an empty one */
};

/* The endpoint at `index`, NULL behind the last one. */
const struct endpoint *endpoint_at(size_t index);

/* The name of the parameter of this number, NULL behind the last one. */
const char *endpoint_parameter(size_t number);

/* The endpoint of a request; *ret_part is the part of `path` that stands for "{..}", with its %XX
 * (ptr NULL: there is none). NULL: there is none, and *ret_allowed says which methods the path has:
 * a field "Allow: ..\r\n", or NULL when there is no such path. */
const struct endpoint *endpoint_find(struct slice method, struct slice path, struct slice *ret_part,
                                     const char **ret_allowed);

/* Read a query string, "name=value&..", into a question: a filter's into its member "filter".
 * False: `error` has what was expected. */
bool endpoint_read_query(const struct endpoint *endpoint, struct slice query, json_t *question,
                         struct buf *error);

/* A part of a path, with its %XX, as a text; empty when it is none. */
json_t *endpoint_decode(struct slice part);

/* openapi.json, which is part of the program. */
struct slice endpoint_description(void);

#endif
