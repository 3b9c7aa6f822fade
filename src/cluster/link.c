#include "link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "boot_clock.h"
#include "check.h"
#include "mem.h"

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_PREPARING, LINK_UP };

struct link {
    int epoll_fd;
    const struct link_target *target;
    const struct link_owner *owner;
    void *arg;
    enum link_state state;
    PGconn *conn;         /* owned; NULL in state DOWN */
    int fd;               /* watched descriptor, or -1 */
    uint32_t events;      /* events watched for */
    int timer;            /* owned; ends connecting, and waiting for answers */
    bool broken;          /* whether the next turn must close the connection */
    bool is_refused;      /* described at link_is_refused */
    unsigned passed_over; /* number of hosts that were tried in vain */
    int64_t timeline;     /* timeline of the server; 0 if unknown or none */
    const char *prepared[LINK_PREPARED_MAX];
    unsigned prepared_count;
    unsigned settings;         /* number of settings that were not answered */
    unsigned asked;            /* number of syncs that were not answered, in state UP */
    int64_t heard_at, look_at; /* microseconds: time of the last answer; end of the timer, or 0 */
    int64_t silence;           /* time without an answer that is allowed, in microseconds */
    unsigned silences;         /* connections that silence has ended since the last answer */
    char error[LINK_ERROR_MAX];
};

/* ---- watching -------------------------------------------------------------------------------- */

static void unwatch(struct link *l)
{
    if (l->fd >= 0) {
        (void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL); /* libpq may have closed it */
        l->fd = -1;
    }
}

/* libpq may change its socket while it connects, and reuse the number. */
static void watch(struct link *l, uint32_t events, bool anew)
{
    struct epoll_event e = {.events = events};
    int fd = PQsocket(l->conn);

    if (fd == l->fd && events == l->events && !anew) {
        return;
    }
    if (fd != l->fd || anew) {
        unwatch(l);
        CHECK(epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0);
    } else {
        CHECK(epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, fd, &e) == 0);
    }
    l->fd = fd;
    l->events = events;
}

static void set_timer(const struct link *l, int64_t us)
{
    struct itimerspec at = {.it_value = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}};

    CHECK(timerfd_settime(l->timer, 0, &at, NULL) == 0);
}

static bool timer_is_over(const struct link *l)
{
    uint64_t times;

    return read(l->timer, &times, sizeof times) == (ssize_t)sizeof times;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* libpq's error texts end with a line feed, and may have several lines. */
static void keep_error(struct link *l, const char *words)
{
    size_t len;

    (void)snprintf(l->error, sizeof l->error, "%s", words); /* cut if too long */
    len = strlen(l->error);
    while (len > 0 && l->error[len - 1] == '\n') {
        l->error[--len] = '\0';
    }
    for (size_t i = 0; i < len; i++) {
        l->error[i] = l->error[i] == '\n' || l->error[i] == '\t' ? ' ' : l->error[i];
    }
}

static void go_down(struct link *l)
{
    set_timer(l, 0);
    unwatch(l);
    PQfinish(l->conn);
    l->conn = NULL;
    l->state = LINK_DOWN;
    l->broken = false;
    l->asked = 0;
    l->look_at = 0;
    l->owner->changed(l->arg, l, false);
}

/* ---- silence --------------------------------------------------------------------------------- */

static int64_t patience(const struct link *l)
{
    int64_t us = l->silence;

    for (unsigned i = 0; i < l->silences && us < LINK_SILENCE_MAX_US; i++) {
        us *= 2;
    }
    return us < LINK_SILENCE_MAX_US ? us : LINK_SILENCE_MAX_US;
}

/* The timer is not moved with each answer; when it ends, it is set for the rest of the time. */
static void look_later(struct link *l, int64_t us)
{
    l->look_at = boot_now().us + us;
    set_timer(l, us);
}

static void asked(struct link *l)
{
    if (l->asked++ == 0) {
        l->heard_at = boot_now().us;
    }
    if (l->look_at == 0) {
        look_later(l, patience(l));
    }
}

static void answered(struct link *l, const PGresult *result)
{
    l->heard_at = boot_now().us;
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC && l->asked > 0) {
        l->asked--;
        l->silences = 0;
    }
}

