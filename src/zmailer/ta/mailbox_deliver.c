#include "mailbox_deliver.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "child.h"
#include "check.h"
#include "envelope.h"
#include "mail_file.h"
#include "maildir.h"
#include "mbox.h"
#include "mem.h"
#include "pipe.h"
#include "ta_child.h"
#include "ta_local.h"
#include "ta_run.h"
#include "zmailer_dialect.h"

#define OUTPUT_MAX     8192
#define ACCOUNT_MAX    16384
#define NOBODY         65534
#define COMMAND_PATH   "/usr/bin:/bin"
#define NAME_MAX_BYTES 255

enum place { PLACE_MBOX, PLACE_MAILDIR, PLACE_COMMAND };

/* Everything that the child of a delivery needs, made before the fork. */
struct mailbox_task {
    struct mailbox *mailbox;
    const struct ta_job *job;
    const struct control_rcpt *rcpt;
    enum place place;
    bool dot_lock;
    uid_t uid;
    gid_t gid;
    struct buf name, home; /* name and home directory of the account; may be empty */
    struct buf where;      /* path or command */
    size_t fixed_len;      /* length of the fixed part of a maildir's path */
    struct slice sender;
    struct ta_content content;
};

static const struct status delivered = {STATUS_SUCCESS, 2, 0};
static const struct status unknown_user = {STATUS_PERMANENT, 1, 1};
static const struct status bad_address = {STATUS_PERMANENT, 1, 3};
static const struct status system_trouble = {STATUS_TRANSIENT, 3, 0};
static const struct status not_allowed = {STATUS_TRANSIENT, 3, 5};

/* ---- in the child --------------------------------------------------------------------------- */

/* Takes the user's rights. Where mailbox directories are group-writable, their group lets a user
 * create files there. */
static void become(const struct mailbox_task *e)
{
    gid_t groups[2] = {e->gid, e->gid};
    size_t count = 1;
    struct stat st;

    if (geteuid() != 0) {
        if (geteuid() != e->uid) {
            child_fail(not_allowed, "only root can deliver with user id %u", (unsigned)e->uid);
        }
        return;
    }
    if (e->place == PLACE_MBOX && e->dot_lock && stat(e->mailbox->directory, &st) == 0) {
        groups[count++] = st.st_gid;
    }
    if (setgroups(count, groups) != 0 || setgid(e->gid) != 0 || setuid(e->uid) != 0) {
        child_fail(system_trouble, "cannot take user id %u: %s", (unsigned)e->uid, strerror(errno));
    }
}

/* Is root the only one who can change the target of the path? Checked from the root down, so that
 * no checked directory can change later. In a sticky directory others can't replace root's
 * entries. */
static bool is_roots_alone(const char *path)
{
    char part[MBOX_PATH_MAX];
    struct stat st;

    if (path[0] != '/' || strlen(path) >= sizeof part) {
        return false;
    }
    for (size_t i = 0; path[i] != '\0'; i++) {
        if (path[i] != '/') {
            continue;
        }
        (void)snprintf(part, sizeof part, "%.*s", i == 0 ? 1 : (int)i, path); /* fits */
        if (lstat(part, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 ||
            ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (st.st_mode & S_ISVTX) == 0)) {
            return false;
        }
    }
    return true;
}

static struct mail_copy copy_of(struct mailbox_task *e)
{
    return (struct mail_copy){.path = buf_cstr(&e->where),
                              .sender = e->sender,
                              .recipient = e->rcpt->address.user,
                              .now = ta_run_now()};
}

static _Noreturn void deliver_mbox(struct mailbox_task *e)
{
    struct mbox_mail mail = {
        .copy = copy_of(e),
        .dot_lock = e->dot_lock,
        .lock_wait_s = e->mailbox->lock_wait_s,
    };
    struct buf why;
    int rc;

    /* the address is a path, whose directories may belong to another user */
    if (geteuid() == 0 && !e->dot_lock && strcmp(mail.copy.path, "/dev/null") != 0 &&
        !is_roots_alone(mail.copy.path)) {
        child_fail(not_allowed,
                   "%s: not written as root through directories that others can change",
                   mail.copy.path);
    }
    buf_init(&why, MBOX_PATH_MAX + 1024);
    rc = mbox_deliver(&mail, ta_content_read, &e->content, &why);
    if (rc != 0) {
        child_fail(mbox_status(rc), "%s", why.failed ? strerror(-rc) : buf_cstr(&why));
    }
    _exit(EX_OK);
}

