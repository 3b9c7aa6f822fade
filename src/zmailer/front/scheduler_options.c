#include "scheduler_options.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "slice.h"

#define SCAN_FILES_DEFAULT 40000
#define SCAN_FILES_MIN     10
#define SCAN_S_DEFAULT     5
#define SCAN_S_MIN         2
#define SCAN_S_MAX         15
#define FD_LIMIT_DEFAULT   32 /* also used for values below FD_LIMIT_MIN */
#define FD_LIMIT_MIN       10
#define START_RATE_DEFAULT 30

/* Parses a number. Appends to `messages` may fail here and below; the text is cut. */

static bool number(const char *text, unsigned *ret_number)
{
    unsigned long long value;

    if (!slice_number(slice_string(text), INT_MAX, &value)) {
        return false;
    }
    *ret_number = (unsigned)value;
    return true;
}

static unsigned at_least(unsigned value, unsigned least)
{
    return value < least ? least : value;
}

/* Parses "n" or "n,t". */
static bool parse_scan(const char *text, struct scheduler_options *o)
{
    struct slice rest = slice_string(text), files = slice_cut(&rest, ',');
    unsigned long long n, seconds = SCAN_S_DEFAULT;

    if (!slice_number(files, INT_MAX, &n) ||
        (rest.ptr != NULL && !slice_number(rest, INT_MAX, &seconds))) {
        return false;
    }
    o->scan_files = at_least((unsigned)n, SCAN_FILES_MIN);
    seconds = seconds > SCAN_S_MAX ? SCAN_S_MAX : seconds;
    o->scan_s = at_least((unsigned)seconds, SCAN_S_MIN);
    return true;
}

/* Sets an option with a number as its value, or a flag. Returns false if the value is invalid. */
static bool set_number(struct scheduler_options *o, int option, const char *value)
{
    switch (option) {
    case 'E':
        return parse_scan(value, o);
    case 'N':
        if (!number(value, &o->fd_limit)) {
            return false;
        }
        o->fd_limit = o->fd_limit < FD_LIMIT_MIN ? FD_LIMIT_DEFAULT : o->fd_limit;
        return true;
    case 'R':
        if (!number(value, &o->start_rate)) {
            return false;
        }
        o->start_rate = at_least(o->start_rate, 1);
        return true;
    default:
        return false;
    }
}

static bool set_flag(struct scheduler_options *o, int option)
{
    switch (option) {
    case 'd':
        o->mode = SCHEDULER_DAEMON;
        return true;
    case 'i':
        o->mode = SCHEDULER_FOREGROUND;
        return true;
    case 'v':
        o->mode = SCHEDULER_FOREGROUND;
        o->verbose++;
        return true;
    case 'W':
        o->verbose_late = true;
        return true;
    case 'V':
        o->version = true;
        return true;
    case 'F':
        o->freeze = true;
        return true;
    case 'H':
        o->hash_levels += o->hash_levels < 2;
        return true;
    case 'n':
        o->headers_only = !o->headers_only;
        return true;
    case 'Q':
        o->mailq_short = true;
        return true;
    case 'S':
        o->read_queue_first = true;
        return true;
    default:
        return false;
    }
}

/* Returns the member for the text of an option, or NULL if the option has none. */
static const char **text_of(struct scheduler_options *o, int option)
{
    switch (option) {
    case 'f':
        return &o->conf;
    case 'L':
        return &o->log;
    case 'l':
        return &o->statistics;
    case 'P':
        return &o->postoffice;
    case 'p':
        return &o->only;
    case 'q':
        return &o->rendezvous;
    case 'Z':
        return &o->zenv;
    default:
        return NULL;
    }
}

static bool is_one_line(const char *text)
{
    return text[strcspn(text, "\r\n")] == '\0';
}

/* Is it a valid file name? Blanks and commas separate the names in a list. */
static bool is_file_name(const char *text)
{
    return text[0] != '\0' && text[strcspn(text, " ,\t\r\n")] == '\0';
}

/* Handles an option. Returns 0, SCHEDULER_VALUE_EXIT, or -1 for a usage error. */
static int take_option(struct scheduler_options *o, int option, struct buf *messages)
{
    const char **text = text_of(o, option);

    if (text != NULL) {
        *text = optarg;
        if (optarg[0] == '\0' || !is_one_line(optarg)) {
            (void)buf_addf(messages, "-%c: a text of one line is expected\n", option);
            return -1;
        }
        if (option == 'p' && strchr(optarg, '/') == NULL) {
            (void)buf_addf(messages, "-p: found `%s', expected CHANNEL/HOST\n", optarg);
            return SCHEDULER_VALUE_EXIT;
        }
        return 0;
    }
    if (option == 'M') {
        if (strcmp(optarg, "1") != 0 && strcmp(optarg, "2") != 0) {
            (void)buf_addf(messages, "-M: found `%s', expected 1 or 2\n", optarg);
            return SCHEDULER_VALUE_EXIT;
        }
        o->mailq_protocol = (unsigned)(optarg[0] - '0');
        return 0;
    }
    if (set_flag(o, option)) {
        return 0;
    }
    if (option == '?') {
        (void)buf_addf(messages, "unknown option -%c\n", optopt);
    } else if (option == ':') {
        (void)buf_addf(messages, "-%c needs a value\n", optopt);
    } else if (set_number(o, option, optarg)) {
        return 0;
    } else {
        (void)buf_addf(messages, "-%c: found `%s', expected %s\n", option, optarg,
                       option == 'E' ? "a number, or two with a comma" : "a number");
    }
    return -1;
}

int scheduler_options_parse(int argc, char **argv, struct scheduler_options *ret_options,
                            struct buf *messages)
{
    struct scheduler_options o = {
        .mode = SCHEDULER_DAEMON,
        .mailq_protocol = 1,
        .scan_files = SCAN_FILES_DEFAULT,
        .scan_s = SCAN_S_DEFAULT,
        .fd_limit = FD_LIMIT_DEFAULT,
        .start_rate = START_RATE_DEFAULT,
    };
    int option, errors = 0;

    opterr = 0;
    optind = 0; /* makes glibc's getopt start again */
    while ((option = getopt(argc, argv, ":divFHnQSVWf:E:L:l:M:N:P:p:R:q:Z:")) != -1) {
        int result = take_option(&o, option, messages);

        if (result > 0) {
            return result;
        }
        errors += result < 0;
    }
    o.files = argv + optind;
    for (char *const *file = o.files; *file != NULL; file++) {
        o.mode = SCHEDULER_FOREGROUND;
        if (!is_file_name(*file)) {
            (void)buf_addf(messages, "`%s': the name of a control file is expected\n", *file);
            errors++;
        }
    }
    if (errors > 0) {
        scheduler_options_usage(messages, argv[0]);
        return SCHEDULER_USAGE_EXIT + (errors < 127 ? errors : 127);
    }
    *ret_options = o;
    return 0;
}

void scheduler_options_usage(struct buf *out, const char *program)
{
    (void)buf_addf(out,
                   "Usage: %s [-divFHnQSVW] [-f conf] [-E n[,t]] [-L log] [-l statlog] [-M 1|2]\n"
                   "       [-N nofile] [-P postoffice] [-p channel/host] [-R forks] "
                   "[-q rendezvous]\n"
                   "       [-Z zenv] [control-file ...]\n",
                   program);
}
