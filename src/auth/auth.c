#include "auth.h"

#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "dovecot_link.h"
#include "entropy.h"
#include "guesses.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "sasl.h"
#include "token_list.h"
#include "verifier_list.h"

/* Maximum length of the text that a user's stamp is computed from. */
#define STAMPED_MAX (NAME_LINES_SENDERS_MAX + PATH_MAX)
#define NONCE_BYTES 16 /* printed as twice as many characters */
/* Number of turns of which a rank gets all but one while lower ranks have messages, too. */
#define RANK_TURNS 4u

_Static_assert(WIRE_LOGIN_MAX == SASL_MESSAGE_MAX && WIRE_USER_MAX == SASL_USER_MAX, "as long");
_Static_assert(WIRE_SENDERS_MAX == NAME_LINES_SENDERS_MAX, "as long");
_Static_assert(WIRE_AUTH_KEY_SIZE == VERIFIER_MAKE_UP_KEY, "as long");

/* Rank of a client by its history (guesses.h), the best last. */
enum line_rank {
    LINE_GUESSES, /* a login failed, or a message had a turn in this line, which may fail */
    LINE_NEW,
    LINE_KNOWN,
    LINE_RANKS,
};

/* A client with messages that wait. */
struct line {
    UT_hash_handle hh;
    TAILQ_ENTRY(line) next;
    uint64_t client;
    enum line_rank rank;
    TAILQ_HEAD(, login) logins;
};

enum login_state {
    LOGIN_IDLE,    /* the client must send its next message */
    LOGIN_WAITS,   /* the message is in its client's line */
    LOGIN_ASKED,   /* Dovecot has the message */
    LOGIN_ANSWERS, /* the answer is held back */
};

/* State of a login that Dovecot checks. */
struct dovecot_login {
    uint32_t id; /* id in dovecot_link.h; 0: no request there */
    char *remote, *local;
    char *user, *class_name, *senders; /* known when the login is over; else NULL */
};

struct login {
    UT_hash_handle hh; /* node in link.logins, by id */
    TAILQ_ENTRY(login) next;
    struct link *link;
    uint64_t id;
    uint64_t client;
    enum login_state state;
    bool first; /* the message that waits is the first */
    bool has_message;
    bool is_token;
    char token[TOKEN_NAME_MAX + 1]; /* name of the token, once checked */
    struct buf message;
    struct sasl_server sasl;
    uint64_t stamp;                  /* stamp of the user that `sasl` has found */
    struct dovecot_login *elsewhere; /* state of a login that Dovecot checks instead of `sasl`; else
                                      * NULL */
    enum wire_auth_result result;    /* in LOGIN_ANSWERS; the challenge is in `message` */
    struct event *timer;
};

/* Connection to a receive process. */
struct link {
    LIST_ENTRY(link) next;
    struct auth *auth;
    struct channel *channel;
    struct login *logins;
};

struct auth {
    struct role *role;
    struct verifier_list *users;
    struct dovecot_link *dovecot; /* NULL: `users` has all users */
    char *dovecot_path;           /* socket of Dovecot */
    struct token_list *tokens;
    uint8_t key[WIRE_AUTH_KEY_SIZE]; /* from the parent if it has one (WIRE_AUTH_KEY), so that it
                                      * outlives this process */
    struct guesses *guesses;
    LIST_HEAD(, link) links;
    struct line *lines; /* hash by client */
    TAILQ_HEAD(lines, line) turns[LINE_RANKS];
    unsigned turn; /* 0..RANK_TURNS * RANK_TURNS - 1 */
    struct event *work;
    unsigned logins;
    unsigned mechanisms; /* mechanisms offered */
};

/* ---- lines ---------------------------------------------------------------------------------- */

static struct line *find_line(struct auth *a, uint64_t client)
{
    struct line *line;

    HASH_FIND(hh, a->lines, &client, sizeof client, line);
    return line;
}