static _Noreturn void deliver_maildir(struct mailbox_task *e)
{
    struct maildir_mail mail = {
        .copy = copy_of(e),
        .fixed_len = e->fixed_len,
        .host = e->mailbox->host,
        .number = e->mailbox->deliveries,
    };
    struct buf why;
    int rc;

    buf_init(&why, MAILDIR_PATH_MAX + 1024);
    rc = maildir_deliver(&mail, ta_content_read, &e->content, &why);
    if (rc != 0) {
        child_fail(maildir_status(rc), "%s", why.failed ? strerror(-rc) : buf_cstr(&why));
    }
    _exit(EX_OK);
}

static void make_input(struct mailbox_task *e)
{
    struct buf head;
    int rc;

    buf_init(&head, ADDRESS_MAX + 100);
    mbox_put_from(&head, e->sender, ta_run_now());
    rc = mail_file_as_input(buf_slice(&head), ta_content_read, &e->content);
    buf_fini(&head);
    if (rc != 0) {
        child_fail(system_trouble, "cannot prepare the message: %s", strerror(-rc));
    }
}

static void put_variable(const char *name, struct slice value)
{
    char *copy = mem_copy(value.ptr, value.len);

    if (setenv(name, copy, 1) != 0) {
        child_fail(system_trouble, "cannot prepare the environment: %s", strerror(errno));
    }
    mem_free(copy);
}

static void put_zenv(const struct mailbox_task *e, const char *name, const char *otherwise)
{
    const char *value = conf_zenv(e->mailbox->conf, slice_string(name));

    if (value != NULL || otherwise != NULL) {
        put_variable(name, slice_string(value != NULL ? value : otherwise));
    }
}

/* Makes the environment of ZMailer's mailbox(8). */
static void make_environment(struct mailbox_task *e)
{
    const char *zone = getenv("TZ"), *zconfig = getenv("ZCONFIG");
    char *kept_zone = zone == NULL ? NULL : mem_string(zone);
    char *kept_zconfig = zconfig == NULL ? NULL : mem_string(zconfig);
    struct slice orcpt = control_dsn_word(e->rcpt->dsn, SLICE("ORCPT"));

    CHECK(clearenv() == 0);
    put_variable("SHELL", SLICE("/bin/sh"));
    put_variable("IFS", SLICE(" \t\n"));
    put_zenv(e, "PATH", COMMAND_PATH);
    put_zenv(e, "MAILBIN", NULL);
    put_zenv(e, "MAILSHARE", NULL);
    put_variable("SENDER", e->sender.len == 0 ? SLICE("<>") : e->sender);
    put_variable("MSGSPOOLID", slice_string(e->job->spoolid));
    put_variable("MESSAGEID", e->job->control.log_id);
    put_variable("HOME", buf_len(&e->home) == 0 ? SLICE("/") : buf_slice(&e->home));
    put_variable("USER", buf_len(&e->name) == 0 ? SLICE("nobody") : buf_slice(&e->name));
    if (orcpt.len > 0) {
        put_variable("ORCPT", orcpt);
    }
    if (e->job->control.envid.len > 0) {
        put_variable("ENVID", e->job->control.envid);
    }
    if (kept_zconfig != NULL) {
        put_variable("ZCONFIG", slice_string(kept_zconfig));
    }
    if (kept_zone != NULL) {
        put_variable("TZ", slice_string(kept_zone));
    }
}

static _Noreturn void deliver_command(struct mailbox_task *e)
{
    const char *command = buf_cstr(&e->where);

    make_environment(e);
    if (chdir(buf_len(&e->home) == 0 ? "/" : buf_cstr(&e->home)) != 0 && chdir("/") != 0) {
        child_fail(system_trouble, "cannot go to /: %s", strerror(errno));
    }
    (void)close(TA_CHILD_FD); /* the message is already standard input */
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    child_fail(system_trouble, "cannot execute /bin/sh: %s", strerror(errno));
}

