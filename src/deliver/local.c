/*
 * The role local: deliveries on this machine. Each has a process of its own, so that a slow disk or
 * a hanging command delays no other delivery.
 *
 *   taken --> WAITING (for content, for a free place) --> child process --> its end --> verdict
 *                 ^                                                            |
 *                 +------------- maildir: the next recipient ------------------+
 *
 * A maildir child writes one recipient's copy; a pipe child runs one command for all recipients.
 * Both report failures by "x.y.z text" on their output and by their exit status. A child is a
 * process group, which is killed as a whole when its time is over.
 *
 * While the node's lease is over (lease_page.h) no child is started. The child itself takes the
 * last look, directly before the rename or the start of the command. If it breaks off, it sets a
 * flag in memory shared with this process, which no command can reach, and the recipients go back
 * untried. If another node waits (WIRE_BREAK_OFF), a job without a child goes back at once, and a
 * child is called back by a flag in the same memory. A command that has started can't be called
 * back.
 *
 * The child's user is `user=` if this process is root, and never root. Without root all children
 * run as the user of this process, and a different `user=` defers the mail.
 */
#include "role.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "clock.h"
#include "conf.h"
#include "assignment.h"
#include "hash.h"
#include "log.h"
#include "maildir.h"
#include "mem.h"
#include "pipe.h"
#include "worker.h"

/* Largest number of children at once; the scheduler's limits are far lower. */
#define CHILDREN_MAX 500
/* Bytes of a child's output read at once; the rest waits for the next turn. */
#define OUTPUT_TURN_MAX 65536
/* Minimum room for a child's reason, whatever command_output_limit is. */
#define OUTPUT_MIN 1024
/* The descriptor that a child keeps in addition to the three standard ones. */
#define CONTENT_FD_CHILD 3

struct local;

/* Flags in memory shared with a child. */
struct last_look {
    _Atomic bool is_called_back; /* set by this process: the child must break off */
    _Atomic bool broke_off;      /* set by the child: it has broken off */
};

struct local_delivery {
    struct local *local;
    struct assignment *assignment; /* owned */
    pid_t pid;                     /* 0: no child */
    int output_fd;                 /* output of the child; -1: none */
    struct event *output_event, *timeout_event;
    struct buf output;
    char *name;              /* owned: name of the command, for texts */
    struct last_look *look;  /* shared with the child if there is a lease; else NULL */
    const char *called_back; /* reason why it must be broken off; NULL: none */
    size_t rcpt_at;          /* maildir: index of the current recipient */
    bool is_pipe;
    bool timed_out;
    bool waiting; /* in local->waiting */
    TAILQ_ENTRY(local_delivery) in_waiting;
    UT_hash_handle hh_pid;
};

struct local {
    struct role *role;
    struct worker worker;
    struct event *child_event;
    struct assignments assignments;
    struct local_delivery *by_pid; /* jobs with a child */
    TAILQ_HEAD(, local_delivery) waiting;
    struct mono held_until;
    uint64_t deliveries; /* number of deliveries so far, for unique names */
};

static const struct status bad_mailbox = {STATUS_PERMANENT, 1, 1};
static const struct status bad_address = {STATUS_PERMANENT, 1, 3};
static const struct status too_large = {STATUS_PERMANENT, 3, 4};
static const struct status bad_configuration = {STATUS_TRANSIENT, 3, 5};
static const struct status system_trouble = {STATUS_TRANSIENT, 3, 0};
static const struct status shutting_down = {STATUS_TRANSIENT, 3, 2};

/* ---- jobs ----------------------------------------------------------------------------------- */

/* Stops watching the child: it is dead, or its output is no longer needed. */
static void forget_child(struct local_delivery *job)
{
    if (job->pid != 0) {
        HASH_DELETE(hh_pid, job->local->by_pid, job);
        job->pid = 0;
    }
    if (job->output_fd >= 0) {
        event_free(job->output_event);
        event_free(job->timeout_event);
        (void)close(job->output_fd); /* only read */
        job->output_fd = -1;
    }
    if (job->look != NULL) {
        (void)munmap(job->look, sizeof *job->look); /* our own */
        job->look = NULL;
    }
    buf_clear(&job->output);
}

