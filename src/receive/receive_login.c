#include "receive_session_private.h"

#include <stdio.h>

#include "log.h"
#include "mem.h"
#include "name_lines.h"

void receive_login_end(struct receive_session *s)
{
    if (s->login_token != 0 && s->all->auth != NULL) {
        wire_put_number(s->all->auth, WIRE_AUTH_END, s->login_token);
    }
    s->login_token = 0;
}

void receive_login_forget(struct receive_session *s)
{
    if (s->login != NULL) {
        mem_free(s->login->user);
        mem_free(s->login->text);
        mem_free(s->login->class_name);
        mem_free(s->login->senders);
        mem_free(s->login);
    }
}

struct server_reply receive_judge_sender(struct receive_session *s, struct slice sender)
{
    struct buf *text = &s->all->text;

    if (s->login == NULL || name_lines_may_send(slice_string(s->login->senders), sender)) {
        return SERVER_ACCEPT;
    }
    buf_clear(text);
    (void)buf_addf(text, "<%.*s>: Sender address rejected: not owned by user %s",
                   SLICE_ARGS(sender), s->login->user);
    return (struct server_reply){553, "5.7.1", buf_slice(text)};
}

void receive_login_ask(struct receive_session *s, const struct server_auth *auth)
{
    char local[INET6_ADDRSTRLEN];

    s->stage = STAGE_AUTH;
    s->mechanism = auth->mechanism;
    if (auth->first) {
        receive_login_end(s); /* a login that the client abandoned */
        s->logins++;
    }
    if (s->all->auth == NULL || channel_waiting(s->all->auth) > RECEIVE_WAITING_MAX ||
        (!auth->first && s->login_token == 0)) {
        s->login_token = 0;
        if (receive_may_log(s->all, RECEIVE_QUOTA_LOGINS)) {
            log_warning("%s: SASL %s authentication failed: the auth process is not available",
                        s->text, sasl_mechanism_name(s->mechanism));
        }
        server_login_done(s->server, NO_AUTH);
        return;
    }
    if (auth->first) {
        s->login_token = ++s->all->last_token;
    }
    receive_local_address(s, local);
    receive_ask(s, QUESTION_LOGIN, s->login_token);
    wire_put_auth(s->all->auth, &(struct wire_auth){.login = s->login_token,
                                                    .mechanism = (uint32_t)auth->mechanism,
                                                    .first = auth->first,
                                                    .has_message = auth->has_message,
                                                    .message = auth->message,
                                                    .client = slice_string(s->ip),
                                                    .local = slice_string(local)});
}

void receive_login_give_up(struct receive_session *s)
{
    receive_forget_question(s);
    receive_login_end(s);
    server_login_done(s->server, NO_AUTH);
    s->phase = PHASE_TALK;
}

void receive_login_refuse(struct receive_session *s, struct server_reply reply, const char *why)
{
    if (receive_may_log(s->all, RECEIVE_QUOTA_LOGINS)) {
        log_warning("%s: SASL %s authentication failed: %s", s->text,
                    sasl_mechanism_name(s->mechanism), why);
    }
    receive_forget_question(s);
    receive_login_end(s);
    server_login_done(s->server, reply);
    receive_go_on(s);
}

/* Stores the login. The client may relay like one in relay_networks. */
static void accept_login(struct receive_session *s, const struct wire_auth_answer *answer)
{
    struct buf text;

    buf_init(&text, WIRE_HOST_MAX);
    (void)buf_addf(&text, "sasl_method=%s, sasl_username=%.*s", sasl_mechanism_name(s->mechanism),
                   SLICE_ARGS(answer->user)); /* fits */
    s->login = mem_new(sizeof *s->login);
    s->login->user = mem_copy(answer->user.ptr, answer->user.len);
    s->login->text = buf_take(&text);
    s->login->class_name = mem_copy(answer->class_name.ptr, answer->class_name.len);
    s->login->senders = mem_copy(answer->senders.ptr, answer->senders.len);
    s->login->token = ++s->all->last_token;
    s->login->stamp = answer->stamp;
    s->may_relay = true;
    admission_trust(&s->all->admission, &s->place);
    receive_forget_question(s);
    s->login_token = 0;
    stream_keep_secret(s->stream, false); /* a session has only one login */
    server_login_done(s->server, SERVER_ACCEPT);
    receive_go_on(s);
}

