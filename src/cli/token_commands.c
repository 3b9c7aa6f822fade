/* Commands for the tokens of programs (api_tokens). None needs a daemon. */
#include <stdio.h>
#include <sysexits.h>

#include "class_name.h"
#include "commands.h"
#include "secrets_file.h"
#include "token_list.h"
#include "verifier_list.h"

#define ERROR_MAX 1000

/* A file of tokens that a command uses. */
struct tokens {
    struct secrets_file file;
    struct token_list *list; /* tokens in the file */
};

static void tokens_close(struct tokens *t)
{
    token_list_free(t->list);
    secrets_close(&t->file);
}

static int tokens_open(struct tokens *t, const struct args *a, size_t word, bool may_lack)
{
    struct buf error;
    int status;

    *t = (struct tokens){.list = NULL};
    status = secrets_open(&t->file, a, word, may_lack, "api_tokens");
    if (status != EX_OK) {
        return status;
    }
    buf_init(&error, ERROR_MAX);
    t->list = token_list_new(buf_slice(&t->file.text), &error);
    if (t->list == NULL) {
        fprintf(stderr, "%s:%s\n", t->file.path, buf_cstr(&error));
        status = EX_DATAERR;
    }
    buf_fini(&error);
    return status;
}

static int check_options(const struct command *c, const struct args *a, unsigned *ret_rights)
{
    char room[CLASS_NAME_MAX];
    struct slice name;

    *ret_rights = TOKEN_INJECT;
    if (!token_name_is_valid(slice_string(a->words[0]))) {
        return command_misused(
            c, "a token has a name of 1 to 64 letters, digits, and _ - . @ after the first");
    }
    if (a->token_rights != NULL && !token_rights_parse(slice_string(a->token_rights), ret_rights)) {
        return command_misused(c, "--rights: inject, read or operate, with commas between them");
    }
    if (a->user_class != NULL && !class_name_parse(slice_string(a->user_class), room, &name)) {
        return command_misused(c, "--class: that is no name of a class");
    }
    if (a->user_senders != NULL && !name_lines_senders_are_valid(slice_string(a->user_senders))) {
        return command_misused(c, "--senders: addresses or @DOMAINs are expected, with commas "
                                  "between them");
    }
    return EX_OK;
}

static int add_token(const struct tokens *t, const struct args *a, unsigned rights)
{
    struct slice name = slice_string(a->words[0]);
    const struct token *known = token_list_find(t->list, name);
    struct slice class_name = known != NULL ? known->line.class_name : SLICE("");
    struct slice senders = known != NULL ? known->line.senders : SLICE("");
    struct buf text, line;
    int status;

    buf_init(&text, TOKEN_MAX);
    buf_init(&line, NAME_LINES_SENDERS_MAX + ERROR_MAX);
    token_make(name, known != NULL && a->token_rights == NULL ? known->rights : rights,
               a->user_class != NULL ? slice_string(a->user_class) : class_name,
               a->user_senders != NULL ? slice_string(a->user_senders) : senders, &text, &line);
    status = secrets_rewrite(&t->file, name, buf_slice(&line));
    if (status == EX_OK) {
        printf("%s\n", buf_cstr(&text));
        fprintf(stderr,
                "%s: %s in %s; this is the only time that the token is shown; `sluice reload' "
                "makes the daemon see it\n",
                a->words[0], known != NULL ? "replaced" : "added", t->file.path);
    }
    buf_wipe(&text);
    buf_fini(&line);
    return status;
}

int run_token_add(const struct command *c, const struct args *a)
{
    unsigned rights;
    struct tokens t;
    int status = check_options(c, a, &rights);

    if (status != EX_OK) {
        return status;
    }
    status = tokens_open(&t, a, 1, true);
    if (status == EX_OK) {
        status = add_token(&t, a, rights);
    }
    tokens_close(&t);
    return status;
}

int run_token_remove(const struct command *c, const struct args *a)
{
    struct slice name = slice_string(a->words[0]);
    struct tokens t;
    int status;

    (void)c;
    status = tokens_open(&t, a, 1, false);
    if (status == EX_OK && token_list_find(t.list, name) == NULL) {
        fprintf(stderr, "sluice: %s: there is no token %s\n", t.file.path, a->words[0]);
        status = EX_NOUSER;
    }
    if (status == EX_OK) {
        status = secrets_rewrite(&t.file, name, SLICE(""));
    }
    if (status == EX_OK) {
        printf("%s: removed from %s; `sluice reload' makes the daemon see it\n", a->words[0],
               t.file.path);
    }
    tokens_close(&t);
    return status;
}

int run_token_list(const struct command *c, const struct args *a)
{
    const struct token *token;
    struct tokens t;
    struct buf rights;
    int status;

    (void)c;
    buf_init(&rights, ERROR_MAX);
    status = tokens_open(&t, a, 0, false);
    for (size_t i = 0; status == EX_OK && (token = token_list_at(t.list, i)) != NULL; i++) {
        struct slice class_name = token->line.class_name, senders = token->line.senders;

        buf_clear(&rights);
        token_rights_put(token->rights, &rights);
        class_name = class_name.len > 0 ? class_name : SLICE("-");
        senders = senders.len > 0 ? senders : SLICE("any");
        printf("%-20s  %-18s  %-12.*s  %.*s\n", token->line.name, buf_cstr(&rights),
               SLICE_ARGS(class_name), SLICE_ARGS(senders));
    }
    buf_fini(&rights);
    tokens_close(&t);
    return status;
}
