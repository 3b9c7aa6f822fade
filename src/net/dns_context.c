#include "dns_context.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <event2/event.h>
#include <string.h>
#include <unbound-event.h>
#include <unbound.h>

#include "check.h"
#include "dns_answer.h"
#include "mem.h"

#define ANCHOR_MAX 4096 /* bytes of a record as text */
/* Sockets for queries; further queries wait in the library. */
#define SOCKETS "256"
/* Name servers of a resolv.conf; the C library uses 3. */
#define SYSTEM_SERVERS_MAX 8
/* Names of a hosts file. libunbound needs 10 us and 900 bytes for each. */
#define HOSTS_NAMES_MAX 50000

/* Adds a server: "127.0.0.1:53" and "[::1]:53" become "127.0.0.1@53" for libunbound. */
static bool add_server(struct ub_ctx *context, struct slice server)
{
    char text[64];
    struct slice port = slice_of("", 0);
    struct buf b;
    bool ok;

    if (slice_starts(server, SLICE("["))) {
        server = slice_skip(server, 1);
        port = server;
        server = slice_cut(&port, ']');
        port = slice_starts(port, SLICE(":")) ? slice_skip(port, 1) : slice_of("", 0);
    } else if (slice_find(server, ':') == slice_find_last(server, ':')) {
        port = server;
        server = slice_cut(&port, ':');
    }
    buf_init(&b, sizeof text - 1);
    ok =
        buf_addf(&b, "%.*s%s%.*s", SLICE_ARGS(server), port.len > 0 ? "@" : "", SLICE_ARGS(port)) &&
        ub_ctx_set_fwd(context, buf_cstr(&b)) == 0;
    buf_fini(&b);
    return ok;
}

static bool set_options(struct ub_ctx *context)
{
    static const char *const options[][2] = {
        {"do-not-query-localhost:", "no"},    {"outgoing-range:", SOCKETS},
        {"unblock-lan-zones:", "yes"}, /* within a site 10.in-addr.arpa and the like exist */
        {"local-zone:", "test. transparent"}, {"local-zone:", "home.arpa. transparent"},
    };

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (ub_ctx_set_option(context, options[i][0], options[i][1]) != 0) {
            return false;
        }
    }
    return true;
}

static const char no_records[] = "no DS or DNSKEY record is in it";

/* Adds the anchors, one record per line; a semicolon begins a comment. */
static bool add_anchors(struct ub_ctx *context, struct slice anchors, struct buf *ret_error)
{
    unsigned number = 0, records = 0;

    while (anchors.len > 0) {
        struct slice line = slice_cut(&anchors, '\n');
        char *text;
        int rc = 0;

        number++;
        line = slice_trim(slice_cut(&line, ';'));
        if (line.len > ANCHOR_MAX) {
            (void)buf_addf(ret_error, "line %u is too long for a record", number);
            return false;
        }
        if (line.len > 0) {
            text = mem_copy(line.ptr, line.len);
            rc = ub_ctx_add_ta(context, text);
            mem_free(text);
            records++;
        }
        if (rc != 0) {
            (void)buf_addf(ret_error, "line %u: %s", number, ub_strerror(rc));
            return false;
        }
    }
    if (number > 0 && records == 0) { /* otherwise nothing would be validated */
        (void)buf_add_string(ret_error, no_records);
        return false;
    }
    return true;
}

/* ---- resolv.conf and hosts ------------------------------------------------------------------- */

/* Adds the name servers; ignores invalid addresses, as the C library does. With no server at all
 * libunbound would query the root servers. */
static bool add_system_servers(struct ub_ctx *context, struct slice resolv_conf)
{
    size_t count = 0;

    while (resolv_conf.len > 0 && count < SYSTEM_SERVERS_MAX) {
        struct slice line = slice_cut(&resolv_conf, '\n');

        /* The C library ignores a line that begins with a blank. */
        if (slice_starts(line, SLICE("nameserver")) &&
            slice_equal(slice_cut_word(&line), SLICE("nameserver"))) {
            count += add_server(context, slice_cut_word(&line));
        }
    }
    return count > 0 || add_server(context, SLICE("127.0.0.1"));
}

/* Returns the type of the record for this address; NULL if it is not an address. */
static const char *record_type(struct slice address)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char bytes[16];

    if (address.len >= sizeof text) {
        return NULL;
    }
    memcpy(text, address.ptr, address.len);
    text[address.len] = '\0';
    return inet_pton(AF_INET, text, bytes) == 1    ? "A"
           : inet_pton(AF_INET6, text, bytes) == 1 ? "AAAA"
                                                   : NULL;
}

