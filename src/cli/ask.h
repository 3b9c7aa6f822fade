/*
 * Queries of commands: answered by the daemon, over HTTP on its Unix socket, or by the spool for
 * queries that only read, if no daemon runs.
 *
 * The first query that finds no daemon opens the spool and reports that on standard error; all
 * later queries use the spool. A running daemon that refuses the connection (permissions) is an
 * error: the spool would be refused as well, and has only a part of the data.
 */
#ifndef CLI_ASK_H
#define CLI_ASK_H

#include <stdbool.h>

#include <jansson.h>

#include "conf.h"
#include "slice.h"

struct ask;

/* Makes the state of a command's queries. `conf` is borrowed until ask_free. Connects to nothing
 * yet. */
struct ask *ask_new(const struct conf *conf);
void ask_free(struct ask *a);

/* Statuses next to those of HTTP: no daemon listens on the socket, or this user has no permission
 * to connect. */
#define ASK_OK        200u
#define ASK_NO_DAEMON 0u
#define ASK_DENIED    1u

/* Sends a query (question.h) and returns its status. *ret_answer is a new object, {"error": "..."}
 * unless the status is ASK_OK. */
unsigned ask_json(struct ask *a, const json_t *question, json_t **ret_answer);

/* Takes a piece of an answer; returns false to end the answer. */
typedef bool ask_sink(void *arg, struct slice piece);

/* Passes the content of message `id` to `sink`, piece by piece. Returns a status as ask_json, but
 * sets *ret_answer only if the status is not ASK_OK. */
unsigned ask_content(struct ask *a, const char *id, ask_sink *sink, void *arg, json_t **ret_answer);

/* Sends a query to the daemon and passes its endless answer to `sink`. Returns as ask_content. */
unsigned ask_stream(struct ask *a, const json_t *question, ask_sink *sink, void *arg,
                    json_t **ret_answer);

/* Do answers come from the spool, without a daemon? */
bool ask_is_offline(const struct ask *a);

/* Prints "sluice: ERROR" from an answer, releases it, and returns the exit status (sysexits) of the
 * error. */
int ask_failed(unsigned status, json_t *answer);

#endif
