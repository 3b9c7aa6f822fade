#include "cluster_url.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "boot_clock.h"
#include "check.h"
#include "mem.h"

#define SOCKET_DIRECTORY "/var/run/postgresql"
#define SCHEMA_MAX       63 /* PostgreSQL's limit for names */
/* Number of addresses of all hosts together. */
#define ADDRESSES_MAX 32

/* ---- reading --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes %XX in place. Returns false if two hexadecimal digits are missing, or for NUL. */
static bool decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; from++) {
        int high, low;

        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        high = hex_digit(from[1]);
        low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0)) {
            return false;
        }
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = '\0';
    return true;
}

/* Ends the text at the first `end` and returns the text after it, or NULL if there is none. */
static char *cut(char *text, char end)
{
    char *at = strchr(text, end);

    if (at != NULL) {
        *at++ = '\0';
    }
    return at;
}

static bool is_port(const char *text)
{
    size_t len = strlen(text);
    unsigned n = 0;

    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || len > 5) {
            return false;
        }
        n = n * 10 + (unsigned)(*c - '0');
    }
    return n >= 1 && n <= 65535;
}

static bool wrong(struct buf *ret_error, const char *what, const char *expected)
{
    (void)buf_addf(ret_error, "postgresql: %s; expected %s", what,
                   expected); /* errors of the buffer are sticky */
    return false;
}

/* Adds a host of a list: "host", "host:port" or "[address]:port". */
static bool add_host(struct cluster_url *u, char *text, struct buf *ret_error)
{
    char *port = NULL, *host = text;

    if (u->host_count == CLUSTER_URL_HOSTS_MAX) {
        return wrong(ret_error, "too many hosts", "at most 8");
    }
    if (text[0] == '[') {
        char *end = strchr(text, ']');

        if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
            return wrong(ret_error, "an address without its ]", "[ADDRESS]:PORT");
        }
        host = text + 1;
        port = end[1] == ':' ? end + 2 : NULL;
        *end = '\0';
    } else {
        port = cut(text, ':');
    }
    if (!decode(host)) {
        return wrong(ret_error, "a % in a host without two hexadecimal digits", "%XX");
    }
    if (strchr(host, ',') != NULL) {
        return wrong(ret_error, "a comma in a host", "a name, an address or a directory");
    }
    if (port != NULL && !is_port(port)) {
        return wrong(ret_error, "what follows a host's colon is no port", "1 to 65535");
    }
    u->hosts[u->host_count] = host;
    u->ports[u->host_count++] = port;
    return true;
}

/* Reads the list of hosts in `host=`, or between // and /. */
static bool set_hosts(struct cluster_url *u, char *list, struct buf *ret_error)
{
    u->host_count = 0;
    while (list != NULL && list[0] != '\0') {
        char *next = cut(list, ',');

        if (!add_host(u, list, ret_error)) {
            return false;
        }
        list = next;
    }
    return true;
}

/* Sets one port for all hosts, or one for each. */
static bool set_ports(struct cluster_url *u, char *list, struct buf *ret_error)
{
    const char *ports[CLUSTER_URL_HOSTS_MAX];
    unsigned count = 0;

    while (list != NULL && count < CLUSTER_URL_HOSTS_MAX) {
        char *next = cut(list, ',');

        if (!is_port(list)) {
            break;
        }
        ports[count++] = list;
        list = next;
    }
    if (list != NULL || (count != 1 && count != u->host_count)) {
        return wrong(ret_error, "port= is no port, or not one for each host", "1 to 65535");
    }
    for (unsigned i = 0; i < u->host_count; i++) {
        u->ports[i] = ports[count == 1 ? 0 : i];
    }
    return true;
}

static bool set_schema(struct cluster_url *u, char *name, struct buf *ret_error)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9' && i > 0) && c != '_') {
            len = 0;
        }
    }
    if (len == 0 || len > SCHEMA_MAX) {
        return wrong(ret_error, "schema= is no such name", "a-z, 0-9 and _, at most 63 letters");
    }
    u->schema = name;
    return true;
}