/* Adds the names of hosts; ignores invalid lines. */
static void add_hosts(struct ub_ctx *context, struct slice hosts)
{
    size_t count = 0;
    struct buf record;

    buf_init(&record, DNS_NAME_MAX + INET6_ADDRSTRLEN + 16);
    while (hosts.len > 0) {
        struct slice line = slice_cut(&hosts, '\n'), address, name;
        const char *type;

        line = slice_cut(&line, '#');
        address = slice_cut_word(&line);
        type = address.len > 0 ? record_type(address) : NULL;
        while (type != NULL && count < HOSTS_NAMES_MAX && (name = slice_cut_word(&line)).len > 0) {
            if (dns_name_valid(name)) {
                buf_clear(&record);
                CHECK(
                    buf_addf(&record, "%.*s %s %.*s", SLICE_ARGS(name), type, SLICE_ARGS(address)));
                count += ub_ctx_data_add(context, buf_cstr(&record)) == 0;
            }
        }
    }
    buf_fini(&record);
}

/* ---- a context ------------------------------------------------------------------------------- */

static bool configure(struct ub_ctx *context, const struct dns_sources *sources,
                      struct buf *ret_error)
{
    /* Without anchors answers are not validated. */
    const char *modules = sources->anchors.len > 0 ? "validator iterator" : "iterator";

    if (!set_options(context) || ub_ctx_set_option(context, "module-config:", modules) != 0) {
        (void)buf_add_string(ret_error, "libunbound does not know one of its options");
        return false;
    }
    if (!add_anchors(context, sources->anchors, ret_error)) {
        return false;
    }
    for (size_t i = 0; i < sources->count; i++) {
        if (!add_server(context, slice_string(sources->servers[i]))) {
            (void)buf_addf(ret_error, "bad name server \"%s\"", sources->servers[i]);
            return false;
        }
    }
    if (sources->count == 0 && !add_system_servers(context, sources->resolv_conf)) {
        (void)buf_add_string(ret_error, "libunbound does not take 127.0.0.1 as a name server");
        return false;
    }
    add_hosts(context, sources->hosts); /* last: then libunbound accepts no options */
    return true;
}

/* Ignores the first query, at which the library initializes itself. */
static void on_warm(void *arg, int rcode, void *packet, int packet_len, int secure, char *why_bogus,
                    int was_ratelimited)
{
    (void)arg;
    (void)rcode;
    (void)packet;
    (void)packet_len;
    (void)secure;
    (void)why_bogus;
    (void)was_ratelimited;
}

struct ub_ctx *dns_context_new(struct event_base *base, const struct dns_sources *sources,
                               bool quiet, struct buf *ret_error)
{
    struct ub_ctx *context = ub_ctx_create_event(base);

    if (context == NULL) {
        (void)buf_add_string(ret_error, "libunbound cannot use this event loop");
        return NULL;
    }
    if (quiet) {
        CHECK(ub_ctx_debugout(context, NULL) == 0); /* its default is standard error */
    }
    if (configure(context, sources, ret_error)) {
        int rc = ub_resolve_event(context, "localhost", ns_t_a, 1, NULL, on_warm, NULL);

        if (rc == 0) {
            return context;
        }
        (void)buf_addf(ret_error, "libunbound: %s", ub_strerror(rc));
    }
    ub_ctx_delete(context);
    return NULL;
}

/* Tries each line alone, because the library reads anchors when it initializes itself and does not
 * report which one is wrong. */
bool dns_anchors_ok(struct slice anchors, struct buf *ret_error)
{
    static const char *const nowhere[] = {"127.0.0.1:9"};
    struct event_base *base = event_base_new();
    unsigned number = 0, records = 0;
    bool ok = true;

    CHECK(base != NULL);
    while (ok && anchors.len > 0) {
        struct slice line = slice_cut(&anchors, '\n'), text = line;
        const struct dns_sources sources = {.servers = nowhere, .count = 1, .anchors = line};
        struct ub_ctx *context;
        struct buf why;

        number++;
        if (slice_trim(slice_cut(&text, ';')).len == 0) {
            continue;
        }
        records++;
        buf_init(&why, ANCHOR_MAX);
        context = dns_context_new(base, &sources, true, &why);
        ok = context != NULL;
        if (ok) {
            ub_ctx_delete(context);
        }
        buf_fini(&why);
    }
    event_base_free(base);
    if (!ok) {
        (void)buf_addf(ret_error, "line %u: expected a DS or DNSKEY record", number);
    } else if (records == 0) {
        (void)buf_add_string(ret_error, no_records);
        ok = false;
    }
    return ok;
}
