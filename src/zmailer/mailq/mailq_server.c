#include "mailq_server.h"

#include <inttypes.h>
#include <string.h>

#include "base64.h"
#include "check.h"
#include "mem.h"

enum phase {
    PHASE_LOGIN,  /* no user yet */
    PHASE_AUTH,   /* a login waits for the auth file */
    PHASE_PROOF,  /* within a SCRAM login */
    PHASE_READY,  /* reads commands */
    PHASE_ASKED,  /* the owner answers */
    PHASE_CLOSING /* only sends the remaining output */
};

struct mailq_server {
    enum phase phase;
    bool v1;
    bool asked; /* the event of PHASE_ASKED or PHASE_AUTH was returned */
    bool begun; /* the first lines of the answer were written */
    bool ended; /* version 1: the line "End:" was written */
    bool input_ended;
    const struct mailq_auth *auth;
    struct mailq_peer peer;
    struct mailq_counts *counts;
    struct buf challenge; /* line that clients hash */
    struct buf nonce;
    struct buf line; /* the current command */
    struct buf output;
    struct buf user;
    unsigned rights, failed_logins;
    struct scram scram;
    const struct mailq_entry *scram_entry; /* entry of the user of that login */
    struct mailq_event question;
};

/* ---- output ---------------------------------------------------------------------------------- */

/* Output is bounded by mailq_server_is_full and one page of an answer. This limit stops a faulty
 * owner. */
#define OUTPUT_LIMIT ((size_t)64 << 20)
#define NOT_ALL      "(This is not all: the queue no longer answers.)"

static void say(struct mailq_server *s, const char *line)
{
    (void)buf_add_string(&s->output, line);
    (void)buf_add_byte(&s->output, '\n');
}

/* Appends a client's text: at most 200 bytes, with `?` for bytes that are not printable. */
static void say_back(struct mailq_server *s, struct slice text)
{
    for (size_t i = 0; i < text.len && i < 200; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        (void)buf_add_byte(&s->output, c < ' ' || c >= 127 ? '?' : text.ptr[i]);
    }
}

/* Refuses a command as ZMailer does: quotes only the first word of the arguments, except for
 * AUTH. */
static void refuse(struct mailq_server *s, struct slice verb, struct slice rest)
{
    if (!slice_equal(verb, SLICE("AUTH"))) {
        rest = slice_cut(&rest, ' ');
    }
    (void)buf_add_string(&s->output,
                         "-MAILQ2 Unknown command, or refused by access control; VERB='");
    say_back(s, verb);
    (void)buf_add_string(&s->output, "' REST='");
    say_back(s, rest);
    say(s, "'");
    s->counts->command_rejects++;
}

static void bye(struct mailq_server *s)
{
    s->counts->quits++;
    say(s, "+Bye bye");
    s->phase = PHASE_CLOSING;
}

/* ---- logging in ----------------------------------------------------------------------------- */

static void login_failed(struct mailq_server *s, const char *answer)
{
    say(s, answer);
    s->counts->auth_rejects++;
    s->phase = PHASE_LOGIN;
    if (++s->failed_logins >= MAILQ_LOGINS_MAX) {
        s->phase = PHASE_CLOSING;
    }
}

static void logged_in(struct mailq_server *s, struct slice user, unsigned rights)
{
    buf_clear(&s->user);
    (void)buf_add(&s->user, user);
    s->rights = rights;
    s->phase = PHASE_READY;
}

static void auth_md5(struct mailq_server *s, struct slice rest)
{
    struct slice user = slice_cut(&rest, ' ');
    const struct mailq_entry *entry = mailq_auth_find(s->auth, &s->peer, user);

    s->counts->auths++;
    if (entry == NULL || rest.len == 0) {
        login_failed(s, "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS");
    } else if (!mailq_auth_md5_fits(entry, buf_slice(&s->challenge), rest)) {
        login_failed(s, "-BAD USER OR PASSWORD");
    } else {
        logged_in(s, user, entry->rights);
        say(s, "+OK");
    }
}

/* Returns the secret for a SCRAM login. A secret is derived from a clear password with a salt of
 * this session. */