/* A value is never printed, as it may be a password. */
static bool set_value(struct cluster_url *u, char *name, char *value, char **ports,
                      struct buf *ret_error)
{
    struct {
        const char *name;
        const char **value;
    } words[] = {
        {"user", &u->target.user},       {"dbname", &u->target.database},
        {"sslmode", &u->target.sslmode}, {"sslrootcert", &u->target.sslrootcert},
        {"sslcert", &u->target.sslcert}, {"sslkey", &u->target.sslkey},
    };

    if (strcmp(name, "host") == 0) {
        return set_hosts(u, value, ret_error);
    }
    if (!decode(value)) {
        return wrong(ret_error, "a % without two hexadecimal digits", "%XX");
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(name, words[i].name) == 0) {
            *words[i].value = value;
            return true;
        }
    }
    if (strcmp(name, "port") == 0) {
        *ports = value;
        return true;
    }
    if (strcmp(name, "schema") == 0) {
        return set_schema(u, value, ret_error);
    }
    if (strcmp(name, "target_session_attrs") == 0) {
        return strcmp(value, "read-write") == 0 ||
               wrong(ret_error, "target_session_attrs is not read-write", "read-write, or none");
    }
    if (strcmp(name, "password") == 0) {
        return wrong(ret_error, "a password in the URL, which everyone sees",
                     "it in the file that spool_password_file names");
    }
    (void)buf_addf(ret_error, "postgresql: found `%.40s='", name);
    return wrong(ret_error, "in the URL",
                 "host, port, user, dbname, schema, sslmode, sslrootcert, sslcert or sslkey");
}

/* Is the host this machine? */
static bool is_local(const char *host)
{
    struct in_addr v4;

    return host[0] == '/' || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

static bool set_tls(struct cluster_url *u, struct buf *ret_error)
{
    static const char *const modes[] = {"disable", "allow",     "prefer",
                                        "require", "verify-ca", "verify-full"};
    bool is_known = false, leaves = false;

    for (unsigned i = 0; i < u->host_count; i++) {
        leaves = leaves || !is_local(u->hosts[i]);
    }
    if (u->target.sslmode == NULL) {
        u->target.sslmode = leaves ? "verify-full" : "prefer";
    }
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        is_known = is_known || strcmp(u->target.sslmode, modes[i]) == 0;
    }
    if (!is_known || (leaves && strcmp(u->target.sslmode, "verify-full") != 0)) {
        return wrong(ret_error, "sslmode leaves open who the server is",
                     "verify-full, or a Unix socket or an address of this machine");
    }
    if (u->target.sslrootcert == NULL && strcmp(u->target.sslmode, "verify-full") == 0) {
        u->target.sslrootcert = SYSTEM_TRUST;
    }
    return true;
}

/* Settings of each session of a node. The first one ends sessions that could block its transactions
 * for ever. Keepalives let the server notice a lost client within a minute instead of two hours.
 * JIT is off: with enable_seqscan = off a small table without a fitting index looks so expensive
 * that each such statement would be compiled. That takes a tenth of a second. */
static const char *const queue_settings[] = {
    LINK_SQL_END_ABANDONED("interval '5 s'"),
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 4",
    "SET tcp_user_timeout = 60000",
    "SET statement_timeout = 0", /* link.h has a limit; that of the role would end commits */
    "SET idle_session_timeout = 0",
    "SET idle_in_transaction_session_timeout = 2500",
    "SET lock_timeout = 3000",
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
};
#define QUEUE_SETTINGS (sizeof queue_settings / sizeof queue_settings[0])

#define SET(name, value) ", set_config('" name "', '" value "', false)"

