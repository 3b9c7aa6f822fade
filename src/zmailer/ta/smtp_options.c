#include "smtp_options.h"
#include "door.h"
#include "zmailer_dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define TEXT_MAX   65536
#define ERRORS_MAX (1u << 20)

static _Noreturn void usage(const char *why)
{
    fprintf(stderr,
            "# smtp: %s\n"
            "# usage: smtp [-c CHANNEL] [-C CONFIGURATION | -6 -1 -h HELO-NAME -L ADDRESS -T "
            "TIMEOUTS]\n"
            "#   [-F HOST] [-l LOG-FILE] [-p PORT] [-x] [-V] [-8deEHMPrsX] [-w BYTES] [HOST]\n",
            why);
    exit(EX_USAGE);
}

/* ---- timeouts ------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    const char *parameters[6]; /* names of these timeouts here */
} timeouts[] = {
    {"conn", {"smtp_connect_timeout"}},
    {"cmd", {"smtp_helo_timeout", "smtp_mail_timeout", "smtp_rcpt_timeout"}},
    {"tcpw", {"smtp_data_xfer_timeout"}},
    {"data", {"smtp_data_init_timeout"}},
    {"dot", {"smtp_data_done_timeout"}},
};

/* Reads "conn=30s", or a number alone, which is the timeout of commands. */
static void take_timeout(struct slice text, struct buf *out)
{
    struct slice value = text, word = slice_cut(&value, '=');
    unsigned long long seconds;
    bool known = false;

    if (value.ptr == NULL) {
        value = word;
        word = SLICE("cmd");
    }
    if (value.len > 0 && value.ptr[value.len - 1] == 's') {
        value.len--;
    }
    if (!slice_number(value, 86400, &seconds) || seconds == 0) {
        usage("-T: a number of seconds, 1 to 86400, is expected");
    }
    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0]; i++) {
        for (size_t j = 0;
             slice_equal(word, slice_string(timeouts[i].word)) && timeouts[i].parameters[j] != NULL;
             j++) {
            (void)buf_addf(out, "%s = %llus\n", timeouts[i].parameters[j], seconds);
            known = true;
        }
    }
    if (!known) {
        usage("-T: one of conn, tcpw, cmd, data and dot is expected");
    }
}

static void take_timeouts(const char *list, struct buf *out)
{
    struct slice rest = slice_string(list);

    while (rest.ptr != NULL) {
        take_timeout(slice_trim(slice_cut(&rest, ',')), out);
    }
}

/* ---- options -------------------------------------------------------------------------------- */

static uint16_t take_port(const char *text)
{
    unsigned long long n;

    if (!slice_number(slice_string(text), 65535, &n) || n == 0) {
        usage("-p: a port, 1 to 65535, is expected");
    }
    return (uint16_t)n;
}

/* Appends a line of configuration whose value must be one word. */
static void put_parameter(struct buf *out, const char *name, const char *value)
{
    if (value[0] == '\0' || strpbrk(value, " \t\r\n\"'$#") != NULL) {
        usage("one word is expected after -h and -L");
    }
    (void)buf_addf(out, "%s = %s\n", name, value);
}

static void load(const char *path, struct buf *text, struct smtp_options *options)
{
    struct conf_problems problems;
    struct buf errors;
    bool ok;

    zmailer_open_conf();
    buf_init(&errors, ERRORS_MAX);
    if (path != NULL) {
        ok = bundle_load_client(path, &options->bundle, &errors);
    } else {
        options->bundle.conf = conf_load_text(buf_slice(text), "options", ".", NULL, &problems);
        ok = options->bundle.conf != NULL && !text->failed;
        conf_print_problems(&errors, &problems);
        conf_problems_fini(&problems);
    }
    if (!ok) {
        errors.failed = false; /* print as many as fit */
        for (struct slice rest = buf_slice(&errors); rest.len > 0;) {
            struct slice line = slice_cut(&rest, '\n');

            fprintf(stderr, "# smtp: %.*s\n", SLICE_ARGS(line));
        }
        exit(EX_CONFIG);
    }
    buf_fini(&errors);
}