/* Drops the link if the server was silent for too long. */
static void look_at_silence(struct link *l)
{
    int64_t now;

    if (l->look_at == 0 || (now = boot_now().us) < l->look_at) {
        return;
    }
    (void)timer_is_over(l); /* only resets the timer */
    l->look_at = 0;
    if (l->asked == 0) {
        return;
    }
    if (now - l->heard_at < patience(l)) {
        look_later(l, l->heard_at + patience(l) - now);
        return;
    }
    l->silences++;
    link_pass_over(l, "the server has not answered for too long");
}

void link_set_silence(struct link *l, int64_t us)
{
    l->silence = us;
}

static void on_notice(void *arg, const PGresult *result)
{
    struct link *l = arg;
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    l->owner->notice(l->arg, l, state != NULL ? state : "", words != NULL ? words : "");
}

unsigned link_words(const struct link_target *t, const char *ret_names[], const char *ret_values[])
{
    const char *const words[][2] = {
        {"host", t->host},
        {"hostaddr", t->hostaddr},
        {"port", t->port},
        {"dbname", t->database},
        {"user", t->user},
        {"password", t->password},
        {"passfile", "/nonexistent"}, /* no passwords from other files */
        {"options", t->options},
        {"sslmode", t->sslmode},
        {"sslrootcert", t->sslrootcert},
        {"sslcert", t->sslcert},
        {"sslkey", t->sslkey},
        {"client_encoding", "UTF8"},
        {"application_name", "sluice"},
        {"target_session_attrs", t->session != NULL ? t->session : "read-write"},
        {"tcp_user_timeout", "3000"},
        {"keepalives_idle", "2"},
        {"keepalives_interval", "2"},
        {"gssencmode", "disable"},
    };
    unsigned count = 0;

    _Static_assert(sizeof words / sizeof words[0] < LINK_WORDS_MAX, "and NULL");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i][1] != NULL) {
            ret_names[count] = words[i][0];
            ret_values[count++] = words[i][1];
        }
    }
    ret_names[count] = NULL;
    ret_values[count] = NULL;
    return count;
}

unsigned link_hosts(const struct link_target *t)
{
    unsigned count = 1;

    for (const char *c = t->host; c != NULL && *c != '\0'; c++) {
        count += *c == ',';
    }
    return count;
}

/* Returns a new list with the first `by` elements moved to the end; NULL for NULL. */
static char *rotated(const char *list, unsigned by)
{
    const char *rest = list;
    char *to;
    size_t len;

    if (list == NULL) {
        return NULL;
    }
    len = strlen(list);
    for (unsigned i = 0; i < by && rest != NULL; i++) {
        rest = strchr(rest, ',');
        rest = rest == NULL ? NULL : rest + 1;
    }
    if (rest == NULL || rest == list) {
        return mem_string(list);
    }
    to = mem_new(len + 2);
    (void)snprintf(to, len + 2, "%s,%.*s", rest, (int)(rest - list - 1), list); /* same length */
    return to;
}

struct link_target link_rotate(const struct link_target *t, unsigned by,
                               char *ret_lists[LINK_LISTS])
{
    struct link_target to = *t;

    to.host = ret_lists[0] = rotated(t->host, by);
    to.hostaddr = ret_lists[1] = rotated(t->hostaddr, by);
    to.port = ret_lists[2] = rotated(t->port, by);
    return to;
}

