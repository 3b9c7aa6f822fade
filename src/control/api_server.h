/*
 * Server of the HTTP API: connections, TLS, tokens, and answers that wait until their clients read
 * them.
 *
 *     HANDSHAKE --> HEAD --> BODY --> WORK --> ANSWER --> HEAD
 *                      \        \                  \
 *                       +--------+------------------> CLOSING --> freed
 *
 *   HANDSHAKE  TLS handshake, on a listener that begins with it
 *   HEAD       waits for a request or the rest of its head
 *   BODY       reads the body
 *   WORK       the owner has the call; pieces of an answer are sent in this phase, too
 *   ANSWER     sends the rest of a complete answer
 *   CLOSING    sends the rest of the last answer on this connection
 *
 * Each connection has a request engine (inject/http.h), a stream, and one call at a time.
 * Connection and call are one object: struct api_call.
 *
 * On a Unix socket the permissions of the socket decide who may call, and a call has all rights. On
 * TCP a call has the rights of its token (api_tokens, token_list.h). A call without a token has no
 * rights, and its body is not read. An unknown token is refused at once.
 *
 * Memory is bounded, whatever clients do:
 *
 *   - At most API_CLIENTS_MAX connections of either kind (Unix, TCP). At most API_STRANGERS_MAX
 *     of them have shown no token; the oldest of these is closed for a new one.
 *   - A body has at most API_BODY_MAX bytes.
 *   - If clients have not read API_UNREAD_MAX bytes, only small answers are given (api_has_room).
 *   - A client that reads nothing for API_IDLE_S is disconnected.
 *   - If tokens have all other places, a token without any, or with at least two fewer than
 *     another, gets one more: the token with the most connections loses its oldest.
 *
 * Each call except GET and HEAD is logged when it is answered, and each GET that api_audit selects:
 * "audit: NAME from ADDRESS: METHOD PATH BODY = STATUS ANSWER". Long texts are cut.
 */
#ifndef CONTROL_API_SERVER_H
#define CONTROL_API_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

struct role;
struct api_server;
struct api_call;

#define API_CLIENTS_MAX   1500u
#define API_STRANGERS_MAX 100u
#define API_BODY_MAX      (1u << 20)
#define API_UNREAD_MAX    (64u << 20)
#define API_IDLE_S        60

/* Handles a complete call: answers it, now or later. */
typedef void api_called(void *arg, struct api_call *call);

struct api_server *api_server_new(struct role *role, api_called *called, void *arg);

/* Frees the server. Calls that were not answered end as if their clients had left. `server` may be
 * NULL. */
void api_server_free(struct api_server *server);

/* Adds a listening socket (taken) for "unix:PATH", "http://..." or "https://...". */
void api_server_listen(struct api_server *server, struct slice url, int fd);

/* Applies a new configuration: tokens, certificate, listeners. */
void api_server_reload(struct api_server *server);

/* ---- one call; slices are valid until it is answered ----------------------------------------- */

struct slice api_method(const struct api_call *call);
struct slice api_path(const struct api_call *call);  /* path as received, with its %XX */
struct slice api_query(const struct api_call *call); /* after the `?`; may be empty */
struct slice api_body(const struct api_call *call);
struct slice api_field(const struct api_call *call, struct slice name); /* ptr NULL: none */
int api_socket(const struct api_call *call);
bool api_is_local(const struct api_call *call); /* on a Unix socket */

/* Returns the rights as a bit set (token_list.h). */
unsigned api_rights(const struct api_call *call);
/* Returns the name of the call's token, or "uid N"; empty if it has none. */
const char *api_caller(const struct api_call *call);

/* May an answer of this size be kept until the client reads it? */
bool api_has_room(const struct api_call *call, size_t bytes);

/* Selects this call, which only reads, for the audit log: its answer shows sensitive data. */
void api_audit(struct api_call *call);

/* ---- the answer; after its end, the owner must not use `call` -------------------------------- */

/* Adds a field to the head of the answer, "NAME: VALUE\r\n". Called before the answer begins. */
void api_answer_field(struct api_call *call, const char *field);

/* Sends the whole answer. */
void api_answer(struct api_call *call, unsigned status, const char *type, struct slice body);

/* Sends {"error": text}. */
void api_answer_error(struct api_call *call, unsigned status, const char *text);

/* Begins an answer in pieces; api_answer_add sends a piece, api_answer_end ends the answer.
 * api_answer_cut closes the connection instead, so that the client detects the missing rest. */
void api_answer_begin(struct api_call *call, unsigned status, const char *type);
void api_answer_add(struct api_call *call, struct slice piece);
void api_answer_end(struct api_call *call);
void api_answer_cut(struct api_call *call);

/* Returns the number of bytes that the client has not read yet. */
size_t api_unread(const struct api_call *call);

/* Called once, from the event loop, when the client has read all that was sent. */
typedef void api_ready(void *arg, struct api_call *call);
void api_answer_wait(struct api_call *call, api_ready *ready, void *arg);

/* Called when the client leaves before the answer is complete; the owner must not use `call` then.
 * api_on_gone sets this function; NULL: none. */
typedef void api_gone(void *arg);
void api_on_gone(struct api_call *call, api_gone *gone, void *arg);

#endif
