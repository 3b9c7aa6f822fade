/*
 * The server under the HTTP API: connections, TLS, tokens, and answers that wait for their readers.
 *
 *     HANDSHAKE --> HEAD --> BODY --> WORK --> ANSWER --> HEAD
 *                      \        \                  \
 *                       +--------+------------------> CLOSING --> freed
 *
 *   HANDSHAKE  TLS, on a listener that begins with it
 *   HEAD       a request is awaited, or its head is coming in
 *   BODY       its body is coming in
 *   WORK       the owner has the call; an answer in pieces is also sent in this phase
 *   ANSWER     the answer is complete, and going out
 *   CLOSING    likewise, and it is the last on this connection
 *
 * One request engine (inject/http.h) and one stream for each connection. A connection has one call
 * at a time, and the two are one object: struct api_call.
 *
 * On a Unix socket the permissions of the socket say who may call, and a call has all rights. On
 * TCP a call has the rights of its token (api_tokens, token_list.h): none without one, and then no
 * body is read. A token that is not known is refused at once.
 *
 * Memory is bounded, whatever clients do: API_CLIENTS_MAX connections of either kind, of which
 * those that have shown no token are API_STRANGERS_MAX (the oldest of them makes room for the
 * next); a body of API_BODY_MAX; and what clients have not read yet: with API_UNREAD_MAX bytes of
 * it, only small answers are given (api_has_room). A client that takes nothing for API_IDLE_S is
 * cut off.
 *
 * Each call but GET and HEAD, and of these what api_audit names, is logged as "audit: NAME from
 * ADDRESS: METHOD PATH BODY = STATUS ANSWER" when it is answered; long texts are cut.
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

/* A call is complete: answer it, now or later. */
typedef void api_called(void *arg, struct api_call *call);

struct api_server *api_server_new(struct role *role, api_called *called, void *arg);

/* For calls that are not answered it is as if their clients went away. NULL is fine. */
void api_server_free(struct api_server *server);

/* A listening socket (taken), "unix:PATH", "http://..." or "https://...". */
void api_server_listen(struct api_server *server, struct slice url, int fd);

/* The configuration is a new one: tokens, certificate, listeners. */
void api_server_reload(struct api_server *server);

/* ---- one call; slices last until it is answered ---- */

struct slice api_method(const struct api_call *call);
struct slice api_path(const struct api_call *call);  /* as it came, with its %XX */
struct slice api_query(const struct api_call *call); /* behind the `?`, or empty */
struct slice api_body(const struct api_call *call);
struct slice api_field(const struct api_call *call, struct slice name); /* ptr NULL: none */
int api_socket(const struct api_call *call);
bool api_is_local(const struct api_call *call); /* by a Unix socket */

/* A bit set (token_list.h). */
unsigned api_rights(const struct api_call *call);
/* The name of its token, or "uid N". Empty: it has none. */
const char *api_caller(const struct api_call *call);

/* May an answer of this size be kept until it is read? */
bool api_has_room(const struct api_call *call, size_t bytes);

/* Log this call as if it changed something: it shows more than its answer. */
void api_audit(struct api_call *call);

/* ---- the answer. After the call that ends it, `call` is not the owner's any more ---- */

/* A further field of the answer's head, "NAME: VALUE\r\n"; before the answer begins. */
void api_answer_field(struct api_call *call, const char *field);

/* All of the answer. */
void api_answer(struct api_call *call, unsigned status, const char *type, struct slice body);

/* {"error": text} */
void api_answer_error(struct api_call *call, unsigned status, const char *text);

/* An answer in pieces: its head, pieces, its end. api_answer_cut ends the connection instead, so
 * that the client sees that something is missing. */
void api_answer_begin(struct api_call *call, unsigned status, const char *type);
void api_answer_add(struct api_call *call, struct slice piece);
void api_answer_end(struct api_call *call);
void api_answer_cut(struct api_call *call);

/* Bytes that the client has not taken yet. */
size_t api_unread(const struct api_call *call);

/* Be called once, from the loop, when the client has taken all that was given. */
typedef void api_ready(void *arg, struct api_call *call);
void api_answer_wait(struct api_call *call, api_ready *ready, void *arg);

/* Be called when the client goes away before the answer is complete; `call` is no more the owner's
 * then. NULL: do not call. */
typedef void api_gone(void *arg);
void api_on_gone(struct api_call *call, api_gone *gone, void *arg);

#endif