void link_connect(struct link *l)
{
    const char *names[LINK_WORDS_MAX], *values[LINK_WORDS_MAX];
    char *lists[LINK_LISTS];
    struct link_target t = link_rotate(l->target, l->passed_over % link_hosts(l->target), lists);

    CHECK(l->state == LINK_DOWN);
    (void)link_words(&t, names, values);
    l->conn = PQconnectStartParams(names, values, 0);
    CHECK(l->conn != NULL); /* out of memory */
    for (int i = 0; i < LINK_LISTS; i++) {
        mem_free(lists[i]);
    }
    l->state = LINK_CONNECTING;
    l->is_refused = false;
    (void)PQsetNoticeReceiver(l->conn, on_notice, l);
    if (PQstatus(l->conn) == CONNECTION_BAD) {
        l->broken = true;
        keep_error(l, PQerrorMessage(l->conn));
        set_timer(l, 1);
        return;
    }
    watch(l, EPOLLOUT, true);
    set_timer(l, LINK_CONNECT_US);
}

void link_drop(struct link *l, const char *why)
{
    if (l->state != LINK_DOWN) {
        keep_error(l, why);
        go_down(l);
    }
}

void link_pass_over(struct link *l, const char *why)
{
    if (l->state != LINK_DOWN) {
        l->passed_over++;
        link_drop(l, why);
    }
}

bool link_has_others(const struct link *l)
{
    return link_hosts(l->target) > 1;
}

static const char timeline_sql[] = "SELECT " LINK_SQL_TIMELINE " AS timeline";

/* Has the owner seen a higher timeline? */
static bool is_old(const struct link *l)
{
    return l->target->timeline != NULL && l->timeline > 0 && l->timeline < *l->target->timeline;
}

static void pass_over_old(struct link *l)
{
    char words[128];

    (void)snprintf(words, sizeof words,
                   "the server is an old primary: its timeline is %" PRId64
                   ", another has had %" PRId64,
                   l->timeline, *l->target->timeline); /* fits */
    link_pass_over(l, words);
}

static void prepared_name(char room[16], unsigned index)
{
    (void)snprintf(room, 16, "s%u", index); /* fits */
}

/* Sends a statement with a sync of its own, so that its failure does not affect others. */
static bool send_alone(struct link *l, const char *sql)
{
    l->settings++;
    return PQsendQueryParams(l->conn, sql, 0, NULL, NULL, NULL, NULL, 1) == 1 &&
           PQpipelineSync(l->conn) == 1;
}

static bool send_settings(struct link *l)
{
    l->settings = 0;
    l->timeline = 0;
    for (const char *const *sql = l->target->settings; sql != NULL && *sql != NULL; sql++) {
        if (!send_alone(l, *sql)) {
            return false;
        }
    }
    return l->target->timeline == NULL || send_alone(l, timeline_sql);
}

/* Enlarges the buffer of a Unix socket, as a batch with content is larger than the default. libpq
 * tries to send after each message of a batch, and moves the rest to the front of its memory each
 * time. TCP buffers grow automatically. */