static void secret_of(const struct mailq_server *s, const struct mailq_entry *entry,
                      struct scram_secret *ret)
{
    struct slice salt = buf_slice(&s->nonce);

    if (entry->password == NULL) {
        *ret = entry->secret;
        return;
    }
    scram_derive(slice_string(entry->password), (const uint8_t *)salt.ptr,
                 salt.len < SCRAM_SALT_MAX ? salt.len : SCRAM_SALT_MAX, SCRAM_ROUNDS_MIN, ret);
}

static void say_base64(struct mailq_server *s, const char *before, const struct buf *message)
{
    (void)buf_add_string(&s->output, before);
    base64_put(&s->output, buf_slice(message));
    (void)buf_add_byte(&s->output, '\n');
}

/* Makes the answer to a client's first SCRAM message, with a fresh nonce for each login of the
 * session. */
static bool scram_answer(struct mailq_server *s, const struct mailq_entry *entry,
                         struct slice message, struct buf *ret_answer)
{
    struct scram_secret secret;
    struct buf nonce;
    bool ok;

    buf_init(&nonce, 512);
    (void)buf_addf(&nonce, "%.*s%u", SLICE_ARGS(buf_slice(&s->nonce)), s->failed_logins);
    secret_of(s, entry, &secret);
    scram_fini(&s->scram);
    scram_init(&s->scram);
    ok = scram_server_first(&s->scram, message, buf_slice(&nonce), &secret, ret_answer);
    buf_fini(&nonce);
    return ok;
}

static void scram_first(struct mailq_server *s, struct slice text)
{
    struct buf message, user, answer;

    buf_init(&message, SCRAM_TEXT_MAX + 2);
    buf_init(&user, SCRAM_TEXT_MAX);
    buf_init(&answer, (size_t)2 * SCRAM_TEXT_MAX);
    if (!base64_get(text, &message) || !scram_first_user(buf_slice(&message), &user)) {
        login_failed(s, "-BAD SCRAM MESSAGE");
    } else {
        s->scram_entry = mailq_auth_find(s->auth, &s->peer, buf_slice(&user));
        if (s->scram_entry == NULL) {
            login_failed(s, "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS");
        } else if (!scram_answer(s, s->scram_entry, buf_slice(&message), &answer)) {
            login_failed(s, "-BAD SCRAM MESSAGE");
        } else {
            s->phase = PHASE_PROOF;
            say_base64(s, "+", &answer);
        }
    }
    buf_fini(&message);
    buf_fini(&user);
    buf_fini(&answer);
}

