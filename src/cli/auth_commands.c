/* Commands for the users that may log in to send mail (auth_users). None needs a daemon. */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"
#include "class_name.h"
#include "commands.h"
#include "entropy.h"
#include "json.h"
#include "mem.h"
#include "printable.h"
#include "secrets_file.h"
#include "verifier_list.h"
#include "words.h"

/* Cost of a password: more rounds slow down guessing from a stolen file, and each login. */
#define ROUNDS     20000
#define SALT_BYTES 16
#define ERROR_MAX  1000

/* A file of users that a command uses. */
struct users {
    struct secrets_file file;
    struct verifier_list *list; /* users in the file */
};

/* ---- the file ------------------------------------------------------------------------------- */

static void users_close(struct users *u)
{
    verifier_list_free(u->list);
    secrets_close(&u->file);
}

/* Opens the file of the command line, otherwise that of the configuration. It need not exist if a
 * user is added. Returns EX_OK, or an exit status after an error message. */
static int users_open(struct users *u, const struct args *a, size_t word, bool may_lack)
{
    struct buf error;
    int status;

    *u = (struct users){.list = NULL};
    status = secrets_open(&u->file, a, word, may_lack, "auth_users");
    if (status != EX_OK) {
        return status;
    }
    buf_init(&error, ERROR_MAX);
    u->list = verifier_list_new(buf_slice(&u->file.text), &error);
    if (u->list == NULL) {
        fprintf(stderr, "%s:%s\n", u->file.path, buf_cstr(&error));
        status = EX_DATAERR;
    }
    buf_fini(&error);
    return status;
}

/* ---- passwords ------------------------------------------------------------------------------ */

/* Reads a line of standard input without its end. Returns false if there is none or it is too
 * long. */
static bool read_line(struct buf *ret_line)
{
    char c;
    ssize_t n;

    while ((n = read(STDIN_FILENO, &c, 1)) == 1 && c != '\n') {
        if (!buf_add_byte(ret_line, c)) {
            return false;
        }
    }
    return n == 1 || buf_len(ret_line) > 0;
}

/* Reads a password at the terminal, without echo. */
static bool ask_once(const char *prompt, struct buf *ret_password)
{
    struct termios before, quiet;
    bool ok;

    if (tcgetattr(STDIN_FILENO, &before) != 0) {
        return false;
    }
    quiet = before;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) != 0) {
        return false;
    }
    fputs(prompt, stderr);
    ok = read_line(ret_password);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before); /* worked before */
    fputc('\n', stderr);
    return ok;
}

/* Reads a password twice at the terminal, or once from standard input. */
static int get_password(struct buf *ret_password)
{
    struct buf again;
    bool ok, same = true;

    /* allocated at once: memory that is reallocated is not overwritten */
    if (buf_room(ret_password, SASL_PASSWORD_MAX) == NULL) {
        return EX_OSERR;
    }
    if (isatty(STDIN_FILENO)) {
        buf_init(&again, SASL_PASSWORD_MAX);
        ok = ask_once("Password: ", ret_password) && buf_room(&again, SASL_PASSWORD_MAX) != NULL &&
             ask_once("Again: ", &again);
        same = !ok || slice_equal(buf_slice(ret_password), buf_slice(&again));
        buf_wipe(&again);
    } else {
        ok = read_line(ret_password);
    }
    if (!ok || buf_len(ret_password) == 0) {
        fprintf(stderr, "sluice: a password of 1 to %d bytes is expected\n", SASL_PASSWORD_MAX);
        return EX_DATAERR;
    }
    if (!same) {
        fputs("sluice: these are two passwords\n", stderr);
        return EX_DATAERR;
    }
    return EX_OK;
}

/* ---- commands ------------------------------------------------------------------------------- */

static int check_options(const struct command *c, const struct args *a)
{
    char room[CLASS_NAME_MAX];
    struct slice name;

    if (!verifier_user_is_valid(slice_string(a->words[0]))) {
        return command_misused(c, "a user has a name of 1 to 255 bytes without blanks and colons");
    }
    if (a->user_class != NULL && !class_name_parse(slice_string(a->user_class), room, &name)) {
        return command_misused(c, "--class: that is no name of a class");
    }
    if (a->user_senders != NULL && !name_lines_senders_are_valid(slice_string(a->user_senders))) {
        return command_misused(c,
                               "--senders: addresses or @DOMAINs are expected, with commas between "
                               "them");
    }
    return EX_OK;
}