static void child_body(void *arg)
{
    struct mailbox_task *e = arg;

    e->content.fd = TA_CHILD_FD;
    if (e->place == PLACE_COMMAND) {
        make_input(e);
    }
    become(e);
    switch (e->place) {
    case PLACE_MBOX:
        deliver_mbox(e);
    case PLACE_MAILDIR:
        deliver_maildir(e);
    case PLACE_COMMAND:
        deliver_command(e);
    }
}

/* ---- account and place ----------------------------------------------------------------------- */

/* Appends the address without quotes, leading backslashes and domain. Commands and files have no
 * domain. */
static bool plain_name(struct slice word, struct buf *out)
{
    struct slice text;

    if (slice_starts(word, SLICE("|")) || slice_starts(word, SLICE("/"))) {
        return buf_add(out, word);
    }
    if (!address_unquote_local(address_split(word).local, out)) {
        buf_clear(out);
        return false;
    }
    text = buf_slice(out);
    while (text.len > 0 && text.ptr[0] == '\\') {
        buf_consume(out, 1);
        text = buf_slice(out);
    }
    return text.len > 0 && slice_find(text, '\0') == text.len;
}

static void take_account(struct mailbox_task *e, const struct passwd *account)
{
    e->uid = account->pw_uid;
    e->gid = account->pw_gid;
    (void)buf_add_string(&e->name, account->pw_name); /* both fit: ACCOUNT_MAX */
    (void)buf_add_string(&e->home, account->pw_dir);
}

/* Returns 0 if the user exists, ENOENT if not, or the error of the look-up. */
static int find_user(struct mailbox_task *e, const char *name)
{
    char space[ACCOUNT_MAX];
    struct passwd account, *found = NULL;
    int rc = getpwnam_r(name, &account, space, sizeof space, &found);

    if (found != NULL) {
        take_account(e, found);
        return 0;
    }
    return rc == 0 || rc == ESRCH || rc == EBADF || rc == EPERM ? ENOENT : rc;
}

/* Finds a user; a name with a leading capital that no user has is tried in lower case. */
static int find_any_case(struct mailbox_task *e, const char *name)
{
    int rc = find_user(e, name);
    char *lower;

    if (rc != ENOENT || name[0] < 'A' || name[0] > 'Z') {
        return rc;
    }
    lower = mem_string(name);
    for (char *c = lower; *c != '\0'; c++) {
        *c = ascii_lower(*c);
    }
    rc = find_user(e, lower);
    mem_free(lower);
    return rc;
}

/* Takes the account of an address's user id (privilege). A user id without an account gets the
 * group of the unprivileged account. */
static void find_privilege(struct mailbox_task *e)
{
    char space[ACCOUNT_MAX];
    struct passwd account, *found = NULL;
    uid_t uid = (uid_t)e->rcpt->address.uid;

    if (getpwuid_r(uid, &account, space, sizeof space, &found) == 0 && found != NULL) {
        take_account(e, found);
    }
    e->uid = uid;
    e->gid = found == NULL ? NOBODY : e->gid;
}

static bool put_mbox_path(struct mailbox_task *e)
{
    const struct mailbox *m = e->mailbox;
    struct slice name = buf_slice(&e->name);

    if (name.len == 0 || name.len > NAME_MAX_BYTES || name.ptr[0] == '.' ||
        slice_find(name, '/') < name.len || name.len < m->levels) {
        return false;
    }
    (void)buf_addf(&e->where, "%s/", m->directory);
    for (unsigned i = 0; i < m->levels; i++) {
        (void)buf_addf(&e->where, "%c/", name.ptr[i]);
    }
    return buf_add(&e->where, name);
}

static bool put_maildir_path(struct mailbox_task *e, struct slice domain, const char **ret_why)
{
    const char *pattern = e->mailbox->maildir;
    struct buf address;
    bool ok;

    if (strncmp(pattern, "~/", 2) == 0) {
        *ret_why = "the path is too long";
        e->fixed_len = buf_len(&e->home);
        return buf_add(&e->where, buf_slice(&e->home)) && buf_add_string(&e->where, pattern + 1);
    }
    e->fixed_len = maildir_fixed_len(slice_string(pattern));
    buf_init(&address, ADDRESS_MAX + NAME_MAX_BYTES + 2);
    ok = address_quote_local(buf_slice(&e->name), &address);
    if (ok && domain.len > 0) {
        ok = buf_add_byte(&address, '@') && buf_add(&address, domain);
    }
    *ret_why = "the name can't be a local part";
    ok = ok &&
         maildir_path(slice_string(pattern), buf_slice(&address), SLICE(""), &e->where, ret_why);
    buf_fini(&address);
    return ok;
}

