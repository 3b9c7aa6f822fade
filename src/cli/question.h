/*
 * Converts a query to an HTTP request (docs/api.md).
 *
 * A query is a JSON object as the queue process accepts it: "op" and the parameters of the
 * operation ("id", "filter", "max", "after", ...). The request is a path with a query string, or a
 * path with a body.
 */
#ifndef CLI_QUESTION_H
#define CLI_QUESTION_H

#include <stdbool.h>

#include <jansson.h>

#include "buf.h"

#define QUESTION_URL_MAX 65536 /* longest URL in bytes */

struct request {
    bool post;
    struct buf url; /* from "/v1/" on */
    char *body;     /* owned, freed with free(3); NULL: none */
};

/* Makes the request, which the caller releases. The operation must be known. */
void request_init(struct request *ret_request, const json_t *question);
void request_fini(struct request *r);

#endif