static void join_line(struct auth *a, struct login *l)
{
    static const struct timeval now = {0};
    struct line *line = find_line(a, l->client);

    if (line == NULL) {
        line = mem_new(sizeof *line);
        line->client = l->client;
        TAILQ_INIT(&line->logins);
        HASH_ADD(hh, a->lines, client, sizeof line->client, line);
        line->rank = guesses_is_known(a->guesses, l->client)                   ? LINE_KNOWN
                     : guesses_has_failed(a->guesses, l->client, clock_mono()) ? LINE_GUESSES
                                                                               : LINE_NEW;
        TAILQ_INSERT_TAIL(&a->turns[line->rank], line, next);
    }
    TAILQ_INSERT_TAIL(&line->logins, l, next);
    l->state = LOGIN_WAITS;
    CHECK(event_add(a->work, &now) == 0);
}

static void leave_line(struct auth *a, struct login *l)
{
    struct line *line = find_line(a, l->client);

    CHECK(line != NULL && l->state == LOGIN_WAITS);
    TAILQ_REMOVE(&line->logins, l, next);
    l->state = LOGIN_IDLE;
    if (TAILQ_EMPTY(&line->logins)) {
        TAILQ_REMOVE(&a->turns[line->rank], line, next);
        HASH_DEL(a->lines, line);
        mem_free(line);
    }
}

/* Returns the rank whose turn it is: the best rank with messages, except in one of RANK_TURNS
 * turns. */
static enum line_rank next_rank(struct auth *a)
{
    enum line_rank rank;

    a->turn = (a->turn + 1) % (RANK_TURNS * RANK_TURNS);
    rank = a->turn % RANK_TURNS != 0   ? LINE_KNOWN
           : a->turn / RANK_TURNS != 0 ? LINE_NEW
                                       : LINE_GUESSES;
    for (unsigned i = 0; i < LINE_RANKS && TAILQ_EMPTY(&a->turns[rank]); i++) {
        rank = rank > LINE_GUESSES ? rank - 1 : LINE_KNOWN;
    }
    return rank;
}

/* Takes a message of the client whose turn it is, and moves the client to the end. Further messages
 * of a new client wait as if the first one were a guess. */
static struct login *take_turn(struct auth *a)
{
    enum line_rank rank = next_rank(a);
    struct line *line = TAILQ_FIRST(&a->turns[rank]);
    struct login *l;

    if (line == NULL) {
        return NULL;
    }
    TAILQ_REMOVE(&a->turns[rank], line, next);
    line->rank = rank == LINE_NEW ? LINE_GUESSES : rank;
    TAILQ_INSERT_TAIL(&a->turns[line->rank], line, next);
    l = TAILQ_FIRST(&line->logins);
    leave_line(a, l);
    return l;
}

/* ---- logins --------------------------------------------------------------------------------- */

static void forget_elsewhere(struct auth *a, struct dovecot_login *d)
{
    if (d == NULL) {
        return;
    }
    if (a->dovecot != NULL) {
        dovecot_link_forget(a->dovecot, d->id);
    }
    mem_free(d->remote);
    mem_free(d->local);
    mem_free(d->user);
    mem_free(d->class_name);
    mem_free(d->senders);
    mem_free(d);
}

static void login_free(struct login *l)
{
    struct auth *a = l->link->auth;

    if (l->state == LOGIN_WAITS) {
        leave_line(a, l);
    }
    if (l->timer != NULL) {
        event_free(l->timer);
    }
    forget_elsewhere(a, l->elsewhere);
    HASH_DEL(l->link->logins, l);
    a->logins--;
    sasl_server_fini(&l->sasl);
    buf_wipe(&l->message);
    mem_free(l);
}

static void refuse_at_once(struct link *link, uint64_t id, enum wire_auth_result result)
{
    wire_put_auth_answer(link->channel, &(struct wire_auth_answer){.login = id, .result = result});
}

static struct slice or_nothing(const char *text)
{
    return text == NULL ? SLICE("") : slice_string(text);
}