/* Frees everything except the assignment. */
static void job_free(struct local_delivery *job)
{
    forget_child(job);
    if (job->waiting) {
        TAILQ_REMOVE(&job->local->waiting, job, in_waiting);
    }
    buf_fini(&job->output);
    mem_free(job->name);
    mem_free(job);
}

static void finish(struct local_delivery *job)
{
    struct assignment_end end = {.outcome = OUTCOME_OK,
                                 .transmit_us = clock_mono().us - job->assignment->taken.us};

    assignment_finish(job->assignment, &end);
    job_free(job);
}

static void give_back(struct local_delivery *job)
{
    assignment_give_back(job->assignment, false);
    job_free(job);
}

/* Returns the recipients without a verdict to the queue process. */
static void break_off(struct local_delivery *job)
{
    assignment_break_off(job->assignment,
                         job->called_back != NULL ? job->called_back : "this node's lease is over");
    job_free(job);
}

/* Returns "maildir", or the name of the pipe service. */
static struct slice relay_of(const struct local_delivery *job)
{
    return job->is_pipe ? job->assignment->ask.transport : SLICE("maildir");
}

static void decide_rest(struct local_delivery *job, struct status status, const char *text)
{
    assignment_decide_rest(job->assignment, FAILURE_OURS, status, slice_string(text),
                           relay_of(job));
    finish(job);
}

static void enqueue(struct local_delivery *job)
{
    job->waiting = true;
    TAILQ_INSERT_TAIL(&job->local->waiting, job, in_waiting);
}

/* ---- in the child --------------------------------------------------------------------------- */

static gid_t find_group(const char *name, gid_t otherwise)
{
    const struct group *group;

    if (name[0] == '\0') {
        return otherwise;
    }
    group = getgrnam(name);
    if (group == NULL) {
        child_fail(bad_configuration, FAILURE_USER_TEXT "unknown group %s", name);
    }
    return group->gr_gid;
}

/* Finds an account by name or number. The result belongs to the C library and lasts until the next
 * call. */
static const struct passwd *find_account(const char *name)
{
    unsigned long long uid;

    return slice_number(slice_string(name), UINT32_MAX - 1, &uid) ? getpwuid((uid_t)uid)
                                                                  : getpwnam(name);
}

static bool is_mail_owner(const struct conf *conf, uid_t uid)
{
    const char *name = conf_mail_owner(conf);
    const struct passwd *owner = name[0] == '\0' ? NULL : find_account(name);

    return owner != NULL && owner->pw_uid == uid;
}

/* Changes to the user that delivers. Returns its account, or NULL if the transport has no user. The
 * same checks are made when the configuration is read (conf.c); but accounts change, and maps can
 * send mail to the wrong transport. */
static const struct passwd *become(const struct conf *conf, const struct policy *policy)
{
    bool root = geteuid() == 0;
    const char *name = policy_user(conf, policy);
    const struct passwd *account;
    gid_t gid;

    if (name[0] == '\0') {
        if (root) {
            child_fail(bad_configuration, FAILURE_USER_TEXT "the transport has no user=");
        }
        return NULL;
    }
    account = find_account(name); /* again below: is_mail_owner overwrites it */
    if (account != NULL && root && strcmp(policy->user, POLICY_USER_MAIL_OWNER) != 0 &&
        is_mail_owner(conf, account->pw_uid)) {
        child_fail(bad_configuration, FAILURE_USER_TEXT "user %s is mail_owner", name);
    }
    account = find_account(name);
    if (account == NULL) {
        child_fail(bad_configuration, FAILURE_USER_TEXT "unknown user %s", name);
    }
    if (root && account->pw_uid == 0) {
        child_fail(bad_configuration, FAILURE_USER_TEXT "nothing is delivered as root");
    }
    if (!root) {
        if (account->pw_uid != geteuid()) {
            child_fail(bad_configuration, FAILURE_USER_TEXT "only root can deliver as user %s",
                       name);
        }
        return account;
    }
    gid = find_group(policy->group, account->pw_gid);
    if (setgroups(1, &gid) != 0 || setgid(gid) != 0 || setuid(account->pw_uid) != 0) {
        child_fail(system_trouble, "cannot become user %s: %s", name, strerror(errno));
    }
    return account;
}