/* Finds the place of a user's mail. Returns a success status, or another with the reason in
 * *ret_why. */
static struct status plan_user(struct mailbox_task *e, const char *name, const char **ret_why)
{
    int rc = find_any_case(e, name);

    *ret_why = "no such user";
    if (rc == ENOENT) {
        return unknown_user;
    }
    if (rc != 0) {
        *ret_why = "the user can't be looked up now";
        return system_trouble;
    }
    if (e->mailbox->maildir != NULL) {
        e->place = PLACE_MAILDIR;
        return put_maildir_path(e, address_split(e->rcpt->address.user).domain, ret_why)
                   ? delivered
                   : unknown_user;
    }
    e->place = PLACE_MBOX;
    e->dot_lock = true;
    *ret_why = "the user name can't be a file name";
    return put_mbox_path(e) ? delivered : unknown_user;
}

static struct status plan(struct mailbox_task *e, const char **ret_why)
{
    struct buf name;
    struct slice text;
    struct status status = delivered;

    buf_init(&name, CONTROL_WORD_MAX + 1);
    *ret_why = "the address does not parse";
    if (!plain_name(e->rcpt->address.user, &name)) {
        status = bad_address;
    } else {
        text = buf_slice(&name);
        if (text.ptr[0] == '|' || text.ptr[0] == '/') {
            e->place = text.ptr[0] == '|' ? PLACE_COMMAND : PLACE_MBOX;
            find_privilege(e);
            CHECK(buf_add(&e->where, slice_skip(text, text.ptr[0] == '|' ? 1 : 0)));
        } else {
            status = plan_user(e, buf_cstr(&name), ret_why);
        }
    }
    buf_fini(&name);
    return status;
}

/* ---- one recipient -------------------------------------------------------------------------- */

static struct status run(struct mailbox_task *e, struct buf *text)
{
    struct pipe_end end = {.name = e->place == PLACE_COMMAND ? buf_cstr(&e->where) : "delivery",
                           .service = "mailbox"};
    struct ta_child_end child;
    struct buf output;
    struct status status;
    int rc;

    buf_init(&output, OUTPUT_MAX);
    rc = ta_child_run(child_body, e, e->content.fd, e->mailbox->command_timeout_s, &output, &child);
    if (rc != 0) {
        status = system_trouble;
        (void)buf_addf(text, "cannot start a process: %s", strerror(-rc));
    } else {
        end.wait_status = child.wait_status;
        end.timed_out = child.timed_out;
        end.output = buf_slice(&output);
        status = pipe_result(&end, text);
        if (status.class == STATUS_SUCCESS) {
            status = delivered;
            buf_clear(text);
            (void)buf_add_string(text, "Ok");
        }
    }
    buf_fini(&output);
    return status;
}

void mailbox_deliver(struct mailbox *m, struct ta_job *job, size_t i)
{
    struct mailbox_task *e = mem_new(sizeof *e);
    const char *why = "";
    struct status status;
    struct buf text;

    e->mailbox = m;
    e->job = job;
    e->rcpt = job->rcpts[i].rcpt;
    e->sender = ta_job_sender(job, i);
    buf_init(&e->name, ACCOUNT_MAX);
    buf_init(&e->home, ACCOUNT_MAX);
    buf_init(&e->where, MBOX_PATH_MAX > CONTROL_WORD_MAX ? MBOX_PATH_MAX : CONTROL_WORD_MAX);
    buf_init(&text, OUTPUT_MAX);
    ta_content_init(&e->content, job, i);
    m->deliveries++;
    status = plan(e, &why);
    if (status.class == STATUS_SUCCESS) {
        status = run(e, &text);
    } else {
        (void)buf_add_string(&text, why);
    }
    ta_local_settle(job, i, status, buf_slice(&text));
    ta_job_tell(job); /* the next delivery may take long */
    buf_fini(&text);
    buf_fini(&e->where);
    buf_fini(&e->home);
    buf_fini(&e->name);
    mem_free(e);
}
