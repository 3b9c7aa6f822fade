/* Commands for the configuration. None needs a daemon. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "bundle.h"
#include "check.h"
#include "commands.h"
#include "import_report.h"
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

/* Reads a file for the import, as postfix_read. */
static int read_file(void *arg, const char *path, size_t max, struct buf *out)
{
    FILE *f;
    struct stat st;
    size_t n = 1, got = 0;
    int error = 0;

    (void)arg;
    if (stat(path, &st) != 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) { /* a FIFO would be waited for */
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    }
    f = fopen(path, "re");
    if (f == NULL) {
        return -errno;
    }
    while (error == 0 && n > 0) {
        char *room = buf_room(out, 65536);

        n = room == NULL ? 0 : fread(room, 1, 65536, f);
        buf_grew(out, n);
        got += n;
        error = room == NULL || got > max ? -EFBIG : ferror(f) != 0 ? -EIO : 0;
    }
    (void)fclose(f); /* only read */
    return error;
}

static bool check_import(struct slice text, struct buf *ret_faults)
{
    struct bundle bundle;
    bool ok = bundle_load_text(BUNDLE_DEFAULT_PATH, text, &bundle, ret_faults);

    if (ok) {
        ok = preflight(bundle.conf, NULL, ret_faults) == EX_OK;
        bundle_fini(&bundle);
    }
    ret_faults->failed = false; /* later faults may be cut */
    return ok;
}

int run_config_import(const struct command *c, const struct args *a)
{
    char *path = realpath(a->words[0], NULL);
    char hostname[HOST_NAME_MAX + 1] = "";
    struct main_cf_world world = {
        .hostname = hostname,
        .read = read_file,
        .check = check_import,
        .check_path = BUNDLE_DEFAULT_PATH,
    };
    struct import_report report;
    struct buf ours, decisions;
    int error, status = EX_OK;

    (void)c;
    if (path == NULL || gethostname(hostname, sizeof hostname - 1) != 0) {
        fprintf(stderr, "sluice: %s: %s\n", a->words[0], strerror(errno));
        free(path);
        return EX_NOINPUT;
    }
    buf_init(&ours, TEXT_MAX);
    buf_init(&decisions, TEXT_MAX);
    error = main_cf_import(path, &world, &ours, &report);
    if (error != 0) {
        fprintf(stderr, "sluice: %s: %s\n", path, strerror(-error));
        buf_fini(&ours);
        status = EX_NOINPUT;
    } else {
        print_text(stdout, &ours);
        import_print_decisions(&report, &decisions);
        fprintf(stderr,
                "%s: %zu settings taken over, %zu translated, %zu not needed, %zu of other "
                "programs, %zu lost; %zu decisions\n",
                path, import_count(&report, IMPORT_SAME), import_count(&report, IMPORT_TRANSLATED),
                import_count(&report, IMPORT_NEEDLESS), import_count(&report, IMPORT_NEIGHBOUR),
                import_count(&report, IMPORT_LOST), import_decisions(&report));
        status = import_decisions(&report) > 0 ? EX_CONFIG : EX_OK;
    }
    print_text(stderr, &decisions);
    import_report_fini(&report);
    free(path);
    return status;
}