static void widen(const PGconn *conn)
{
    int domain = 0, size = LINK_SOCKET_SIZE;
    socklen_t len = sizeof domain;

    if (getsockopt(PQsocket(conn), SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
        domain == AF_UNIX) {
        /* A failure only makes it slower. */
        (void)setsockopt(PQsocket(conn), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
}

/* The time limit for connecting includes the preparation of statements. */
static void connected(struct link *l)
{
    widen(l->conn);
    if (PQsetnonblocking(l->conn, 1) != 0 || PQenterPipelineMode(l->conn) != 1 ||
        !send_settings(l)) {
        link_drop(l, PQerrorMessage(l->conn));
        return;
    }
    for (unsigned i = 0; i < l->prepared_count; i++) {
        char name[16];

        prepared_name(name, i);
        if (PQsendPrepare(l->conn, name, l->prepared[i], 0, NULL) != 1) {
            link_drop(l, PQerrorMessage(l->conn));
            return;
        }
    }
    if (PQpipelineSync(l->conn) != 1) {
        link_drop(l, PQerrorMessage(l->conn));
        return;
    }
    l->state = LINK_PREPARING;
    watch(l, EPOLLIN | EPOLLOUT, true);
}

static void connect_on(struct link *l)
{
    if (timer_is_over(l)) {
        link_pass_over(l, "the server does not answer");
        return;
    }
    switch (PQconnectPoll(l->conn)) {
    case PGRES_POLLING_READING:
        watch(l, EPOLLIN, true);
        return;
    case PGRES_POLLING_WRITING:
        watch(l, EPOLLOUT, true);
        return;
    case PGRES_POLLING_OK:
        connected(l);
        return;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE:
        break;
    }
    link_pass_over(l, PQerrorMessage(l->conn));
}

/* ---- statements ------------------------------------------------------------------------------ */

static void failed(struct link *l)
{
    keep_error(l, PQerrorMessage(l->conn));
    l->broken = true;
    set_timer(l, 1); /* makes a turn happen */
}

void link_prepare(struct link *l, const char *const *sql, unsigned count)
{
    CHECK(l->state == LINK_DOWN && count <= LINK_PREPARED_MAX - l->prepared_count);
    memcpy(l->prepared + l->prepared_count, sql, count * sizeof *sql);
    l->prepared_count += count;
}

/* Returns the name of a prepared statement, stored in `room`, or NULL if it was not prepared. */
static const char *find_prepared(const struct link *l, const char *sql, char room[16])
{
    for (unsigned i = 0; i < l->prepared_count; i++) {
        if (l->prepared[i] == sql) {
            prepared_name(room, i);
            return room;
        }
    }
    return NULL;
}

void link_send(struct link *l, const char *sql, const struct link_param *params, int count)
{
    const char *values[LINK_PARAMS_MAX], *name;
    int lengths[LINK_PARAMS_MAX], formats[LINK_PARAMS_MAX];
    char room[16];

    CHECK(l->state == LINK_UP && count <= LINK_PARAMS_MAX);
    for (int i = 0; i < count; i++) {
        values[i] = params[i].bytes;
        lengths[i] = (int)params[i].len;
        formats[i] = params[i].is_binary;
    }
    if (l->broken) {
        return;
    }
    name = find_prepared(l, sql, room);
    if ((name != NULL
             ? PQsendQueryPrepared(l->conn, name, count, values, lengths, formats, 1)
             : PQsendQueryParams(l->conn, sql, count, NULL, values, lengths, formats, 1)) != 1) {
        failed(l);
    }
}

void link_sync(struct link *l)
{
    CHECK(l->state == LINK_UP);
    if (!l->broken && PQpipelineSync(l->conn) != 1) {
        failed(l);
    }
    if (!l->broken) {
        asked(l);
    }
}

/* Handles the answer to a setting or to timeline_sql. */
static void on_setting(struct link *l, const PGresult *result)
{
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
        l->settings--;
    } else if (PQntuples(result) == 1 && PQfnumber(result, "timeline") == 0 &&
               !link_number(result, 0, 0, &l->timeline)) {
        l->timeline = 0;
    }
}

static const char *words_of(const PGresult *result)
{
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    return words != NULL ? words : PQresultErrorMessage(result);
}

/* Was the statement answered by a session in which other statements are prepared? */
static bool is_shared(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    return state != NULL && (strcmp(state, "42P05") == 0 || strcmp(state, "26000") == 0);
}

/* Handles an answer in state PREPARING. The sync after the statements brings the link up. */
static void on_prepared(struct link *l, const PGresult *result)
{
    if (l->settings > 0) {
        on_setting(l, result);
        return;
    }
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
        return;
    case PGRES_PIPELINE_SYNC:
        if (is_old(l)) {
            pass_over_old(l);
            return;
        }
        set_timer(l, 0);
        l->state = LINK_UP;
        l->owner->changed(l->arg, l, true);
        return;
    default:
        l->is_refused = l->is_refused || PQresultErrorField(result, PG_DIAG_SQLSTATE) != NULL;
        keep_error(l, is_shared(result) ? LINK_SHARED_SESSION : words_of(result));
        l->broken = true;
    }
}

/* Is the result a lost connection? libpq returns this like a failed statement, but without a
 * SQLSTATE. */
static bool is_loss(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_FATAL_ERROR &&
           PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL;
}

/* Handles all answers that were received. PQgetResult returns NULL between the answers of two
 * statements, and once more before a statement that was sent while none was open. Two in a row mean
 * that nothing is open. */
static void take_answers(struct link *l)
{
    unsigned nulls = 0;

    while (l->state >= LINK_PREPARING && !l->broken && nulls < 2 && PQisBusy(l->conn) == 0) {
        PGresult *result = PQgetResult(l->conn);

        if (result == NULL) {
            nulls++;
            continue;
        }
        nulls = 0;
        if (is_loss(result)) {
            keep_error(l, PQresultErrorMessage(result));
            l->broken = true;
        } else if (l->state == LINK_UP && is_shared(result)) {
            keep_error(l, LINK_SHARED_SESSION);
            l->broken = true;
        } else if (l->state == LINK_PREPARING) {
            on_prepared(l, result);
        } else {
            answered(l, result);
            l->owner->answer(l->arg, l, result);
        }
        PQclear(result);
    }
}

static void take_notifications(struct link *l)
{
    PGnotify *n;

    while (l->state == LINK_UP && (n = PQnotifies(l->conn)) != NULL) {
        if (l->owner->notified != NULL) {
            l->owner->notified(l->arg, l, n->extra);
        }
        PQfreemem(n);
    }
}

void link_flush(struct link *l)
{
    int left;

    if (l->state < LINK_PREPARING || l->broken) {
        return;
    }
    left = PQflush(l->conn);
    if (left < 0) {
        failed(l);
    } else {
        watch(l, left > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN, false);
    }
}

static void work(struct link *l)
{
    if (PQconsumeInput(l->conn) != 1) {
        keep_error(l, PQerrorMessage(l->conn));
        l->broken = true;
    }
    take_answers(l); /* answers before the loss are valid */
    take_notifications(l);
    link_flush(l);
    if (l->state >= LINK_PREPARING && l->broken) {
        go_down(l);
    }
}

void link_turn(struct link *l)
{
    if (l->state == LINK_DOWN) {
        return;
    }
    if (l->broken) {
        go_down(l);
    } else if (l->state == LINK_CONNECTING) {
        connect_on(l);
    } else if (l->state == LINK_PREPARING && timer_is_over(l)) {
        link_pass_over(l, "the server does not answer");
    } else if (l->state == LINK_UP && is_old(l)) {
        pass_over_old(l); /* the owner has learnt the higher timeline since */
    } else {
        work(l);
        if (l->state == LINK_UP) {
            look_at_silence(l);
        }
    }
}

/* ---- interface ------------------------------------------------------------------------------- */

struct link *link_new(int epoll_fd, const struct link_target *target,
                      const struct link_owner *owner, void *arg)
{
    struct link *l = mem_new(sizeof *l);
    struct epoll_event e = {.events = EPOLLIN};

    l->epoll_fd = epoll_fd;
    l->target = target;
    l->owner = owner;
    l->arg = arg;
    l->fd = -1;
    l->silence = target->silence_us > 0 ? target->silence_us : LINK_SILENCE_US;
    l->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    CHECK(l->timer >= 0);
    CHECK(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, l->timer, &e) == 0);
    return l;
}

void link_free(struct link *l)
{
    if (l == NULL) {
        return;
    }
    unwatch(l);
    (void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->timer, NULL);
    (void)close(l->timer);
    PQfinish(l->conn); /* NULL is allowed */
    mem_free(l);
}

bool link_is_up(const struct link *l)
{
    return l->state == LINK_UP && !l->broken;
}

bool link_is_down(const struct link *l)
{
    return l->state == LINK_DOWN;
}

bool link_is_refused(const struct link *l)
{
    return l->is_refused;
}

const char *link_error(const struct link *l)
{
    return l->error;
}
