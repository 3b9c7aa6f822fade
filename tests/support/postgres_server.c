#include "postgres_server.h"

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "cluster_spool.h"
#include "cluster_tables.h"

#define NOBODY 65534
#define USER   "tester"
#define PATH   200

/* What scripts/tools has unpacked, else what is installed. */
static const char *const places[] = {TOOLS_DIR "/usr/lib/postgresql/15/bin",
                                     "/usr/lib/postgresql/15/bin"};

/* In a child: for good. */
static bool become_ordinary_user(void)
{
    return geteuid() != 0 ||
           (setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* May an ordinary user run this? */
static bool is_runnable(const char *path)
{
    int status = 0;
    pid_t pid = fork();

    assert_return_code(pid, errno);
    if (pid == 0) {
        _exit(become_ordinary_user() && access(path, X_OK) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* The directory of the programs, or NULL. */
static const char *programs(void)
{
    static const char *found;
    char path[PATH];

    for (size_t i = 0; found == NULL && i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/initdb", places[i]);
        found = is_runnable(path) ? places[i] : NULL;
    }
    return found;
}

/* That is there; NULL: none is named. */
static const char *named(void)
{
    return getenv("SLUICE_TEST_POSTGRESQL");
}

bool postgres_server_is_there(void)
{
    return named() != NULL || programs() != NULL;
}

void postgres_server_need_own(const struct postgres_server *s)
{
    (void)s;
    if (named() != NULL) {
        skip();
    }
}

static void set_url(struct postgres_server *s, const char *url)
{
    struct buf error;

    buf_init(&error, 1000);
    if (!cluster_url_parse(&s->url, url, CLUSTER_URL_QUEUE, &error) ||
        !cluster_url_resolve(&s->url, &error)) {
        fail_msg("%s: %s", url, buf_cstr(&error));
    }
    buf_fini(&error);
    s->target = s->url.target;
    s->target.settings = NULL;
    s->target.options = "-c client_min_messages=warning -c search_path=sluice";
}

const char *postgres_server_url(const struct postgres_server *s)
{
    static char own[200];

    if (named() != NULL) {
        return named();
    }
    (void)snprintf(own, sizeof own, "postgresql://" USER "@/postgres?host=%s", s->dir);
    return own;
}

/* Run a program as an ordinary user, in a group of its own, its output in `log`. */
static pid_t run(const struct postgres_server *s, char *const argv[])
{
    char log[96];
    pid_t pid = fork();

    assert_return_code(pid, errno);
    if (pid > 0) {
        return pid;
    }
    (void)snprintf(log, sizeof log, "%s/log", s->dir);
    (void)setpgid(0, 0);
    if (!become_ordinary_user()) {
        _exit(126);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGQUIT); /* the test was killed */
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || chdir(s->dir) != 0) {
        _exit(126);
    }
    execv(argv[0], argv);
    _exit(127);
}

PGconn *postgres_server_connect(const struct postgres_server *s)
{
    const char *names[LINK_WORDS_MAX], *values[LINK_WORDS_MAX];

    (void)link_words(&s->target, names, values);
    for (unsigned i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], "application_name") == 0) {
            values[i] = "test"; /* some end the sessions of those under test */
        }
    }
    return PQconnectdbParams(names, values, 0);
}

void postgres_server_start(struct postgres_server *s)
{
    char program[PATH], data[96];
    char *const argv[] = {program,
                          "-D",
                          data,
                          "-k",
                          s->dir,
                          "-c",
                          "listen_addresses=",
                          "-c",
                          "fsync=off",
                          "-c",
                          "shared_buffers=32MB",
                          NULL};
    PGconn *conn;
    int status;

    (void)snprintf(program, sizeof program, "%s/postgres", programs());
    (void)snprintf(data, sizeof data, "%s/data", s->dir);
    s->pid = run(s, argv);
    for (;;) { /* until it answers, or has ended */
        conn = postgres_server_connect(s);
        if (PQstatus(conn) == CONNECTION_OK) {
            PQfinish(conn);
            return;
        }
        PQfinish(conn);
        assert_int_equal(waitpid(s->pid, &status, WNOHANG), 0);
        (void)poll(NULL, 0, 20);
    }
}

void postgres_server_init(struct postgres_server *s)
{
    const char *place = getenv("SLUICE_TEST_SERVERS");
    char program[PATH], data[96];
    char *const argv[] = {program, "-D",        data, "-A",   "trust",      "-U",
                          USER,    "--no-sync", "-E", "UTF8", "--locale=C", NULL};
    int status = 0;

    *s = (struct postgres_server){.pid = 0};
    if (named() != NULL) {
        set_url(s, named());
        return;
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* for postgres_server_kill */
    assert_in_range(
        snprintf(s->dir, sizeof s->dir, "%s/postgres.XXXXXX", place == NULL ? "/tmp" : place), 1,
        sizeof s->dir - 1);
    assert_non_null(mkdtemp(s->dir));
    if (geteuid() == 0) {
        assert_return_code(chown(s->dir, NOBODY, NOBODY), errno);
    }
    (void)snprintf(program, sizeof program, "%s/initdb", programs());
    (void)snprintf(data, sizeof data, "%s/data", s->dir);
    assert_int_equal(waitpid(run(s, argv), &status, 0) > 0, true);
    assert_int_equal(status, 0);
    set_url(s, postgres_server_url(s));
    postgres_server_start(s);
}

/* Send a signal to all its processes and return their number. Backends are leaders of groups of
 * their own, so /proc is asked. */
static int signal_all(const struct postgres_server *s, int sig, pid_t *ret_pids, int max)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    assert_non_null(proc);
    while ((entry = readdir(proc)) != NULL) {
        char path[300], text[512] = "";
        int pid = atoi(entry->d_name), parent = 0;
        FILE *f;

        (void)snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        f = pid > 0 ? fopen(path, "r") : NULL;
        if (f == NULL) {
            continue;
        }
        if (fgets(text, sizeof text, f) != NULL && strrchr(text, ')') != NULL) {
            (void)sscanf(strrchr(text, ')') + 1, " %*c %d", &parent);
        }
        (void)fclose(f);
        if (parent == s->pid && count < max) {
            ret_pids[count++] = pid;
            (void)kill(pid, sig);
        }
    }
    (void)closedir(proc);
    (void)kill(s->pid, sig);
    return count;
}

enum { PROCESSES_MAX = 200 };

void postgres_server_kill(struct postgres_server *s)
{
    pid_t pids[PROCESSES_MAX];
    int count;

    if (s->pid > 0) {
        count = signal_all(s, SIGCONT, pids, PROCESSES_MAX);
        (void)kill(s->pid, SIGKILL);
        (void)waitpid(s->pid, NULL, 0);
        for (int i = 0; i < count; i++) { /* they notice; until then their memory is in use */
            (void)waitpid(pids[i], NULL, 0);
        }
        s->pid = 0;
    }
}

void postgres_server_pause(struct postgres_server *s, bool pause)
{
    pid_t pids[PROCESSES_MAX];

    (void)signal_all(s, pause ? SIGSTOP : SIGCONT, pids, PROCESSES_MAX);
}

void postgres_server_fini(struct postgres_server *s)
{
    char command[100];
    int status;

    cluster_url_fini(&s->url);
    if (named() != NULL) {
        return;
    }
    if (s->pid > 0) {
        postgres_server_pause(s, false);
        (void)kill(s->pid, SIGQUIT); /* at once */
        (void)waitpid(s->pid, &status, 0);
    }
    (void)snprintf(command, sizeof command, "rm -r %s", s->dir);
    assert_int_equal(system(command), 0);
}

const char *postgres_server_ask(const struct postgres_server *s, const char *sql)
{
    static char text[1000];
    PGconn *conn = postgres_server_connect(s);
    PGresult *result = PQexec(conn, sql);

    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK) {
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    }
    text[0] = '\0';
    if (PQntuples(result) > 0) {
        (void)snprintf(text, sizeof text, "%s", PQgetvalue(result, PQntuples(result) - 1, 0));
    }
    PQclear(result);
    PQfinish(conn);
    return text;
}

void postgres_server_make_tables(const struct postgres_server *s)
{
    struct buf error;

    cluster_spool_register();
    (void)postgres_server_ask(s, "DROP SCHEMA IF EXISTS sluice CASCADE");
    buf_init(&error, 1000);
    if (cluster_tables_init(postgres_server_url(s), SLICE(""), false, &error, &error) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
}