static void set_settings(struct cluster_url *u, enum cluster_url_use use)
{
    static const char *const settings[] = {
        [CLUSTER_URL_QUEUE] = "",
        [CLUSTER_URL_READING] = SET("default_transaction_read_only", "on")
            SET("statement_timeout", "10000") SET("lock_timeout", "3000")
                SET("plan_cache_mode", "force_generic_plan") SET("jit", "off"),
        [CLUSTER_URL_LOOKING] =
            SET("default_transaction_read_only", "on") SET("statement_timeout", "0")
                SET("lock_timeout", "3000") SET("client_min_messages", "warning"),
        [CLUSTER_URL_OPERATOR] = SET("statement_timeout", "0") SET("lock_timeout", "3000")
            SET("client_min_messages", "warning"),
    };
    unsigned count = 0;

    _Static_assert(QUEUE_SETTINGS < CLUSTER_URL_SETTINGS_MAX, "and session_sql");
    (void)snprintf(u->session_sql, sizeof u->session_sql,
                   "SELECT set_config('search_path', '\"%s\"', false)" SET(
                       "default_transaction_isolation", "read committed") "%s",
                   u->schema, settings[use]); /* fits, as a schema is short */
    u->settings[count++] = u->session_sql;
    for (size_t i = 0; use == CLUSTER_URL_QUEUE && i < QUEUE_SETTINGS; i++) {
        u->settings[count++] = queue_settings[i];
    }
    u->settings[count] = NULL;
    u->target.settings = u->settings;
    u->silent_s = CLUSTER_URL_SILENT_S;
    u->may_work = use == CLUSTER_URL_LOOKING || use == CLUSTER_URL_OPERATOR;
    u->target.session =
        use == CLUSTER_URL_READING || use == CLUSTER_URL_LOOKING ? "primary" : "read-write";
}

bool cluster_url_parse(struct cluster_url *u, const char *where, enum cluster_url_use use,
                       struct buf *ret_error)
{
    char *at, *rest, *query, *ports = NULL;

    memset(u, 0, sizeof *u);
    where += strncmp(where, "postgresql:", strlen("postgresql:")) == 0 ? strlen("postgresql:") : 0;
    u->text = mem_string("postgresql:");
    if (strlen(where) > CLUSTER_URL_MAX) {
        return wrong(ret_error, "a URL that is too long", "at most 2000 bytes");
    }
    if (strncmp(where, "//", 2) != 0 || strchr(where + 2, '/') == NULL) {
        return wrong(ret_error, "no // or no / after the hosts", CLUSTER_URL_FORM);
    }
    u->room = mem_string(where);
    u->schema = "sluice";
    at = u->room + 2;
    rest = cut(at, '/');
    query = cut(rest, '?');
    if (strchr(at, '@') != NULL) {
        char *user = at;

        at = cut(at, '@');
        if (strchr(user, ':') != NULL) {
            return wrong(ret_error, "a password in the URL, which everyone sees",
                         "it in the file that spool_password_file names");
        }
        if (!decode(user)) {
            return wrong(ret_error, "a % in the user without two hexadecimal digits", "%XX");
        }
        u->target.user = user;
    }
    if (!decode(rest)) {
        return wrong(ret_error, "a % in the database without two hexadecimal digits", "%XX");
    }
    u->target.database = rest;
    if (!set_hosts(u, at, ret_error)) {
        return false;
    }
    while (query != NULL && query[0] != '\0') {
        char *next = cut(query, '&');
        char *value = cut(query, '=');

        if (value == NULL) {
            return wrong(ret_error, "a word after the ? without a value", "NAME=VALUE");
        }
        if (!set_value(u, query, value, &ports, ret_error)) {
            return false;
        }
        query = next;
    }
    if (u->host_count == 0) {
        u->hosts[0] = SOCKET_DIRECTORY;
        u->host_count = 1;
    }
    if (ports != NULL && !set_ports(u, ports, ret_error)) {
        return false;
    }
    if (u->target.database[0] == '\0') {
        return wrong(ret_error, "no database", CLUSTER_URL_FORM);
    }
    if (!set_tls(u, ret_error)) {
        return false;
    }
    set_settings(u, use);
    mem_free(u->text);
    u->text = mem_new(strlen(where) + strlen("postgresql:") + 1);
    (void)sprintf(u->text, "postgresql:%s", where); /* fits */
    return true;
}

static void forget_password(struct cluster_url *u)
{
    if (u->password != NULL) {
        explicit_bzero(u->password, strlen(u->password));
        mem_free(u->password);
    }
    u->password = NULL;
    u->target.password = NULL;
}

void cluster_url_set_password(struct cluster_url *u, struct slice file)
{
    struct slice line = slice_cut(&file, '\n');

    if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
        line.len--;
    }
    forget_password(u);
    if (line.len > 0) {
        u->password = mem_new(line.len + 1);
        memcpy(u->password, line.ptr, line.len);
        u->target.password = u->password;
    }
}

