#include "receive_session_private.h"

#include "log.h"

static const char *const stage_names[] = {"CONNECT",  "HELO", "EHLO",          "LHLO",
                                          "STARTTLS", "AUTH", "ETRN",          "MAIL",
                                          "RCPT",     "DATA", "END-OF-MESSAGE"};

const char *receive_stage_name(const struct receive_session *s)
{
    return stage_names[s->stage];
}

/* Returns Postfix's name of the protocol, which ignores TLS and UTF-8. */
static const char *log_protocol(const struct receive_session *s)
{
    if (s->origin->lmtp) {
        return "LMTP";
    }
    return strcmp(server_protocol(s->server), "SMTP") == 0 ? "SMTP" : "ESMTP";
}

/* Logs the event `what` of a command or message. `rcpt` with ptr NULL: no recipient. `rule`: the
 * rule that caused it, or "". */
void receive_log_event(const struct receive_session *s, const char *what, struct slice sender,
                       struct slice rcpt, const char *text, const char *rule)
{
    struct slice helo = server_helo(s->server);
    bool to = rcpt.ptr != NULL;

    log_info("NOQUEUE: %s: %s from %s: %s; from=<%.*s>%s%.*s%s proto=%s helo=<%.*s>%s%s%s", what,
             receive_stage_name(s), s->text, text, SLICE_ARGS(sender), to ? " to=<" : "",
             to ? (int)rcpt.len : 0, to ? rcpt.ptr : "", to ? ">" : "", log_protocol(s),
             SLICE_ARGS(helo), rule[0] != '\0' ? " (" : "", rule, rule[0] != '\0' ? ")" : "");
}

void receive_log_refusal(const struct receive_session *s, struct slice sender, struct slice rcpt,
                         const char *text, const char *rule)
{
    receive_log_event(s, "reject", sender, rcpt, text, rule);
}

void receive_log_rules(const struct receive_session *s, const char *id)
{
    struct slice sender = draft_sender(&s->draft), rcpt = draft_first_rcpt(&s->draft);
    struct slice helo = server_helo(s->server);
    struct buf *envelope = &s->all->line;

    buf_clear(envelope);
    (void)buf_addf(envelope, "from=<%.*s> to=<%.*s> proto=%s helo=<%.*s>", SLICE_ARGS(sender),
                   SLICE_ARGS(rcpt), log_protocol(s), SLICE_ARGS(helo)); /* fits */
    arrival_log(&s->arrival, id, s->text, buf_cstr(envelope));
}

void receive_log_rule_reply(const struct receive_session *s, const struct server_reply *reply,
                            struct slice sender, struct slice rcpt, const char *rule)
{
    struct buf *line = &s->all->line;

    buf_clear(line);
    buf_addf(line, "%u %s %.*s", reply->code, reply->status, SLICE_ARGS(reply->text));
    receive_log_refusal(s, sender, rcpt, buf_cstr(line), rule);
}

void receive_log_reply(const struct receive_session *s, const struct server_reply *reply,
                       struct slice sender, struct slice rcpt)
{
    receive_log_rule_reply(s, reply, sender, rcpt, "");
}

/* Adds "name=1", or "name=1/3" if some failed, or nothing if `all` is 0. */
static void add_count(struct buf *out, const char *name, uint64_t good, uint64_t all)
{
    if (all == 0) {
        return;
    }
    buf_addf(out, " %s=%llu", name, (unsigned long long)good);
    if (good != all) {
        buf_addf(out, "/%llu", (unsigned long long)all);
    }
}

void receive_log_disconnect(struct receive_session *s)
{
    struct server_stats stats = server_stats(s->server);
    struct buf *text = &s->all->text;
    uint64_t good = stats.errors > stats.commands ? 0 : stats.commands - stats.errors;

    buf_clear(text);
    add_count(text, s->origin->lmtp ? "lhlo" : "ehlo", s->greetings, s->greetings);
    add_count(text, "starttls", server_tls(s->server).len > 0, server_tls(s->server).len > 0);
    add_count(text, "auth", s->login != NULL, s->logins);
    add_count(text, "mail", stats.mails, stats.mails);
    add_count(text, "rcpt", stats.rcpts, stats.rcpts + stats.rcpts_refused);
    add_count(text, "data", stats.messages, stats.messages);
    add_count(text, "quit", stats.quit, stats.quit);
    add_count(text, "commands", good, stats.commands);
    log_info("disconnect from %s%s", s->text, buf_cstr(text));
}

void receive_log_connect(struct receive_session *s)
{
    if (!s->connect_logged) {
        s->connect_logged = true;
        log_info("connect from %s", s->text);
    }
}
