/* Commands for the configuration. None needs a daemon. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "bundle.h"
#include "check.h"
#include "commands.h"
#include "main_cf.h"
#include "param.h"
#include "preflight.h"
#include "words.h"

#define TEXT_MAX (16u << 20)

/* Prints the faults of a configuration, with text from it, as far as they fit. */
static void print_complaints(struct buf *text)
{
    text->failed = false;
    put_lines(stderr, buf_cstr(text));
    buf_fini(text);
}

/* Prints as much of a built text as fits. */
static void print_text(FILE *out, struct buf *text)
{
    text->failed = false;
    fputs(buf_cstr(text), out);
    buf_fini(text);
}

/* Checks the configuration as the daemon reads it, with certificates and keys. */
int run_config_check(const struct command *c, const struct args *a)
{
    const char *path = a->word_count > 0 ? a->words[0] : command_conf_path(a);
    struct bundle bundle;
    struct buf text;
    bool ok;

    (void)c;
    buf_init(&text, TEXT_MAX);
    ok = bundle_load(path, &bundle, &text);
    if (ok) {
        ok = preflight(bundle.conf, NULL, &text) == EX_OK;
        bundle_fini(&bundle);
    }
    print_complaints(&text);
    if (!ok) {
        return EX_CONFIG;
    }
    printf("%s: no errors\n", path == NULL ? "the built-in configuration" : path);
    return EX_OK;
}

static int (*postfix_check)(const char *directory, FILE *out);

void commands_use_postfix_check(int (*check)(const char *directory, FILE *out))
{
    postfix_check = check;
}

int run_postfix_check(const struct command *c, const struct args *a)
{
    if (postfix_check == NULL) {
        return command_misused(c, "this program does not know Postfix");
    }
    return postfix_check(a->word_count > 0 ? a->words[0] : "/etc/postfix", stdout);
}

/* Is the parameter selected by its name on the command line, or are all? */
static bool wanted(const struct param *p, const struct args *a)
{
    for (size_t i = 0; i < a->word_count; i++) {
        struct slice name = slice_string(a->words[i]);

        if (param_find_in_clause(name) == p || param_find(name) == p) {
            return true;
        }
    }
    return a->word_count == 0;
}

/* Returns a name on the command line that is no policy value, or NULL. */
static const char *not_of_policy(const struct args *a)
{
    for (size_t i = 0; i < a->word_count; i++) {
        struct slice name = slice_string(a->words[i]);
        const struct param *p = param_find(name);

        p = p != NULL ? p : param_find_in_clause(name);
        if (p == NULL || p->suffix == NULL) {
            return a->words[i];
        }
    }
    return NULL;
}

#define ORIGIN_COLUMN 48

/* Appends the place of a value, in a column of its own. */
static void print_origin(struct buf *out, size_t width, const struct policy_origin *origin)
{
    int blanks = width < ORIGIN_COLUMN ? (int)(ORIGIN_COLUMN - width) : 1;

    if (origin->file == NULL) {
        (void)buf_addf(out, "%*s# built in\n", blanks, ""); /* sticky */
    } else {
        (void)buf_addf(out, "%*s# %s:%u %s\n", blanks, "", origin->file, origin->line,
                       origin->name); /* sticky */
    }
}

static int show_policy(const struct conf *conf, const struct args *a)
{
    struct slice nexthop = slice_string(a->for_destination);
    struct slice transport = slice_cut(&nexthop, '/');
    const char *unknown = not_of_policy(a);
    struct policy_origin origins[PARAM_COUNT_MAX];
    struct policy policy;
    struct buf text;

    if (!policy_explain(conf, transport, nexthop, &policy, origins)) {
        fprintf(stderr, "sluice: no transport is called %.*s, and no clause matches\n",
                SLICE_ARGS(transport));
        return EX_CONFIG;
    }
    buf_init(&text, TEXT_MAX);
    if (unknown != NULL) {
        (void)buf_addf(&text, "sluice: no value of destinations is called %s", unknown); /* fits */
        param_add_nearest(&text, slice_string(unknown), true);
        (void)buf_add_byte(&text, '\n'); /* fits */
        print_text(stderr, &text);
        return EX_CONFIG;
    }
    for (size_t i = param_policy_first; i < param_count; i++) {
        if (wanted(&param_table[i], a)) {
            size_t before = buf_len(&text);

            (void)buf_addf(&text, "%s = ", param_table[i].suffix); /* sticky */
            param_print(&text, &param_table[i], &policy);
            print_origin(&text, buf_len(&text) - before, &origins[i]);
        }
    }
    print_text(stdout, &text);
    return EX_OK;
}

static int show_all(const struct conf *conf, const struct args *a)
{
    struct buf text;
    bool ok;

    buf_init(&text, TEXT_MAX);
    ok = conf_print(&text, conf, a->word_count == 0 ? NULL : (const char *const *)a->words,
                    a->word_count, a->changed);
    print_text(stdout, &text);
    return ok ? EX_OK : EX_CONFIG;
}

int run_config_show(const struct command *c, const struct args *a)
{
    struct conf *conf;
    int status;

    if (a->changed && a->for_destination != NULL) {
        return command_misused(c, "either -n or --for");
    }
    conf = command_conf(a);
    if (conf == NULL) {
        return EX_CONFIG;
    }
    status = a->for_destination != NULL ? show_policy(conf, a) : show_all(conf, a);
    conf_free(conf);
    return status;
}

int run_config_explain(const struct command *c, const struct args *a)
{
    struct conf *conf = command_conf(a);
    struct buf text;
    bool known;

    (void)c;
    buf_init(&text, TEXT_MAX);
    known = conf_explain(&text, conf, a->words[0]); /* the value is left out without a
                                                     * configuration */
    print_text(known ? stdout : stderr, &text);
    conf_free(conf);
    return known ? EX_OK : EX_CONFIG;
}

static bool read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "re");
    size_t n = 1;

    while (f != NULL && n > 0) {
        char *room = buf_room(out, 65536);

        n = room == NULL ? 0 : fread(room, 1, 65536, f);
        buf_grew(out, n);
    }
    if (f == NULL || out->failed || ferror(f) != 0) {
        fprintf(stderr, "sluice: %s: %s\n", path,
                out->failed ? "the file is too large" : strerror(errno));
        if (f != NULL) {
            (void)fclose(f); /* only read */
        }
        return false;
    }
    (void)fclose(f); /* only read */
    return true;
}

int run_config_import(const struct command *c, const struct args *a)
{
    struct main_cf_counts n;
    struct buf text, ours;
    int status = EX_NOINPUT;

    (void)c;
    buf_init(&text, CONF_FILE_MAX);
    buf_init(&ours, TEXT_MAX);
    if (read_file(a->words[0], &text)) {
        (void)buf_addf(&ours, "# From %s, by sluice config import.\n", a->words[0]); /* fits */
        main_cf_import(buf_slice(&text), &ours, &n);
        print_text(stdout, &ours);
        fprintf(stderr, "%s: %u parameters taken over, %u translated, %u not needed, %u lost\n",
                a->words[0], n.kept, n.changed, n.needless, n.lost);
        status = EX_OK;
    }
    buf_fini(&text);
    buf_fini(&ours);
    return status;
}
