/*
 * Where the answers come from: the daemon, by HTTP over its Unix socket, or, for questions that
 * only read, the spool itself while no daemon runs.
 *
 * The first question that finds no daemon opens the spool, says so on standard error, and all later
 * ones go there. A daemon that is there but refuses us (permissions) is an error: the spool would
 * refuse us as well, and what it says is not all that there is to know.
 */
#ifndef CLI_ASK_H
#define CLI_ASK_H

#include <stdbool.h>

#include <jansson.h>

#include "conf.h"
#include "slice.h"

struct ask;

/* `conf` is borrowed until ask_free. Asks nothing yet. */
struct ask *ask_new(const struct conf *conf);
void ask_free(struct ask *a);

/* Statuses besides HTTP's: no daemon listens on the socket, or this user may not connect to it. */
#define ASK_OK        200u
#define ASK_NO_DAEMON 0u
#define ASK_DENIED    1u

/* Ask a question (question.h). *ret_answer is a new object, {"error": "..."} unless the status is
 * ASK_OK. */
unsigned ask_json(struct ask *a, const json_t *question, json_t **ret_answer);

/* Takes pieces of a message's content; false ends it. */
typedef bool ask_sink(void *arg, struct slice piece);

/* The content of message `id`, piece by piece. Like ask_json, but that *ret_answer is set only when
 * the status is not ASK_OK. */
unsigned ask_content(struct ask *a, const char *id, ask_sink *sink, void *arg, json_t **ret_answer);

/* The same for an answer that goes on and on, of the daemon alone. */
unsigned ask_stream(struct ask *a, const json_t *question, ask_sink *sink, void *arg,
                    json_t **ret_answer);

/* Do answers come from the spool, without a daemon? */
bool ask_is_offline(const struct ask *a);

/* Print "sluice: ERROR" from an answer, release it, and say which exit status (sysexits)
 * that is. */
int ask_failed(unsigned status, json_t *answer);

#endif