static int read_content(void *arg, struct slice *ret_piece)
{
    struct assignment *e = arg;
    bool last;

    if (e->content_at == e->content_size) {
        return 0;
    }
    if (assignment_piece(e, ret_piece, &last) != ASSIGNMENT_PIECE) {
        return -EIO;
    }
    assignment_piece_used(e, ret_piece->len);
    return 1;
}

/* Ends the child at the last look. */
static _Noreturn void child_breaks_off(const struct local_delivery *job)
{
    job->look->broke_off = true;
    _exit(EX_TEMPFAIL);
}

static _Noreturn void child_maildir(struct local_delivery *job, const struct policy *policy,
                                    const char *path)
{
    const struct conf *conf = job->local->role->conf;
    const struct assignment *e = job->assignment;
    struct maildir_mail mail = {
        .copy = {.path = path,
                 .sender = e->ask.sender,
                 .recipient = e->ask.rcpts[job->rcpt_at].address,
                 .now = clock_wall()},
        .fixed_len = maildir_fixed_len(slice_string(policy->maildir)),
        .host = conf->myhostname,
        .number = job->local->deliveries,
        .lease = &job->local->worker.lease,
        .is_called_back = job->look != NULL ? &job->look->is_called_back : NULL,
    };
    struct buf why;
    int rc;

    (void)become(conf, policy);
    buf_init(&why, MAILDIR_PATH_MAX + 1024);
    rc = maildir_deliver(&mail, read_content, job->assignment, &why);
    if (rc == -ECANCELED && job->look != NULL) {
        child_breaks_off(job);
    }
    if (rc != 0) {
        child_fail(maildir_status(rc), "maildir delivery failed: %s",
                   why.failed ? strerror(-rc) : buf_cstr(&why));
    }
    _exit(EX_OK);
}

static _Noreturn void child_pipe(struct local_delivery *job, const struct policy *policy,
                                 const struct pipe_delivery *delivery,
                                 const struct pipe_words *command)
{
    const struct passwd *account;
    struct pipe_words environment;
    int rc;

    rc = mail_file_as_input(slice_of("", 0), read_content, job->assignment);
    if (rc != 0) {
        child_fail(system_trouble, "cannot prepare the message: %s", strerror(-rc));
    }
    account = become(job->local->role->conf, policy);
    pipe_environment(delivery, account == NULL ? NULL : account->pw_name,
                     account == NULL ? NULL : account->pw_dir, &environment);
    /* Only root may raise the priority; otherwise the command runs at its current one. */
    if (policy->priority != 0) {
        (void)setpriority(PRIO_PROCESS, 0, (int)policy->priority);
    }
    if (policy->nice != 0) {
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + (int)policy->nice);
    }
    /* The command gets only standard input, output and error. */
    (void)close_range(CONTENT_FD_CHILD, ~0U, 0);
    environ = environment.words;
    if (job->look != NULL &&
        (!lease_holds(&job->local->worker.lease) || job->look->is_called_back)) {
        child_breaks_off(job);
    }
    execvp(command->words[0], command->words);
    child_fail(errno == ENOENT || errno == EACCES ? bad_configuration : system_trouble,
               "cannot execute \"%s\": %s", command->words[0], strerror(errno));
}

/* Prepares the child: its own process group, output to the pipe, input from /dev/null, and no
 * internal descriptors. */
static void child_begin(struct assignment *e, int output_fd)
{
    int null = open("/dev/null", O_RDONLY);
    /* Free the descriptors 0..3 before they are assigned. */
    int content = e->fd >= 0 ? fcntl(e->fd, F_DUPFD, CONTENT_FD_CHILD + 1) : -1;
    int output = fcntl(output_fd, F_DUPFD, CONTENT_FD_CHILD + 1);

    (void)setpgid(0, 0);
    child_reset_signals();
    if (output < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0 ||
        (null >= 0 && dup2(null, STDIN_FILENO) < 0) ||
        (content >= 0 && dup2(content, CONTENT_FD_CHILD) < 0)) {
        _exit(EX_OSERR);
    }
    if (e->fd >= 0) {
        e->fd = CONTENT_FD_CHILD;
    }
    (void)close_range(CONTENT_FD_CHILD + (content >= 0 ? 1 : 0), ~0U, 0);
    (void)umask(077);
    if (chdir("/") != 0) {
        _exit(EX_OSERR);
    }
}

/* ---- watching the child ---------------------------------------------------------------------- */

/* Reads the child's output and keeps it up to the limit. The rest is dropped, so that the child
 * does not block. */