void cluster_url_fini(struct cluster_url *u)
{
    forget_password(u);
    for (size_t i = 0; i < 3; i++) {
        mem_free(u->lists[i]);
    }
    mem_free(u->room);
    mem_free(u->text);
    memset(u, 0, sizeof *u);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Appends an address to the three lists. */
static void add_address(struct buf lists[3], unsigned *count, const char *host, const char *address,
                        const char *port)
{
    const char *const words[] = {host, address, port != NULL ? port : ""};

    for (size_t i = 0; i < 3; i++) {
        (void)buf_addf(&lists[i], "%s%s", *count > 0 ? "," : "", words[i]);
    }
    ++*count;
}

static void look_up(struct buf lists[3], unsigned *count, const char *host, const char *port,
                    struct buf *ret_error)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char address[NI_MAXHOST];
    int result = getaddrinfo(host, NULL, &hints, &found);

    if (result != 0) {
        (void)buf_addf(ret_error, "%s%s: %s", buf_len(ret_error) > 0 ? "; " : "", host,
                       gai_strerror(result));
        return;
    }
    for (const struct addrinfo *i = found; i != NULL && *count < ADDRESSES_MAX; i = i->ai_next) {
        if (getnameinfo(i->ai_addr, i->ai_addrlen, address, sizeof address, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            add_address(lists, count, host, address, port);
        }
    }
    freeaddrinfo(found);
}

bool cluster_url_resolve(struct cluster_url *u, struct buf *ret_error)
{
    struct buf lists[3], why;
    unsigned count = 0;

    for (size_t i = 0; i < 3; i++) {
        buf_init(&lists[i], (size_t)ADDRESSES_MAX * (CLUSTER_URL_MAX + 1));
    }
    buf_init(&why, 2000);
    for (unsigned i = 0; i < u->host_count; i++) {
        if (u->hosts[i][0] == '/') {
            add_address(lists, &count, u->hosts[i], "", u->ports[i]);
        } else {
            look_up(lists, &count, u->hosts[i], u->ports[i], &why);
        }
    }
    if (count > 0) {
        for (size_t i = 0; i < 3; i++) {
            mem_free(u->lists[i]);
            u->lists[i] = mem_string(buf_cstr(&lists[i]));
        }
        u->target.host = u->lists[0];
        u->target.hostaddr = u->lists[1];
        u->target.port = u->lists[2];
    } else {
        (void)buf_addf(ret_error, "spool %s: %s", u->text, buf_cstr(&why));
    }
    for (size_t i = 0; i < 3; i++) {
        buf_fini(&lists[i]);
    }
    buf_fini(&why);
    return count > 0;
}

/* ---- connecting and waiting ------------------------------------------------------------------ */

static PGconn *connect_once(const struct link_target *t, PGPing *ret_ping)
{
    const char *names[LINK_WORDS_MAX + 2], *values[LINK_WORDS_MAX + 2];
    unsigned count = link_words(t, names, values);
    PGconn *conn;

    names[count] = "connect_timeout";
    values[count] = "5";
    names[count + 1] = NULL;
    values[count + 1] = NULL;
    conn = PQconnectdbParams(names, values, 0);
    if (ret_ping != NULL) {
        *ret_ping = PQstatus(conn) == CONNECTION_OK ? PQPING_OK : PQpingParams(names, values, 0);
    }
    return conn;
}

/* Waits until a result can be read. Returns false at the end of the time. */
static bool wait_ready(PGconn *conn, int64_t us)
{
    struct mono until = mono_after(boot_now(), us);
    struct pollfd ready = {.fd = PQsocket(conn), .events = POLLIN};

    while (PQisBusy(conn) == 1 && !mono_reached(until, boot_now())) {
        ready.events = PQflush(conn) == 1 ? POLLIN | POLLOUT : POLLIN;
        (void)poll(&ready, 1, 200);
        if (PQconsumeInput(conn) != 1) {
            return true; /* the connection is lost; its result has the error */
        }
    }
    return PQisBusy(conn) == 0 || PQstatus(conn) != CONNECTION_OK;
}

/* State of a statement without an answer. */
enum progress {
    PROGRESS_ANSWERED,
    PROGRESS_LOST,    /* the server is silent, or its session is idle */
    PROGRESS_STANDBY, /* its commit waits for a standby */
    PROGRESS_WORK,    /* the server works on it, or its state is unknown */
};

static enum progress ask_of_session(PGconn *conn, int pid)
{
    enum progress progress = PROGRESS_WORK;
    char sql[256];
    PGresult *r;
    long said;

    (void)snprintf(
        sql, sizeof sql,
        "SELECT CASE WHEN wait_event = 'SyncRep' THEN %d WHEN state LIKE 'idle%%' THEN %d "
        "ELSE %d END FROM pg_stat_activity WHERE pid = %d",
        PROGRESS_STANDBY, PROGRESS_LOST, PROGRESS_WORK, pid); /* fits */
    if (PQsendQuery(conn, sql) != 1 || !wait_ready(conn, CLUSTER_URL_ANSWER_S * US_PER_S)) {
        return PROGRESS_LOST;
    }
    r = PQgetResult(conn);
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1) {
        said = strtol(PQgetvalue(r, 0, 0), NULL, 10);
        progress = said == PROGRESS_STANDBY ? PROGRESS_STANDBY
                   : said == PROGRESS_LOST  ? PROGRESS_LOST
                                            : PROGRESS_WORK;
    }
    PQclear(r);
    return progress;
}