static void scram_final(struct mailq_server *s, struct slice text)
{
    struct buf message, answer;

    buf_init(&message, SCRAM_TEXT_MAX + 2);
    buf_init(&answer, SCRAM_TEXT_MAX);
    if (base64_get(text, &message) && scram_server_final(&s->scram, buf_slice(&message), &answer)) {
        logged_in(s, slice_string(s->scram_entry->user), s->scram_entry->rights);
        say_base64(s, "+OK ", &answer);
    } else {
        login_failed(s, "-BAD USER OR PASSWORD");
    }
    buf_fini(&message);
    buf_fini(&answer);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void ask(struct mailq_server *s, enum mailq_question question)
{
    s->question.type = MAILQ_ASK;
    s->question.question = question;
    s->question.user = buf_slice(&s->user);
    s->phase = PHASE_ASKED;
    s->begun = false;
}

/* Cuts the next word off *rest; words are separated by one or more blanks. */
static struct slice next_word(struct slice *rest)
{
    struct slice word = {"", 0};

    while (rest->ptr != NULL && word.len == 0) {
        word = slice_cut(rest, ' ');
    }
    return word;
}

static bool show(struct mailq_server *s, struct slice rest)
{
    const struct {
        const char *what;
        enum mailq_right right;
        enum mailq_question question;
        uint64_t *count;
    } shows[] = {
        {"SNMP", MAILQ_MAY_SNMP, MAILQ_ASK_TOTALS, &s->counts->show_totals},
        {"QUEUE SHORT", MAILQ_MAY_QQ, MAILQ_ASK_RINGS, &s->counts->show_short},
        {"QUEUE THREADS", MAILQ_MAY_TT, MAILQ_ASK_THREADS, &s->counts->show_threads},
        {"QUEUE THREADS2", MAILQ_MAY_TT, MAILQ_ASK_THREAD_FIELDS, &s->counts->show_threads2},
        {"COUNTERS", MAILQ_MAY_ALL, MAILQ_ASK_COUNTERS, &s->counts->show_counters},
    };
    struct slice args = rest;

    for (size_t i = 0; i < sizeof shows / sizeof shows[0]; i++) {
        if (slice_equal(rest, slice_string(shows[i].what))) {
            bool may = (s->rights & shows[i].right) != 0 ||
                       shows[i].question == MAILQ_ASK_COUNTERS; /* needs no right */

            if (may) {
                (*shows[i].count)++;
                ask(s, shows[i].question);
            }
            return may;
        }
    }
    if (slice_equal(next_word(&args), SLICE("THREAD")) && (s->rights & MAILQ_MAY_TT) != 0) {
        s->question.channel = next_word(&args);
        s->question.host = next_word(&args);
        s->counts->show_thread++;
        ask(s, MAILQ_ASK_THREAD);
        return true;
    }
    return false;
}

static void etrn(struct mailq_server *s, struct slice rest)
{
    if ((s->rights & MAILQ_MAY_ETRN) == 0) {
        s->counts->command_rejects++;
        say(s, "-No ETRN allowed for you.");
        return;
    }
    s->question.host = next_word(&rest);
    s->question.rest = rest.ptr != NULL ? rest : SLICE("");
    s->counts->etrns++;
    ask(s, MAILQ_ASK_ETRN);
}

/* Handles KILL. Its replies are followed by an empty line, which clients expect. */
static void kill_something(struct mailq_server *s, struct slice rest)
{
    struct slice what = next_word(&rest);

    if ((s->rights & MAILQ_MAY_KILL) == 0) {
        s->counts->command_rejects++;
        say(s, "-No KILL allowed for you.");
    } else if (slice_equal(what, SLICE("MSG"))) {
        s->question.id = next_word(&rest);
        s->counts->kill_messages++;
        ask(s, MAILQ_ASK_KILL_MSG);
    } else if (slice_equal(what, SLICE("THREAD"))) {
        s->question.channel = next_word(&rest);
        s->question.host = next_word(&rest);
        s->counts->kill_threads++;
        ask(s, MAILQ_ASK_KILL_THREAD);
    } else {
        s->counts->command_rejects++;
        say(s, "-Unknown request.\n");
    }
}

static bool reroute(struct mailq_server *s, struct slice rest)
{
    if ((s->rights & MAILQ_MAY_REROUTE) == 0) {
        return false;
    }
    s->question.channel = next_word(&rest);
    s->question.host = next_word(&rest);
    s->counts->reroutes++;
    ask(s, MAILQ_ASK_REROUTE);
    return true;
}

/* Begins a login; it goes on when the auth file was read. */
static void login_command(struct mailq_server *s, struct slice verb)
{
    if (slice_equal(verb, SLICE("AUTH")) || slice_equal(verb, SLICE("SCRAM-SHA-256"))) {
        s->phase = PHASE_AUTH;
    } else {
        s->counts->command_rejects++;
        say(s, "-BAD; USER MUST AUTHENTICATE");
    }
}

static void ready_command(struct mailq_server *s, struct slice verb, struct slice rest)
{
    if (slice_equal(verb, SLICE("ETRN"))) {
        etrn(s, rest);
    } else if (slice_equal(verb, SLICE("KILL"))) {
        kill_something(s, rest);
    } else if (!(slice_equal(verb, SLICE("SHOW")) && show(s, rest)) &&
               !(slice_equal(verb, SLICE("REROUTE")) && reroute(s, rest))) {
        refuse(s, verb, rest);
    }
}

static void command(struct mailq_server *s, struct slice line)
{
    struct slice rest = line, verb = slice_cut(&rest, ' ');

    s->question = (struct mailq_event){0};
    s->counts->commands++;
    if (rest.ptr == NULL) {
        rest = SLICE("");
    }
    if (s->phase == PHASE_PROOF) {
        scram_final(s, line);
    } else if (slice_equal_nocase(verb, SLICE("QUIT")) || slice_equal_nocase(verb, SLICE("EXIT"))) {
        bye(s);
    } else if (s->phase == PHASE_LOGIN) {
        login_command(s, verb);
    } else {
        ready_command(s, verb, rest);
    }
}

/* Moves one line from *in to s->line. Returns false if there is no complete line, or the session
 * closes. */
static bool take_line(struct mailq_server *s, struct buf *in)
{
    struct slice waiting = buf_slice(in);
    size_t len = slice_find(waiting, '\n');

    if (len > MAILQ_LINE_MAX) {
        s->phase = PHASE_CLOSING;
        return false;
    }
    if (len == waiting.len) {
        if (s->input_ended) {
            s->phase = PHASE_CLOSING;
        }
        return false;
    }
    buf_clear(&s->line);
    for (size_t i = 0; i < len; i++) {
        if (waiting.ptr[i] != '\r') {
            (void)buf_add_byte(&s->line, waiting.ptr[i]);
        }
    }
    buf_consume(in, len + 1);
    return true;
}

/* ---- the session ---------------------------------------------------------------------------- */

static struct mailq_server *new_session(void)
{
    struct mailq_server *s = mem_new(sizeof *s);

    buf_init(&s->challenge, 256);
    buf_init(&s->nonce, 256);
    buf_init(&s->line, MAILQ_LINE_MAX);
    buf_init(&s->output, OUTPUT_LIMIT);
    buf_init(&s->user, MAILQ_LINE_MAX);
    scram_init(&s->scram);
    return s;
}

struct mailq_server *mailq_server_new_v1(void)
{
    struct mailq_server *s = new_session();

    s->v1 = true;
    say(s, "version zmailer 1.0");
    ask(s, MAILQ_ASK_DUMP);
    return s;
}

bool mailq_server_is_v1(const struct mailq_server *s)
{
    return s->v1;
}

struct mailq_server *mailq_server_new(const struct mailq_auth *auth, const struct mailq_peer *peer,
                                      const char *moment, const char *nonce,
                                      struct mailq_counts *counts)
{
    struct mailq_server *s = new_session();

    s->auth = auth;
    s->peer = *peer;
    s->counts = counts;
    (void)buf_add_string(&s->nonce, nonce);
    (void)buf_addf(&s->challenge, "220 MAILQ-V2-CHALLENGE: %s", moment);
    CHECK(!s->challenge.failed && !s->nonce.failed);
    say(s, "version zmailer 2.0");
    if (mailq_auth_admits(auth, peer)) {
        say(s, buf_cstr(&s->challenge));
    } else {
        say(s, "550 NO ACCESS FOR YOU");
        counts->auth_rejects++;
        s->phase = PHASE_CLOSING;
    }
    return s;
}

void mailq_server_free(struct mailq_server *s)
{
    if (s == NULL) {
        return;
    }
    buf_fini(&s->challenge);
    buf_fini(&s->nonce);
    buf_fini(&s->line);
    buf_fini(&s->output);
    buf_fini(&s->user);
    scram_fini(&s->scram);
    mem_free(s);
}

void mailq_server_next(struct mailq_server *s, struct buf *in, struct mailq_event *ret_event)
{
    for (;;) {
        *ret_event = (struct mailq_event){.type = MAILQ_NEED_OUTPUT};
        if (s->phase == PHASE_CLOSING || s->output.failed) {
            ret_event->type = MAILQ_CLOSE;
            return;
        }
        if (s->phase == PHASE_AUTH) {
            if (!s->asked) {
                s->asked = true;
                ret_event->type = MAILQ_NEED_AUTH;
            }
            return;
        }
        if (s->phase == PHASE_ASKED) {
            if (!s->asked) {
                s->asked = true;
                *ret_event = s->question;
            }
            return;
        }
        if (mailq_server_is_full(s)) {
            return;
        }
        if (!take_line(s, in)) {
            if (s->phase != PHASE_CLOSING) {
                ret_event->type = MAILQ_NEED_INPUT;
                return;
            }
            continue;
        }
        command(s, buf_slice(&s->line));
    }
}

void mailq_server_auth(struct mailq_server *s, const struct mailq_auth *auth)
{
    struct slice rest = buf_slice(&s->line), verb = slice_cut(&rest, ' ');

    CHECK(s->phase == PHASE_AUTH && s->asked);
    s->asked = false;
    s->auth = auth;
    s->scram_entry = NULL;
    if (rest.ptr == NULL) {
        rest = SLICE("");
    }
    if (slice_equal(verb, SLICE("AUTH"))) {
        auth_md5(s, rest);
    } else {
        scram_first(s, rest);
    }
}

void mailq_server_input_ended(struct mailq_server *s)
{
    s->input_ended = true;
}

struct buf *mailq_server_output(struct mailq_server *s)
{
    return &s->output;
}

bool mailq_server_is_full(const struct mailq_server *s)
{
    return buf_len(&s->output) > MAILQ_OUTPUT_MAX;
}

static void begin_list(struct mailq_server *s)
{
    if (!s->begun && !s->v1) {
        say(s, "+OK until LF.LF");
    }
    s->begun = true;
}

void mailq_server_lines(struct mailq_server *s, struct slice lines)
{
    CHECK(s->phase == PHASE_ASKED && s->asked);
    while (lines.len > 0) {
        size_t len = slice_find(lines, '\n');

        CHECK(len < lines.len);
        begin_list(s);
        if (!s->v1 && lines.ptr[0] == '.') {
            (void)buf_add_byte(&s->output, '.');
        }
        s->ended = s->ended || slice_equal(slice_of(lines.ptr, len), SLICE("End:"));
        (void)buf_add(&s->output, slice_of(lines.ptr, len + 1));
        lines = slice_skip(lines, len + 1);
    }
}

static void answered(struct mailq_server *s)
{
    s->asked = false;
    s->phase = s->v1 ? PHASE_CLOSING : PHASE_READY;
}

void mailq_server_done(struct mailq_server *s)
{
    CHECK(s->phase == PHASE_ASKED && s->asked && s->question.question < MAILQ_ASK_ETRN);
    begin_list(s);
    if (!s->v1) {
        say(s, ".");
    }
    answered(s);
}

static void say_rerouted(struct mailq_server *s, bool done_something, uint64_t under_way)
{
    (void)buf_add_string(&s->output,
                         done_something ? "+OK; REROUTEd something." : "+OK; nothing to REROUTE.");
    if (under_way > 0) {
        (void)buf_addf(&s->output, " Being delivered: %" PRIu64 " recipient%s.", under_way,
                       under_way == 1 ? "" : "s");
    }
    say(s, "");
}

void mailq_server_verdict(struct mailq_server *s, bool done_something, uint64_t under_way)
{
    CHECK(s->phase == PHASE_ASKED && s->asked && s->question.question >= MAILQ_ASK_ETRN);
    switch (s->question.question) {
    case MAILQ_ASK_ETRN:
        say(s, done_something ? "+OK; an ETRN started something."
                              : "+OK; an ETRN didn't start anything.");
        break;
    case MAILQ_ASK_KILL_MSG:
    case MAILQ_ASK_KILL_THREAD:
        say(s, done_something ? "+OK; KILLed something.\n" : "+OK; nothing to KILL.\n");
        break;
    default:
        say_rerouted(s, done_something, under_way);
        break;
    }
    answered(s);
}

void mailq_server_failed(struct mailq_server *s)
{
    enum mailq_question question = s->question.question;

    CHECK(s->phase == PHASE_ASKED && s->asked);
    if (s->v1) {
        if (!s->ended) {
            say(s, "End:");
        }
        say(s, NOT_ALL);
    } else if (!s->begun) {
        say(s, "-MAILQ2 The queue can't be asked now, try again later");
    } else {
        if (question == MAILQ_ASK_THREAD) {
            say(s, "#" NOT_ALL); /* a line that clients take for the head of a thread */
        } else if (question != MAILQ_ASK_THREAD_FIELDS) {
            say(s, NOT_ALL);
        }
        say(s, ".");
    }
    answered(s);
}