static void read_output(struct local_delivery *job)
{
    char bytes[4096];
    size_t total = 0;
    ssize_t n;

    while (total < OUTPUT_TURN_MAX && (n = read(job->output_fd, bytes, sizeof bytes)) > 0) {
        size_t room = job->output.limit - buf_len(&job->output);

        (void)buf_add(&job->output,
                      slice_of(bytes, (size_t)n < room ? (size_t)n : room)); /* fits */
        total += (size_t)n;
    }
    if (n == 0) {
        CHECK(event_del(job->output_event) == 0); /* SIGCHLD reports its end */
    }
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    read_output(arg);
}

static void kill_child(struct local_delivery *job)
{
    (void)kill(-job->pid, SIGKILL); /* it may be gone */
    (void)kill(job->pid, SIGKILL);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct local_delivery *job = arg;
    siginfo_t ended = {.si_pid = 0};

    (void)fd;
    (void)what;
    if (waitid(P_PID, (id_t)job->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid != 0) {
        return; /* it ended in time, but this process stood still: the signal will follow */
    }
    job->timed_out = true;
    kill_child(job);
}

/* Watches the child in the parent after fork. */
static void watch_child(struct local_delivery *job, pid_t pid, int output_fd,
                        const struct conf *conf)
{
    struct event_base *base = job->local->role->base;
    struct timeval limit = {.tv_sec = (time_t)(conf->command_time_limit_us / US_PER_S),
                            .tv_usec = (suseconds_t)(conf->command_time_limit_us % US_PER_S)};

    (void)setpgid(pid, pid); /* the child does the same; one of both is first */
    job->pid = pid;
    job->output_fd = output_fd;
    job->timed_out = false;
    buf_fini(&job->output);
    buf_init(&job->output, conf->command_output_limit > OUTPUT_MIN
                               ? (size_t)conf->command_output_limit
                               : OUTPUT_MIN);
    job->output_event = event_new(base, output_fd, EV_READ | EV_PERSIST, on_output, job);
    job->timeout_event = event_new(base, -1, 0, on_timeout, job);
    CHECK(job->output_event != NULL && job->timeout_event != NULL);
    CHECK(event_add(job->output_event, NULL) == 0);
    CHECK(event_add(job->timeout_event, &limit) == 0);
    HASH_ADD(hh_pid, job->local->by_pid, pid, sizeof job->pid, job);
}

/* The task of a child, complete before the fork. */
struct child_task {
    struct policy policy;
    struct buf path;          /* for maildir */
    struct slice *recipients; /* for pipe; owned */
    struct pipe_delivery pipe;
    struct pipe_words command; /* for pipe */
};

static void child_task_fini(struct local_delivery *job, struct child_task *r)
{
    buf_fini(&r->path);
    mem_free(r->recipients);
    if (job->is_pipe) {
        pipe_words_fini(&r->command);
    }
}

static _Noreturn void child_main(struct local_delivery *job, struct child_task *r, int output_fd)
{
    child_begin(job->assignment, output_fd);
    assignment_rewind(job->assignment);
    if (job->is_pipe) {
        child_pipe(job, &r->policy, &r->pipe, &r->command);
    }
    child_maildir(job, &r->policy, buf_cstr(&r->path));
}

/* Maps memory for the last look, if there is a lease. Returns false if memory is short. */
static bool share_memory(struct local_delivery *job)
{
    void *at;

    if (!lease_page_exists(&job->local->worker.lease)) {
        return true;
    }
    at = mmap(NULL, sizeof *job->look, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job->look = at == MAP_FAILED ? NULL : at;
    return job->look != NULL;
}

/* Forks a child. Returns false if the system is short of processes, descriptors or memory. */
static bool run_child(struct local_delivery *job, struct child_task *r)
{
    int fds[2];
    sigset_t all, before;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    if (!share_memory(job)) {
        (void)close(fds[0]); /* both unused */
        (void)close(fds[1]);
        return false;
    }
    /* The writing end becomes a command's output, so it must block. */
    CHECK(fcntl(fds[1], F_SETFL, 0) == 0);
    job->local->deliveries++;
    /* Block signals: none of our handlers must run in the child between fork and
     * child_reset_signals. */
    (void)sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
    pid = fork();
    if (pid == 0) {
        child_main(job, r, fds[1]);
    }
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    (void)close(fds[1]); /* the child's end */
    if (pid < 0) {
        (void)close(fds[0]); /* unused */
        forget_child(job);
        return false;
    }
    watch_child(job, pid, fds[0], job->local->role->conf);
    return true;
}

/* ---- from assignment to child --------------------------------------------------------------- */

/* Finds the recipient's maildir. Otherwise sets the recipient's verdict and returns false. */
static bool prepare_maildir(struct local_delivery *job, struct child_task *r)
{
    const struct wire_deliver_rcpt *rcpt = &job->assignment->ask.rcpts[job->rcpt_at];
    const char *why;

    if (maildir_path(slice_string(r->policy.maildir), rcpt->address,
                     slice_string(job->local->role->conf->recipient_delimiter), &r->path, &why)) {
        return true;
    }
    assignment_decide(job->assignment, job->rcpt_at, VERDICT_BOUNCED, FAILURE_MAIL, bad_mailbox,
                      slice_string(why), relay_of(job));
    return false;
}

/* Makes the command line. Otherwise sets the verdict of all recipients and returns false. */
static bool prepare_pipe(struct local_delivery *job, struct child_task *r)
{
    const struct wire_deliver *ask = &job->assignment->ask;
    const char *why;
    enum pipe_outcome outcome;

    r->recipients = mem_array(ask->rcpt_count, sizeof r->recipients[0]);
    for (uint32_t i = 0; i < ask->rcpt_count; i++) {
        r->recipients[i] = ask->rcpts[i].address;
    }
    r->pipe = (struct pipe_delivery){
        .sender = ask->sender,
        .nexthop = ask->nexthop,
        .queue_id = ask->id,
        .size_bytes = ask->size,
        .delimiters = slice_string(job->local->role->conf->recipient_delimiter),
        .recipients = r->recipients,
        .recipient_count = ask->rcpt_count,
    };
    outcome = pipe_command(slice_string(r->policy.command), &r->pipe, &r->command, &why);
    if (outcome == PIPE_OK) {
        mem_free(job->name);
        job->name = mem_string(r->command.words[0]);
        return true;
    }
    assignment_decide_rest(job->assignment, FAILURE_MAIL,
                           outcome == PIPE_BAD_COMMAND ? bad_configuration : bad_address,
                           slice_string(why), relay_of(job));
    return false;
}

/* Checks whether this policy can deliver the entry. Otherwise sets the verdict of all recipients
 * and returns false. */
static bool fits(struct local_delivery *job, const struct policy *policy)
{
    const struct wire_deliver *ask = &job->assignment->ask;
    char text[120];

    if (policy->agent != CONF_AGENT_MAILDIR && policy->agent != CONF_AGENT_PIPE) {
        assignment_decide_rest(job->assignment, FAILURE_OURS, bad_configuration,
                               SLICE("mail system configuration error: not a local transport"),
                               SLICE("none"));
        return false;
    }
    if (policy->size_limit > 0 && ask->size > (uint64_t)policy->size_limit) {
        (void)snprintf(text, sizeof text, "message size %llu exceeds size limit %lld",
                       (unsigned long long)ask->size, (long long)policy->size_limit);
        assignment_decide_rest(job->assignment, FAILURE_RULE, too_large, slice_string(text),
                               relay_of(job));
        return false;
    }
    return true;
}

/* Takes the next step of a job: starts a child, or finishes the job. */
static void advance(struct local_delivery *job)
{
    struct local *l = job->local;
    const struct wire_deliver *ask = &job->assignment->ask;
    struct child_task r = {0};
    bool ready = false, started = true;

    if (!lease_holds(&l->worker.lease)) {
        break_off(job);
        return;
    }
    buf_init(&r.path, MAILDIR_PATH_MAX - 1);
    policy_for(l->role->conf, ask->transport, ask->nexthop, &r.policy);
    job->is_pipe = r.policy.agent == CONF_AGENT_PIPE;
    if (fits(job, &r.policy)) {
        if (job->is_pipe) {
            ready = prepare_pipe(job, &r);
        } else {
            while (job->rcpt_at < ask->rcpt_count && !ready) {
                buf_clear(&r.path);
                ready =
                    !assignment_decided(job->assignment, job->rcpt_at) && prepare_maildir(job, &r);
                job->rcpt_at += !ready;
            }
        }
    }
    if (ready) {
        started = run_child(job, &r);
    }
    child_task_fini(job, &r);
    if (!ready) {
        finish(job);
    } else if (!started) {
        l->held_until = mono_after(clock_mono(), US_PER_S);
        enqueue(job);
    }
}

static void run_waiting(struct local *l)
{
    struct local_delivery *job;

    while ((job = TAILQ_FIRST(&l->waiting)) != NULL && HASH_CNT(hh_pid, l->by_pid) < CHILDREN_MAX &&
           mono_reached(l->held_until, clock_mono())) {
        TAILQ_REMOVE(&l->waiting, job, in_waiting);
        job->waiting = false;
        advance(job);
    }
}

/* Handles the end of a child: its output and exit status become verdicts. */
static void on_end(struct local_delivery *job, int wait_status)
{
    struct pipe_end end = {.wait_status = wait_status,
                           .timed_out = job->timed_out,
                           .name = job->is_pipe ? job->name : "maildir delivery"};
    char *service;
    struct status status;
    struct buf text;

    if (job->look != NULL && job->look->broke_off) {
        break_off(job);
        return;
    }
    service = mem_copy(job->assignment->ask.transport.ptr, job->assignment->ask.transport.len);
    read_output(job);
    end.output = buf_slice(&job->output);
    end.service = service;
    buf_init(&text, WIRE_TEXT_MAX);
    status = pipe_result(&end, &text);
    if (!job->is_pipe && status.class == STATUS_SUCCESS) {
        buf_clear(&text);
        (void)buf_add_string(&text, "delivered to maildir");
    }
    forget_child(job);
    if (job->is_pipe) {
        assignment_decide_rest(job->assignment, FAILURE_ANSWER, status, buf_slice(&text),
                               relay_of(job));
    } else {
        assignment_decide(job->assignment, job->rcpt_at++,
                          status.class == STATUS_SUCCESS     ? VERDICT_SENT
                          : status.class == STATUS_PERMANENT ? VERDICT_BOUNCED
                                                             : VERDICT_DEFERRED,
                          FAILURE_ANSWER, status, buf_slice(&text), relay_of(job));
    }
    buf_fini(&text);
    mem_free(service);
    if (job->assignment->open == 0) {
        finish(job);
    } else if (job->called_back != NULL) {
        break_off(job);
    } else if (job->local->role->stopping || job->assignment->orphan) {
        decide_rest(job, shutting_down, "mail system is shutting down");
    } else {
        enqueue(job);
    }
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct local *l = arg;
    struct local_delivery *job;
    int wait_status;
    pid_t pid;

    (void)fd;
    (void)what;
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        HASH_FIND(hh_pid, l->by_pid, &pid, sizeof pid, job);
        if (job != NULL) {
            on_end(job, wait_status);
        }
    }
}

/* ---- the channel to queue ------------------------------------------------------------------- */

static bool on_deliver(struct local *l, const struct frame *frame)
{
    struct assignment *assignment = assignment_new(frame);
    struct local_delivery *job;

    if (assignment == NULL) {
        return false;
    }
    job = mem_new(sizeof *job);
    assignments_add(&l->assignments, assignment, job);
    job->local = l;
    job->assignment = assignment;
    job->output_fd = -1;
    buf_init(&job->output, OUTPUT_MIN);
    if (l->role->stopping) {
        give_back(job);
    } else if (assignment->have_content) {
        enqueue(job);
    } else {
        assignment_ask_content(assignment);
    }
    return true;
}

static bool on_content(struct local *l, const struct frame *frame)
{
    struct wire_content content;
    struct local_delivery *job;

    if (!wire_get_content(frame->body, &content)) {
        return false;
    }
    job = assignments_find(&l->assignments, content.entry);
    if (job == NULL) {
        if (frame->fd >= 0) {
            (void)close(frame->fd); /* the job was returned */
        }
        return true;
    }
    if (assignment_take_content(job->assignment, &content, frame->fd)) {
        enqueue(job);
    } else {
        decide_rest(job, system_trouble, "message content can't be read");
    }
    return true;
}

/* Breaks off a job because another node waits for it. */
static bool on_break_off(struct local *l, const struct frame *frame)
{
    struct local_delivery *job;
    uint64_t entry;

    if (!wire_get_number(frame->body, &entry)) {
        return false;
    }
    job = assignments_find(&l->assignments, entry);
    if (job == NULL) {
        return true; /* the job has ended */
    }
    job->called_back = "another node waits for it";
    if (job->pid == 0) {
        break_off(job);
    } else if (job->look != NULL) {
        job->look->is_called_back = true;
        log_info(
            "%.*s: another node waits until its delivery by %.*s has ended, command_time_limit "
            "at most",
            SLICE_ARGS(job->assignment->ask.id), SLICE_ARGS(job->assignment->ask.transport));
    }
    return true;
}

static bool on_frame(void *arg, const struct frame *frame)
{
    struct local *l = arg;

    switch (frame->type) {
    case WIRE_DELIVER:
        return on_deliver(l, frame);
    case WIRE_CONTENT:
        return on_content(l, frame);
    case WIRE_BREAK_OFF:
        return on_break_off(l, frame);
    case WIRE_FORGET: /* no connections are kept */
        return true;
    default:
        return false;
    }
}

static bool has_child(const struct local_delivery *job)
{
    return job->pid != 0;
}

/* Does this job continue as an orphan? The queue process will repeat deliveries without a result;
 * but a second copy is better than a command cut in the middle, so running children continue. */
static bool goes_on(void *arg, void *owner)
{
    struct local_delivery *job = owner;

    (void)arg;
    if (has_child(job)) {
        return true;
    }
    assignment_free(job->assignment);
    job_free(job);
    return false;
}

static void on_lost(void *arg)
{
    struct local *l = arg;

    assignments_lost(&l->assignments, goes_on, NULL);
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

static void local_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct local *l = role->state;

    worker_peer(&l->worker, peer, fd);
}

/* ---- the process ---------------------------------------------------------------------------- */

static int local_start(struct role *role)
{
    struct local *l = mem_new(sizeof *l);

    role->state = l;
    l->role = role;
    worker_init(&l->worker, role, &queue_ops, l);
    l->assignments.queue = &l->worker.queue;
    TAILQ_INIT(&l->waiting);
    l->child_event = evsignal_new(role->base, SIGCHLD, on_child, l);
    CHECK(l->child_event != NULL);
    CHECK(event_add(l->child_event, NULL) == 0);
    return EX_OK;
}

/* Nothing: each child looks up its policy. */
static void local_reload(struct role *role, const struct conf *old)
{
    (void)role;
    (void)old;
}

/* Returns a job without a child. */
static void end_early(void *arg, void *owner)
{
    struct local_delivery *job = owner;

    (void)arg;
    if (has_child(job)) {
        return;
    }
    if (job->assignment->open == job->assignment->ask.rcpt_count) {
        give_back(job);
    } else {
        decide_rest(job, shutting_down, "mail system is shutting down");
    }
}

static void local_stop(struct role *role)
{
    struct local *l = role->state;

    worker_stop(&l->worker, role->conf->shutdown_timeout_us);
    assignments_each(&l->assignments, end_early, NULL);
}

/* Kills the remaining children. The effects of their commands so far are unknown. */
static void cut(struct local *l)
{
    struct local_delivery *job, *next;

    HASH_ITER(hh_pid, l->by_pid, job, next)
    {
        kill_child(job);
        decide_rest(job, shutting_down, "mail system is shutting down");
    }
}

static void stop_if_done(struct local *l)
{
    if (mono_reached(l->worker.stop_at, clock_mono())) {
        cut(l);
    } else if (l->by_pid != NULL) {
        return;
    }
    worker_exit(&l->worker);
}

static void local_turn(struct role *role)
{
    struct local *l = role->state;

    run_waiting(l);
    worker_tick(&l->worker, !TAILQ_EMPTY(&l->waiting)); /* some wait for a free place */
    if (role->stopping) {
        stop_if_done(l);
    }
}

static void local_end(struct role *role)
{
    struct local *l = role->state;

    cut(l);
    worker_fini(&l->worker);
    event_free(l->child_event);
    mem_free(l);
}

const struct role_ops local_role = {
    .role = ROLE_LOCAL,
    .program = "local",
    .kind = ROLE_WORKS,
    .start = local_start,
    .peer = local_peer,
    .reload = local_reload,
    .stop = local_stop,
    .turn = local_turn,
    .end = local_end,
};