static struct slice user_of(const struct login *l)
{
    if (l->is_token) {
        return slice_string(l->token);
    }
    return l->elsewhere != NULL ? or_nothing(l->elsewhere->user)
                                : slice_string(sasl_server_user(&l->sasl));
}

/* Computes the present stamp of a user's logins: from the user's entry in the list, or, as Dovecot
 * does not report who may still log in, from Dovecot's socket. Returns false if there is no such
 * user. Receive processes get the stamp and are exposed to strangers, so the stamp must not help to
 * guess. */
static bool stamp_of(const struct auth *a, struct slice user, uint64_t *ret_stamp)
{
    const struct verifier *v = a->dovecot != NULL ? NULL : verifier_list_find(a->users, user);
    struct buf text;

    if (a->dovecot == NULL && v == NULL) {
        return false;
    }
    buf_init(&text, STAMPED_MAX);
    buf_keep_secret(&text);
    if (v != NULL) {
        verifier_put(&text, user, &v->secret, v->line.class_name, v->line.senders);
    } else {
        (void)buf_addf(&text, "dovecot %s", a->dovecot_path); /* fits */
    }
    CHECK(!text.failed);
    *ret_stamp = verifier_stamp(a->key, buf_slice(&text));
    buf_fini(&text);
    return true;
}

/* Adds the rights of the accepted user or token. Returns false if it was removed, or differs from
 * the one against which the login was checked. */
static bool add_rights(const struct login *l, struct wire_auth_answer *m)
{
    const struct verifier *v;

    if (l->is_token) {
        const struct token *t = token_list_find(l->link->auth->tokens, m->user);

        if (t != NULL) {
            m->class_name = t->line.class_name;
            m->senders = t->line.senders;
            m->rights = t->rights;
        }
        return t != NULL;
    }
    if (l->elsewhere != NULL) {
        m->class_name = or_nothing(l->elsewhere->class_name);
        m->senders = or_nothing(l->elsewhere->senders);
        return l->link->auth->dovecot != NULL && stamp_of(l->link->auth, m->user, &m->stamp);
    }
    v = verifier_list_find(l->link->auth->users, m->user);
    if (v == NULL || !stamp_of(l->link->auth, m->user, &m->stamp) || m->stamp != l->stamp) {
        return false;
    }
    m->class_name = v->line.class_name;
    m->senders = v->line.senders;
    return true;
}