/* Asks the same host over a second connection. A server that refuses the connection is not
 * silent. */
static enum progress look_at_progress(const struct cluster_url *u, const PGconn *conn)
{
    struct link_target t = u->target;
    enum progress progress = PROGRESS_WORK;
    PGPing ping;
    PGconn *second;

    t.host = PQhost(conn);
    t.hostaddr = t.host[0] == '/' ? NULL : PQhostaddr(conn);
    t.port = PQport(conn);
    second = connect_once(&t, &ping);
    if (PQstatus(second) == CONNECTION_OK) {
        progress = ask_of_session(second, PQbackendPID(conn));
    } else if (ping == PQPING_NO_RESPONSE) {
        progress = PROGRESS_LOST;
    }
    PQfinish(second);
    return progress;
}

/* Waits for the last result, as PQexec does. Closes the connection if no result arrives in this
 * time and the server does not work on the statement, as far as `looks` (may be NULL) can find
 * out. */
static PGresult *wait_for(PGconn *conn, int64_t us, const struct cluster_url *looks,
                          enum progress *ret_progress)
{
    struct mono until = mono_after(boot_now(), CLUSTER_URL_WORK_S * US_PER_S);
    PGresult *r, *last = NULL;

    *ret_progress = PROGRESS_ANSWERED;
    for (;;) {
        while (!wait_ready(conn, us)) {
            *ret_progress = looks != NULL ? look_at_progress(looks, conn) : PROGRESS_LOST;
            if (*ret_progress != PROGRESS_WORK || mono_reached(until, boot_now())) {
                (void)shutdown(PQsocket(conn), SHUT_RDWR);
                PQclear(last);
                return NULL;
            }
            *ret_progress = PROGRESS_ANSWERED;
        }
        r = PQgetResult(conn);
        if (r == NULL) {
            return last;
        }
        PQclear(last);
        last = r;
    }
}

static const char *const progress_words[] = {
    [PROGRESS_ANSWERED] = NULL,
    [PROGRESS_LOST] = "the server has not answered",
    [PROGRESS_STANDBY] =
        "the change is made on the server and waits for a standby, which is to have "
        "it before it is in force; none has answered",
    [PROGRESS_WORK] = "the server has not ended what was asked, on which it has worked",
};

PGresult *cluster_url_wait(struct cluster_url *u, PGconn *conn, int is_sent)
{
    enum progress progress = PROGRESS_ANSWERED;
    PGresult *r = is_sent != 1
                      ? NULL
                      : wait_for(conn, u->silent_s * US_PER_S, u->may_work ? u : NULL, &progress);

    u->silence = progress_words[progress];
    u->silence_s = progress == PROGRESS_WORK ? CLUSTER_URL_WORK_S : u->silent_s;
    return r;
}