static int add_user(const struct users *u, const struct args *a)
{
    struct slice user = slice_string(a->words[0]);
    const struct verifier *known = verifier_list_find(u->list, user);
    struct slice class_name = known != NULL ? known->line.class_name : SLICE("");
    struct slice senders = known != NULL ? known->line.senders : SLICE("");
    uint8_t salt[SALT_BYTES];
    struct scram_secret secret;
    struct buf password, line;
    int status;

    buf_init(&password, SASL_PASSWORD_MAX);
    status = get_password(&password);
    if (status == EX_OK) {
        entropy_fill(salt, sizeof salt);
        scram_derive(buf_slice(&password), salt, sizeof salt, ROUNDS, &secret);
        buf_init(&line, NAME_LINES_SENDERS_MAX + ERROR_MAX);
        verifier_put(&line, user, &secret,
                     a->user_class != NULL ? slice_string(a->user_class) : class_name,
                     a->user_senders != NULL ? slice_string(a->user_senders) : senders);
        explicit_bzero(&secret, sizeof secret);
        status = secrets_rewrite(&u->file, user, buf_slice(&line));
        buf_wipe(&line);
    }
    buf_wipe(&password);
    if (status == EX_OK) {
        printf("%s: %s in %s; `sluice reload' makes the daemon see it\n", a->words[0],
               known != NULL ? "changed" : "added", u->file.path);
    }
    return status;
}

int run_auth_add(const struct command *c, const struct args *a)
{
    struct users u;
    int status = check_options(c, a);

    if (status != EX_OK) {
        return status;
    }
    status = users_open(&u, a, 1, true);
    if (status == EX_OK) {
        status = add_user(&u, a);
    }
    users_close(&u);
    return status;
}

int run_auth_remove(const struct command *c, const struct args *a)
{
    struct slice user = slice_string(a->words[0]);
    struct users u;
    int status;

    (void)c;
    status = users_open(&u, a, 1, false);
    if (status == EX_OK && verifier_list_find(u.list, user) == NULL) {
        fprintf(stderr, "sluice: %s: there is no user %s\n", u.file.path, a->words[0]);
        status = EX_NOUSER;
    }
    if (status == EX_OK) {
        status = secrets_rewrite(&u.file, user, SLICE(""));
    }
    if (status == EX_OK) {
        printf("%s: removed from %s; `sluice reload' makes the daemon see it\n", a->words[0],
               u.file.path);
    }
    users_close(&u);
    return status;
}

static void print_column(struct slice text, const char *otherwise, int width)
{
    printf("%-*.*s  ", width, text.len > 0 ? (int)text.len : (int)strlen(otherwise),
           text.len > 0 ? text.ptr : otherwise);
}

/* Makes a JSON text of a name, in which `?' replaces bytes that are not UTF-8. */
static json_t *text_of(struct slice text)
{
    char *copy = mem_copy(text.ptr, text.len);
    json_t *value;

    printable_fix(copy, text.len);
    value = json_stringn(copy, text.len);
    mem_free(copy);
    CHECK(value != NULL);
    return value;
}

static json_t *user_json(const struct verifier *v)
{
    json_t *one = json_object(), *senders = json_array();
    struct slice rest = v->line.senders;

    while (rest.len > 0) {
        json_add(senders, text_of(slice_cut(&rest, ',')));
    }
    json_put(one, "user", text_of(slice_string(v->line.name)));
    json_put(one, "class", v->line.class_name.len > 0 ? text_of(v->line.class_name) : json_null());
    json_put(one, "senders", v->line.senders.len > 0 ? senders : json_null());
    if (v->line.senders.len == 0) {
        json_decref(senders);
    }
    json_put(one, "line", json_integer((json_int_t)v->line.number));
    return one;
}

static void print_json(const struct users *u)
{
    json_t *all = json_array();
    const struct verifier *v;

    for (size_t i = 0; (v = verifier_list_at(u->list, i)) != NULL; i++) {
        json_add(all, user_json(v));
    }
    put_json(stdout, all);
    json_decref(all);
}

int run_auth_list(const struct command *c, const struct args *a)
{
    const struct verifier *v;
    struct users u;
    int status;

    (void)c;
    status = users_open(&u, a, 0, false);
    if (status == EX_OK && a->json) {
        print_json(&u);
    }
    for (size_t i = 0; status == EX_OK && !a->json && (v = verifier_list_at(u.list, i)) != NULL;
         i++) {
        print_column(slice_string(v->line.name), "", 20);
        print_column(v->line.class_name, "-", 12);
        printf("%.*s\n", v->line.senders.len > 0 ? (int)v->line.senders.len : 3,
               v->line.senders.len > 0 ? v->line.senders.ptr : "any");
    }
    users_close(&u);
    return status;
}