/* Sends the result of the message. Frees the login if it is over. */
static void answer(struct login *l)
{
    struct wire_auth_answer m = {.login = l->id, .result = l->result, .user = user_of(l)};

    l->state = LOGIN_IDLE;
    if (l->result == WIRE_AUTH_CHALLENGE || l->result == WIRE_AUTH_UNAVAILABLE) {
        m.challenge = buf_slice(&l->message);
    }
    if (l->result == WIRE_AUTH_ACCEPTED && !add_rights(l, &m)) {
        m.result = WIRE_AUTH_REFUSED;
    }
    wire_put_auth_answer(l->link->channel, &m);
    if (m.result == WIRE_AUTH_CHALLENGE) {
        buf_wipe(&l->message);
    } else {
        login_free(l);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    answer(arg);
}

static void answer_later(struct login *l, int64_t us)
{
    struct timeval delay = {.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};

    if (l->timer == NULL) {
        l->timer = evtimer_new(l->link->auth->role->base, on_timer, l);
        CHECK(l->timer != NULL);
    }
    l->state = LOGIN_ANSWERS;
    CHECK(event_add(l->timer, &delay) == 0);
}

static enum wire_auth_result judge_token(struct login *l)
{
    const struct token *t = token_list_check(l->link->auth->tokens, buf_slice(&l->message));

    if (t == NULL) {
        return WIRE_AUTH_REFUSED;
    }
    (void)snprintf(l->token, sizeof l->token, "%s", t->line.name); /* fits */
    return WIRE_AUTH_ACCEPTED;
}

static enum wire_auth_result judge(struct login *l, struct buf *ret_challenge)
{
    const struct slice message = buf_slice(&l->message);

    if (l->is_token) {
        return judge_token(l);
    }
    switch (sasl_server_take(&l->sasl, l->has_message ? &message : NULL, ret_challenge)) {
    case SASL_CHALLENGE:
        return ret_challenge->failed ? WIRE_AUTH_MALFORMED : WIRE_AUTH_CHALLENGE;
    case SASL_ACCEPTED:
        return WIRE_AUTH_ACCEPTED;
    case SASL_REFUSED:
        return WIRE_AUTH_REFUSED;
    case SASL_MALFORMED:
        break;
    }
    return WIRE_AUTH_MALFORMED;
}

/* Sends `result` at once, or after the client's wait for failed guesses. */
static void decided(struct auth *a, struct login *l)
{
    bool failed = l->result == WIRE_AUTH_REFUSED || l->result == WIRE_AUTH_MALFORMED;
    struct slice user = failed ? user_of(l) : slice_of(NULL, 0);
    int64_t wait_us;

    if (failed) {
        guesses_failed(a->guesses, l->client, user, clock_mono());
    } else if (l->result == WIRE_AUTH_ACCEPTED) {
        guesses_succeeded(a->guesses, l->client, clock_mono());
    }
    wait_us = guesses_wait_us(a->guesses, l->client, user, clock_mono());
    if (wait_us == 0 || (l->first && l->result == WIRE_AUTH_CHALLENGE)) {
        answer(l);
    } else {
        answer_later(l, wait_us);
    }
}

static void not_judged(struct auth *a, struct login *l, const char *why)
{
    buf_wipe(&l->message);
    buf_fini(&l->message);
    buf_init(&l->message, WIRE_CHALLENGE_MAX);
    (void)buf_add_string(&l->message, why); /* a short text */
    l->result = WIRE_AUTH_UNAVAILABLE;
    decided(a, l);
}

static void ask_dovecot(struct auth *a, struct login *l)
{
    struct dovecot_login *d = l->elsewhere;
    const struct dovecot_request request = {
        .mechanism = l->sasl.mechanism,
        .remote = slice_string(d->remote),
        .local = slice_string(d->local),
        .message = l->has_message ? buf_slice(&l->message) : slice_of(NULL, 0),
    };

    d->id = dovecot_link_ask(a->dovecot, l, d->id, &request);
    if (d->id == 0) {
        not_judged(a, l, "the connection to Dovecot was lost");
        return;
    }
    l->state = LOGIN_ASKED;
    buf_wipe(&l->message);
}

/* Processes a message whose turn it is. */
static void work_on(struct auth *a, struct login *l)
{
    struct buf challenge;

    if ((l->elsewhere != NULL) != (a->dovecot != NULL) ||
        (l->elsewhere != NULL && l->elsewhere->id == 0 && !l->first)) {
        not_judged(a, l, "the configuration has changed meanwhile");
        return;
    }
    if (l->elsewhere != NULL) {
        ask_dovecot(a, l);
        return;
    }
    buf_init(&challenge, WIRE_CHALLENGE_MAX);
    l->result = judge(l, &challenge);
    buf_wipe(&l->message);
    buf_fini(&l->message);
    l->message = challenge;
    decided(a, l);
}

static void on_work(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval now = {0};
    struct auth *a = arg;
    struct login *l;

    (void)fd;
    (void)what;
    for (unsigned i = 0; i < AUTH_TURN && (l = take_turn(a)) != NULL; i++) {
        work_on(a, l);
    }
    if (a->lines != NULL) {
        CHECK(event_add(a->work, &now) == 0);
    }
}

/* ---- Dovecot -------------------------------------------------------------------------------- */

static char *copy(struct slice s)
{
    return mem_copy(s.ptr, s.len);
}

static void on_dovecot(void *arg, const struct dovecot_event *event)
{
    struct login *l = arg;
    struct dovecot_login *d = l->elsewhere;
    struct auth *a = l->link->auth;

    CHECK(l->state == LOGIN_ASKED);
    buf_fini(&l->message);
    buf_init(&l->message, WIRE_CHALLENGE_MAX);
    if (event->type == DOVECOT_CHALLENGE) {
        if (!buf_add(&l->message, event->challenge)) {
            buf_clear(&l->message);
            dovecot_link_forget(a->dovecot, d->id);
            d->id = 0;
            not_judged(a, l, "Dovecot's challenge is too long");
            return;
        }
        l->result = WIRE_AUTH_CHALLENGE;
        decided(a, l);
        return;
    }
    d->id = 0;
    if (event->type == DOVECOT_UNAVAILABLE) {
        not_judged(a, l, event->why);
        return;
    }
    l->result = event->type == DOVECOT_ACCEPTED ? WIRE_AUTH_ACCEPTED : WIRE_AUTH_REFUSED;
    d->user = copy(event->user);
    d->class_name = copy(event->class_name);
    d->senders = copy(event->senders);
    decided(a, l);
}

/* Sends the mechanisms offered to all receive processes. */
static void tell_mechanisms(struct auth *a)
{
    unsigned mechanisms = a->mechanisms;
    struct link *link;

    LIST_FOREACH(link, &a->links, next)
    {
        wire_put_number(link->channel, WIRE_AUTH_MECHANISMS, mechanisms);
    }
}

static void on_mechanisms(void *arg, unsigned mechanisms)
{
    struct auth *a = arg;

    a->mechanisms = mechanisms;
    tell_mechanisms(a);
}

/* Uses Dovecot or the list of users, as configured by auth_dovecot. */
static void choose_backend(struct auth *a)
{
    const char *path = a->role->conf->auth_dovecot;

    if (path[0] == '\0') {
        dovecot_link_free(a->dovecot);
        a->dovecot = NULL;
        on_mechanisms(a, SASL_MECHANISMS);
    } else if (a->dovecot == NULL) {
        a->mechanisms = AUTH_DOVECOT_MECHANISMS;
        a->dovecot = dovecot_link_new(a->role, on_dovecot, on_mechanisms, a);
        tell_mechanisms(a);
    } else if (strcmp(path, a->dovecot_path) != 0) {
        dovecot_link_lost(a->dovecot);
    }
    mem_free(a->dovecot_path);
    a->dovecot_path = copy(slice_string(path));
}

static bool auth_parent_frame(struct role *role, const struct frame *frame)
{
    struct auth *a = role->state;
    struct wire_auth_connected m;
    struct wire_auth_key key;

    if (frame->type == WIRE_AUTH_KEY && wire_get_auth_key(frame->body, &key)) {
        memcpy(a->key, key.bytes.ptr, sizeof a->key);
        return true;
    }

    if (frame->type != WIRE_AUTH_CONNECTED || !wire_get_auth_connected(frame->body, &m)) {
        return false;
    }
    if (a->dovecot != NULL) {
        dovecot_link_connected(a->dovecot, frame->fd, m.why);
    } else if (frame->fd >= 0) {
        (void)close(frame->fd); /* unused */
    }
    return true;
}

/* ---- receive processes ---------------------------------------------------------------------- */

static bool find_user(void *arg, struct slice user, struct scram_secret *ret_secret)
{
    struct login *l = arg;
    const struct auth *a = l->link->auth;
    const struct verifier *v = verifier_list_find(a->users, user);

    if (v != NULL && stamp_of(a, user, &l->stamp)) {
        *ret_secret = v->secret;
        return true;
    }
    verifier_make_up(a->users, a->key, user, ret_secret);
    return false;
}

static struct login *login_new(struct link *link, const struct wire_auth *m)
{
    struct login *l = mem_new(sizeof *l);
    char nonce[2 * NONCE_BYTES];

    entropy_text(nonce, sizeof nonce);
    l->link = link;
    l->id = m->login;
    l->client = guesses_client(m->client);
    buf_init(&l->message, AUTH_MESSAGE_MAX);
    l->is_token = m->mechanism == WIRE_AUTH_TOKEN;
    sasl_server_init(&l->sasl, l->is_token ? SASL_PLAIN : (enum sasl_mechanism)m->mechanism,
                     slice_of(nonce, sizeof nonce), find_user, l);
    if (link->auth->dovecot != NULL && !l->is_token) {
        l->elsewhere = mem_new(sizeof *l->elsewhere);
        l->elsewhere->remote = copy(m->client);
        l->elsewhere->local = copy(m->local);
    }
    HASH_ADD(hh, link->logins, id, sizeof l->id, l);
    link->auth->logins++;
    return l;
}

static struct login *find_login(struct link *link, uint64_t id)
{
    struct login *l;

    HASH_FIND(hh, link->logins, &id, sizeof id, l);
    return l;
}

/* Is the message valid? A token has a single message, sent at once. */
static bool is_wellformed(const struct wire_auth *m)
{
    uint32_t mechanism = m->mechanism;

    if (mechanism == WIRE_AUTH_TOKEN) {
        return m->first && m->has_message;
    }
    return (mechanism & SASL_MECHANISMS) == mechanism && mechanism != 0 &&
           (mechanism & (mechanism - 1)) == 0;
}

/* Returns false for a frame that receive must not send. */
static bool take_message(struct link *link, struct slice body)
{
    struct auth *a = link->auth;
    struct wire_auth m;
    struct login *l;

    if (!wire_get_auth(body, &m) || !is_wellformed(&m)) {
        return false;
    }
    l = find_login(link, m.login);
    if (m.first ? l != NULL : l == NULL || l->state != LOGIN_IDLE || !m.has_message) {
        return false;
    }
    if (l == NULL) {
        if (a->logins >= AUTH_LOGINS_MAX) {
            refuse_at_once(link, m.login, WIRE_AUTH_BUSY);
            return true;
        }
        l = login_new(link, &m);
    }
    buf_fini(&l->message);
    buf_init(&l->message, AUTH_MESSAGE_MAX);
    if (!buf_add(&l->message, m.message)) {
        refuse_at_once(link, m.login, WIRE_AUTH_MALFORMED);
        login_free(l);
        return true;
    }
    l->first = m.first;
    l->has_message = m.has_message;
    join_line(a, l);
    return true;
}

static bool take_end(struct link *link, struct slice body)
{
    struct login *l;
    uint64_t id;

    if (!wire_get_number(body, &id)) {
        return false;
    }
    l = find_login(link, id);
    if (l != NULL) { /* else the answer was already sent */
        login_free(l);
    }
    return true;
}

/* Checks whether a login is still valid after the list was read again. */
static bool take_check(struct link *link, struct slice body)
{
    struct wire_auth_check m;
    uint64_t stamp;

    if (!wire_get_auth_check(body, &m)) {
        return false;
    }
    if (!stamp_of(link->auth, m.user, &stamp) || stamp != m.stamp) {
        wire_put_number(link->channel, WIRE_AUTH_OVER, m.login);
    }
    return true;
}

static void link_free(struct link *link)
{
    struct login *l, *following;

    HASH_ITER(hh, link->logins, l, following)
    {
        login_free(l);
    }
    LIST_REMOVE(link, next);
    channel_free(link->channel);
    mem_free(link);
}

static bool take_frame(struct link *link, const struct frame *frame)
{
    if (frame->fd >= 0) {
        (void)close(frame->fd); /* no frame to this process has one */
        return false;
    }
    switch (frame->type) {
    case WIRE_AUTH:
        return take_message(link, frame->body);
    case WIRE_AUTH_END:
        return take_end(link, frame->body);
    case WIRE_AUTH_CHECK:
        return take_check(link, frame->body);
    default:
        return false;
    }
}

static void on_receive(void *arg, struct channel *ch)
{
    struct link *link = arg;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (!take_frame(link, &frame)) {
            log_error("a receive process has sent what it must not: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        link_free(link);
    }
}

/* ---- the role ------------------------------------------------------------------------------- */

static struct slice file_of(const struct auth *a, const char *path)
{
    return path[0] == '\0' ? slice_of(NULL, 0) : role_file(a->role, slice_string(path));
}

/* The parent has read the lists before it sent them, and has logged their errors. */
static void read_users(struct auth *a)
{
    const char *path = a->role->conf->auth_users;
    struct verifier_list *users;
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    users = verifier_list_new(file_of(a, path), &error);
    if (users == NULL) {
        log_error("%s:%s: the users stay as they were", path, buf_cstr(&error));
    } else {
        verifier_list_free(a->users);
        a->users = users;
    }
    buf_fini(&error);
}

static void read_tokens(struct auth *a)
{
    const char *path = a->role->conf->api_tokens;
    struct token_list *tokens;
    struct buf error;

    buf_init(&error, LOG_LINE_MAX);
    tokens = token_list_new(file_of(a, path), &error);
    if (tokens == NULL) {
        log_error("%s:%s: the tokens stay as they were", path, buf_cstr(&error));
    } else {
        token_list_free(a->tokens);
        a->tokens = tokens;
    }
    buf_fini(&error);
}

static int auth_start(struct role *role)
{
    struct auth *a = mem_new(sizeof *a);

    role->state = a;
    a->role = role;
    LIST_INIT(&a->links);
    for (size_t i = 0; i < LINE_RANKS; i++) {
        TAILQ_INIT(&a->turns[i]);
    }
    entropy_fill(a->key, sizeof a->key);
    a->guesses = guesses_new();
    a->work = evtimer_new(role->base, on_work, a);
    CHECK(a->work != NULL);
    a->users = verifier_list_new(slice_of(NULL, 0), NULL); /* an empty list has no errors */
    a->tokens = token_list_new(slice_of(NULL, 0), NULL);
    read_users(a);
    read_tokens(a);
    choose_backend(a);
    return 0;
}

static void auth_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct auth *a = role->state;
    struct link *link;

    if (peer->role != ROLE_RECEIVE) {
        (void)close(fd); /* no other role connects here */
        return;
    }
    link = mem_new(sizeof *link);
    link->auth = a;
    link->channel = channel_new(role->base, fd, on_receive, link);
    channel_keep_secret(link->channel);
    LIST_INSERT_HEAD(&a->links, link, next);
    wire_put_number(link->channel, WIRE_AUTH_MECHANISMS, a->mechanisms);
}

static void auth_reload(struct role *role, const struct conf *old)
{
    (void)old;
    read_users(role->state);
    read_tokens(role->state);
    choose_backend(role->state);
    tell_mechanisms(role->state); /* makes receive check its logins */
}

static void auth_clock_moved(struct role *role)
{
    struct auth *a = role->state;

    if (a->dovecot != NULL) {
        dovecot_link_clock_moved(a->dovecot);
    }
}

/* The clients of this role have already stopped. */
static void auth_stop(struct role *role)
{
    role_exit(role, 0);
}

static void auth_end(struct role *role)
{
    struct auth *a = role->state;
    struct link *link;

    while ((link = LIST_FIRST(&a->links)) != NULL) {
        link_free(link);
    }
    dovecot_link_free(a->dovecot);
    mem_free(a->dovecot_path);
    event_free(a->work);
    guesses_free(a->guesses);
    verifier_list_free(a->users);
    token_list_free(a->tokens);
    mem_free(a);
}

static unsigned auth_count(const struct conf *conf)
{
    return conf->auth_users[0] != '\0' || conf->auth_dovecot[0] != '\0' ||
                   conf->api_tokens[0] != '\0'
               ? 1
               : 0;
}

const struct role_ops auth_role = {
    .role = ROLE_AUTH,
    .program = "auth",
    .kind = ROLE_WORKS,
    .count = auth_count,
    .start = auth_start,
    .peer = auth_peer,
    .parent_frame = auth_parent_frame,
    .reload = auth_reload,
    .stop = auth_stop,
    .clock_moved = auth_clock_moved,
    .end = auth_end,
};
