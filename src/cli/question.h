/*
 * A question as an HTTP request (docs/api.md).
 *
 * A question is a JSON object as the queue process takes it: "op", and what the operation needs
 * ("id", "filter", "max", "after", ...). Here it becomes a path with a query string, or a path and
 * a body.
 */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include <stdbool.h>

#include <jansson.h>

#include "buf.h"

#define QUESTION_URL_MAX 65536 /* bytes */

struct request {
    bool post;
    struct buf url; /* from "/v1/" on */
    char *body;     /* owned, free(3); NULL: none */
};

/* The operation must be a known one. *ret_request is to be released. */
void request_init(struct request *ret_request, const json_t *question);
void request_fini(struct request *r);

#endif