/* Returns the state of the statement if its connection is closed before the answer. */
static enum cluster_url_doubt doubt_of(const PGconn *conn, const char *sql)
{
    if (strstr(sql, "COMMIT") != NULL) {
        return CLUSTER_URL_IN_DOUBT;
    }
    if (PQtransactionStatus(conn) == PQTRANS_INTRANS || strncmp(sql, "BEGIN", 5) == 0) {
        return CLUSTER_URL_NOT_DONE;
    }
    return strncmp(sql, "SELECT", 6) == 0 ? CLUSTER_URL_NO_CHANGE : CLUSTER_URL_IN_DOUBT;
}

PGresult *cluster_url_exec(struct cluster_url *u, PGconn *conn, const char *sql, int count,
                           const char *const *values)
{
    u->doubt = doubt_of(conn, sql);
    return cluster_url_wait(u, conn,
                            count == 0
                                ? PQsendQuery(conn, sql)
                                : PQsendQueryParams(conn, sql, count, NULL, values, NULL, NULL, 0));
}

void cluster_url_say_error(const struct cluster_url *u, const PGconn *conn, struct buf *ret_error)
{
    static const char *const doubts[] = {
        [CLUSTER_URL_NO_CHANGE] = "",
        [CLUSTER_URL_NOT_DONE] = "; its transaction is not done",
        [CLUSTER_URL_IN_DOUBT] = "; what was asked may be done all the same",
    };
    struct slice words = slice_trim(slice_string(PQerrorMessage(conn)));

    if (u->silence != NULL) {
        (void)buf_addf(ret_error, "spool %s: %s for %d s%s", u->text, u->silence, u->silence_s,
                       doubts[u->doubt]);
    } else {
        (void)buf_addf(ret_error, "spool %s: %.*s", u->text, SLICE_ARGS(words));
    }
}

/* Host of the URL with its connection. */
struct candidate {
    PGconn *conn;     /* NULL if the host accepts no writes or is silent */
    int64_t timeline; /* 0 if unknown */
    char *name;       /* owned */
};

/* Sends a statement that returns a number, which is 0 in *ret after an error. Returns false if the
 * server is silent. */
static bool ask_number(PGconn *conn, const char *sql, int64_t *ret)
{
    enum progress progress;
    PGresult *r;

    *ret = 0;
    if (PQsendQuery(conn, sql) != 1) {
        return true; /* the connection is lost; the next statement fails with the reason */
    }
    r = wait_for(conn, CLUSTER_URL_ANSWER_S * US_PER_S, NULL, &progress);
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1) {
        *ret = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
    }
    PQclear(r);
    return progress == PROGRESS_ANSWERED;
}

static int64_t session_of(PGconn *conn)
{
    int64_t pid;

    (void)ask_number(conn, "SELECT pg_backend_pid()", &pid); /* 0 for silence, too */
    return pid;
}

/* Does a pool of connections give transactions of one connection different sessions? A server of
 * PostgreSQL names its session when it accepts the connection, and a pool gives a number that it
 * has made up. In this case a second connection uses the pool alternately. If sessions are shared,
 * it gets the session of the first one, or one of the two gets another than before. */
static bool shares_sessions(const struct link_target *t, PGconn *conn)
{
    int64_t pid = session_of(conn), second_pid;
    bool shared = false;
    PGconn *second;

    if (pid == 0 || pid == PQbackendPID(conn)) {
        return false;
    }
    second = connect_once(t, NULL);
    second_pid = session_of(second);
    for (int i = 0; i < 8 && second_pid != 0 && !shared; i++) {
        shared = second_pid == pid || session_of(second) != second_pid || session_of(conn) != pid;
    }
    PQfinish(second);
    return shared;
}

/* Makes a new connection usable. Returns false with the reason in *why. */
static bool is_usable(const struct cluster_url *u, const struct link_target *t, struct candidate *c,
                      struct buf *why)
{
    enum progress progress;
    PGresult *r;
    bool is_set = PQsendQuery(c->conn, u->session_sql) == 1;

