/*
 * Endpoints: the calls of the HTTP API and their parameters.
 *
 * The table in endpoint.c is their only definition in the program. openapi.json, next to it,
 * describes the same calls for people and programs; a test (unit/control/test_endpoint) compares
 * both.
 */
#ifndef CONTROL_ENDPOINT_H
#define CONTROL_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "buf.h"
#include "slice.h"

/* Source of the answer. */
enum endpoint_kind {
    ENDPOINT_QUESTION, /* queue process, whose answer is passed on */
    ENDPOINT_STATUS,   /* queue process; the control process adds its own values */
    ENDPOINT_CLUSTER,  /* queue process; a recent answer is used again */
    ENDPOINT_LIST,     /* queue process, page by page */
    ENDPOINT_CONTENT,  /* queue process, with the bytes of a message */
    ENDPOINT_METRICS,
    ENDPOINT_SERIES,
    ENDPOINT_EVENTS,
    ENDPOINT_TRACE,
    ENDPOINT_WHATIF,      /* process whatif */
    ENDPOINT_DESCRIPTION, /* openapi.json */
    ENDPOINT_RELOAD,
    ENDPOINT_STOP,
    ENDPOINT_CLOCK
};

struct endpoint {
    const char *method; /* "GET", which includes HEAD, or "POST" */
    const char *path;   /* "{..}" in it stands for any one part */
    enum endpoint_kind kind;
    const char *op;      /* operation of the query to the queue process, or NULL */
    unsigned parameters; /* bit set of parameter numbers (endpoint_parameter) */
    bool operates;       /* needs the right to operate, otherwise the right to read */
    bool has_body;       /* takes a JSON object; otherwise no body, or an empty object */
};

/* Returns the endpoint at `index`, or NULL after the last one. */
const struct endpoint *endpoint_at(size_t index);

/* Returns the name of the parameter with this number, or NULL after the last one. */
const char *endpoint_parameter(size_t number);

/* Returns the endpoint of a request. *ret_part is the part of `path` in the place of "{..}", with
 * its %XX (ptr NULL: none). Returns NULL if there is none; *ret_allowed is then a field "Allow:
 * ..\r\n" with the methods of the path, or NULL if the path does not exist. */
const struct endpoint *endpoint_find(struct slice method, struct slice path, struct slice *ret_part,
                                     const char **ret_allowed);

/* Reads a query string, "name=value&..", into a query for the queue process; parameters of a filter
 * go to its member "filter". Returns false with the expected form in `error`. */
bool endpoint_read_query(const struct endpoint *endpoint, struct slice query, json_t *question,
                         struct buf *error);

/* Decodes a part of a path with its %XX to a JSON text; the text is empty if that fails. */
json_t *endpoint_decode(struct slice part);

/* Returns openapi.json, which is part of the program. */
struct slice endpoint_description(void);

#endif