void smtp_options_read(int argc, char **argv, struct smtp_options *ret_options)
{
    struct smtp_options options = {.channel = SLICE("smtp"), .host = SLICE("")};
    const char *path = NULL;
    struct buf text;
    int option;

    opterr = 0;
    buf_init(&text, TEXT_MAX);
    while ((option = getopt(argc, argv, "168c:C:deEF:h:Hl:L:Mp:PrsT:Vw:xX")) != -1) {
        switch (option) {
        case 'c':
            options.channel = slice_string(optarg);
            break;
        case 'C':
            path = optarg;
            break;
        case 'F':
            options.force_to = optarg;
            if (strlen(optarg) > CONTROL_WORD_MAX) {
                usage("-F: the name of a host is expected");
            }
            break;
        case 'l':
            options.log = optarg;
            break;
        case 'p':
            options.port = take_port(optarg);
            break;
        case 'x':
            options.no_mx = true;
            break;
        case '1':
            (void)buf_add_string(&text, "smtp_connection_cache_on_demand = no\n");
            break;
        case '6':
            (void)buf_add_string(&text, "smtp_address_preference = ipv6\n");
            break;
        case 'h':
            put_parameter(&text, "smtp_helo_name", optarg);
            break;
        case 'L':
            put_parameter(&text,
                          strchr(optarg, ':') == NULL ? "smtp_bind_address" : "smtp_bind_address6",
                          optarg);
            break;
        case 'T':
            take_timeouts(optarg, &text);
            break;
        case 'V':
            printf("smtp (Sluice) %s\n", SLUICE_VERSION);
            exit(EX_OK);
        case '?':
            usage("unknown option, one that is not supported (-7 -A -O -S -W), or no value for it");
        default: /* option of ZMailer's smtp without a meaning here */
            break;
        }
    }
    if (path != NULL && buf_len(&text) > 0) {
        usage("-1, -6, -h, -L and -T stand in the configuration when there is -C");
    }
    if (optind < argc) {
        options.host = slice_string(argv[optind++]);
    }
    if (optind < argc) {
        usage("one host is expected after the options");
    }
    load(path, &text, &options);
    buf_fini(&text);
    *ret_options = options;
}

void smtp_options_fini(struct smtp_options *options)
{
    bundle_fini(&options->bundle);
}

/* ---- next hops ------------------------------------------------------------------------------ */

/* Appends a next hop to the list that begins at `start` of *out. */
static void put_hop(const struct smtp_options *options, struct slice host, bool no_mx, size_t start,
                    struct buf *out)
{
    bool in_brackets = slice_starts(host, SLICE("["));

    if (buf_len(out) > start) {
        (void)buf_add_string(out, ", ");
    }
    (void)buf_addf(out, "%s%.*s%s", no_mx && !in_brackets ? "[" : "", SLICE_ARGS(host),
                   no_mx && !in_brackets ? "]" : "");
    if (options->port != 0) {
        (void)buf_addf(out, ":%u", options->port);
    }
}

/* Appends a list of exchangers. The router has already looked up their MX records, so they are
 * hosts. */
static void put_list(const struct smtp_options *options, struct slice list, struct buf *out)
{
    size_t count = 0, start = buf_len(out);

    while (list.len > 0 && count < SMTP_OPTIONS_HOPS_MAX) {
        size_t len = 0;

        while (len < list.len && memchr("() \t", list.ptr[len], 4) == NULL) {
            len++;
        }
        if (len > 0) {
            put_hop(options, slice_of(list.ptr, len), true, start, out);
            count++;
        }
        list = slice_skip(list, len + 1);
    }
}

void smtp_options_nexthop(const struct smtp_options *options, struct slice host, struct buf *out)
{
    if (options->force_to != NULL) {
        put_hop(options, slice_string(options->force_to), options->no_mx, buf_len(out), out);
    } else if (slice_starts(host, SLICE("("))) {
        put_list(options, host, out);
    } else {
        put_hop(options, host, options->no_mx, buf_len(out), out);
    }
}