    /* A pool accepts connections without a server. */
    r = is_set ? wait_for(c->conn, CLUSTER_URL_ANSWER_S * US_PER_S, NULL, &progress) : NULL;
    if (is_set && progress != PROGRESS_ANSWERED) {
        (void)buf_addf(why, "the server lets us in, and has not answered for %d s",
                       CLUSTER_URL_ANSWER_S);
        is_set = false;
    } else if (PQresultStatus(r) != PGRES_TUPLES_OK) {
        (void)buf_addf(why, "%.*s", SLICE_ARGS(slice_trim(slice_string(PQerrorMessage(c->conn)))));
        is_set = false;
    }
    PQclear(r);
    if (!is_set) {
        return false;
    }
    /* 0 for another engine, without timelines */
    if (!ask_number(c->conn, "SELECT " LINK_SQL_TIMELINE, &c->timeline)) {
        (void)buf_addf(why, "the server lets us in, and has not answered for %d s",
                       CLUSTER_URL_ANSWER_S);
        return false;
    }
    if (shares_sessions(t, c->conn)) {
        (void)buf_addf(why, "%s", LINK_SHARED_SESSION);
        return false;
    }
    return true;
}

static void try_host(const struct cluster_url *u, unsigned n, struct candidate *c, struct buf *why)
{
    char *lists[LINK_LISTS];
    struct link_target t = link_rotate(&u->target, n, lists);

    for (int i = 0; i < LINK_LISTS; i++) {
        if (lists[i] != NULL) {
            lists[i][strcspn(lists[i], ",")] = '\0'; /* keep the first host only */
        }
    }
    c->name = mem_string(lists[0] != NULL && lists[0][0] != '\0' ? lists[0] : "the usual host");
    c->conn = connect_once(&t, NULL);
    if (PQstatus(c->conn) != CONNECTION_OK) {
        (void)buf_addf(why, "%s%.*s%s", buf_len(why) > 0 ? "\n" : "",
                       SLICE_ARGS(slice_trim(slice_string(PQerrorMessage(c->conn)))),
                       PQconnectionNeedsPassword(c->conn) == 1
                           ? "; spool_password_file names the file for it"
                           : "");
        PQfinish(c->conn);
        c->conn = NULL;
    } else {
        (void)buf_addf(why, "%s", buf_len(why) > 0 ? "\n" : "");
        if (!is_usable(u, &t, c, why)) {
            PQfinish(c->conn);
            c->conn = NULL;
        }
    }
    for (int i = 0; i < LINK_LISTS; i++) {
        mem_free(lists[i]);
    }
}

/* Returns the first connection with the highest timeline. A host with a lower one is an old
 * primary, whose standby was promoted. */
static PGconn *choose(const struct cluster_url *u, struct candidate *cs, unsigned count,
                      struct buf *ret_error)
{
    struct candidate *best = NULL;

    for (unsigned i = 0; i < count; i++) {
        if (cs[i].conn != NULL && (best == NULL || cs[i].timeline > best->timeline)) {
            best = &cs[i];
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (cs[i].conn != NULL && cs[i].timeline < best->timeline && cs[i].timeline > 0) {
            (void)buf_addf(ret_error,
                           "spool %s: %s is passed over: it is an old primary (timeline %" PRId64
                           ", and %s has %" PRId64 "); stop it\n",
                           u->text, cs[i].name, cs[i].timeline, best->name, best->timeline);
        }
        if (&cs[i] != best) {
            PQfinish(cs[i].conn); /* NULL is allowed */
        }
    }
    for (unsigned i = 0; i < count; i++) {
        mem_free(cs[i].name);
    }
    return best != NULL ? best->conn : NULL;
}

PGconn *cluster_url_connect(const struct cluster_url *u, struct buf *ret_error)
{
    struct candidate candidates[ADDRESSES_MAX] = {{.conn = NULL}};
    unsigned count = link_hosts(&u->target);
    struct buf why;
    PGconn *conn;

    CHECK(count <= ADDRESSES_MAX);
    buf_init(&why, 8192);
    for (unsigned i = 0; i < count; i++) {
        try_host(u, i, &candidates[i], &why);
    }
    conn = choose(u, candidates, count, ret_error);
    if (conn == NULL) {
        (void)buf_addf(ret_error, "spool %s: %s", u->text, buf_cstr(&why));
    }
    buf_fini(&why);
    return conn;
}