void receive_login_check_all(struct receive_sessions *all)
{
    struct receive_session *s;

    LIST_FOREACH(s, &all->list, next)
    {
        if (s->login != NULL && all->auth != NULL) {
            wire_put_auth_check(all->auth,
                                &(struct wire_auth_check){.login = s->login->token,
                                                          .user = slice_string(s->login->user),
                                                          .stamp = s->login->stamp});
        }
    }
}

static bool login_over(struct receive_sessions *all, struct slice body)
{
    struct receive_session *s;
    uint64_t token;

    if (!wire_get_number(body, &token)) {
        return false;
    }
    LIST_FOREACH(s, &all->list, next)
    {
        if (s->login != NULL && s->login->token == token) {
            receive_end_login(s);
            return true;
        }
    }
    return true; /* the session is gone */
}

/* Sets the mechanisms offered to clients, and checks all logins, because the users may have
 * changed. */
static bool take_mechanisms(struct receive_sessions *all, struct slice body)
{
    uint64_t mechanisms;

    if (!wire_get_number(body, &mechanisms) || mechanisms == 0 ||
        (mechanisms & ~(uint64_t)SASL_MECHANISMS) != 0) {
        return false;
    }
    all->mechanisms = (unsigned)mechanisms;
    receive_login_check_all(all);
    return true;
}

bool receive_sessions_auth_frame(struct receive_sessions *all, const struct frame *frame)
{
    struct wire_auth_answer answer;
    struct receive_session *s;
    char why[WIRE_USER_MAX + 64];

    if (frame->type == WIRE_AUTH_MECHANISMS) {
        return take_mechanisms(all, frame->body);
    }
    if (frame->type == WIRE_AUTH_OVER) {
        return login_over(all, frame->body);
    }
    if (frame->type != WIRE_AUTH_ANSWER || !wire_get_auth_answer(frame->body, &answer)) {
        return false;
    }
    s = receive_find_asked(all, answer.login, QUESTION_LOGIN);
    if (s == NULL) {
        return true; /* the session is gone */
    }
    switch (answer.result) {
    case WIRE_AUTH_CHALLENGE:
        receive_forget_question(s);
        server_challenge(s->server, answer.challenge);
        receive_go_on(s);
        return true;
    case WIRE_AUTH_ACCEPTED:
        accept_login(s, &answer);
        return true;
    case WIRE_AUTH_REFUSED:
        s->login_token = 0; /* the auth process has ended the login, also in the cases below */
        (void)snprintf(why, sizeof why, "authentication failure, sasl_username=%.*s",
                       SLICE_ARGS(answer.user)); /* fits */
        receive_login_refuse(
            s, (struct server_reply){535, "5.7.8", SLICE("Error: authentication failed")}, why);
        return true;
    case WIRE_AUTH_MALFORMED:
        s->login_token = 0;
        receive_login_refuse(
            s,
            (struct server_reply){535, "5.7.8", SLICE("Error: authentication failed: bad message")},
            "bad message");
        return true;
    case WIRE_AUTH_BUSY:
        s->login_token = 0;
        receive_login_refuse(s, NO_AUTH, "too many logins at once");
        return true;
    case WIRE_AUTH_UNAVAILABLE:
        s->login_token = 0;
        (void)snprintf(why, sizeof why, "%.*s", SLICE_ARGS(answer.challenge)); /* or is cut */
        receive_login_refuse(s, NO_AUTH, why);
        return true;
    case WIRE_AUTH_RESULTS:
        break;
    }
    return false;
}
