#include "nexthop.h"

#include <string.h>

#include "class_name.h"
#include "idn.h"
#include "match.h"

#define HOST_MAX       255
#define PATH_BYTES_MAX 107 /* sizeof sun_path of sockaddr_un without its NUL */

static bool host_name_ok(struct slice host)
{
    if (host.len == 0 || host.len > HOST_MAX || host.ptr[0] == '.' || host.ptr[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < host.len; i++) {
        unsigned char c = (unsigned char)host.ptr[i];

        /* Names in UTF-8 are valid: SMTPUTF8 domains become next hops. */
        if (!ascii_is_alnum((char)c) && c != '-' && c != '_' && c != '.' && c < 0x80) {
            return false;
        }
    }
    return true;
}

static bool unix_path(struct slice text, struct slice *ret_path)
{
    if (!slice_starts(text, SLICE("unix:")) || text.len == 5 || text.len > 5 + PATH_BYTES_MAX ||
        memchr(text.ptr, '\0', text.len) != NULL) {
        return false;
    }
    *ret_path = slice_skip(text, 5);
    return true;
}

/* Cuts "host" or "[host]" from the front of *rest. *rest is then empty or starts with ':'. */
static bool take_host(struct slice *rest, struct slice *ret_host, bool *ret_bracketed)
{
    bool bracketed = rest->len > 0 && rest->ptr[0] == '[';
    size_t end = slice_find(*rest, bracketed ? ']' : ':');

    if (bracketed && end == rest->len) {
        return false;
    }
    *ret_host = slice_of(rest->ptr + bracketed, end - bracketed);
    *rest = slice_skip(*rest, end + bracketed);
    *ret_bracketed = bracketed;
    return rest->len == 0 || rest->ptr[0] == ':';
}

/* Service names of mail. /etc/services is not read: confined processes have no files, and all of
 * them must find the same port. */
static const struct {
    const char *name;
    uint16_t port;
} services[] = {
    {"smtp", 25},   {"mail", 25},   {"submission", LISTEN_PORT_SUBMISSION},
    {"smtps", 465}, {"ssmtp", 465}, {"submissions", LISTEN_PORT_SUBMISSIONS},
    {"urd", 465},   {"lmtp", 24},
};

bool port_parse(struct slice text, unsigned lowest, uint16_t *ret_port)
{
    unsigned long long port;

    for (size_t i = 0; i < sizeof services / sizeof services[0]; i++) {
        if (slice_equal(text, slice_string(services[i].name))) {
            *ret_port = services[i].port;
            return true;
        }
    }
    if (!slice_number(text, UINT16_MAX, &port) || port < lowest) {
        return false;
    }
    *ret_port = (uint16_t)port;
    return true;
}

static bool take_port(struct slice rest, unsigned lowest, uint16_t *ret_port)
{
    return rest.len > 0 && port_parse(slice_skip(rest, 1), lowest, ret_port);
}

bool nexthop_parse(struct slice text, struct nexthop *ret_nexthop)
{
    struct nexthop n = {.is_unix = false};
    unsigned char ip[16];
    bool bracketed;

    if (unix_path(text, &n.host)) {
        n.is_unix = true;
        *ret_nexthop = n;
        return true;
    }
    if (!take_host(&text, &n.host, &bracketed) || (text.len > 0 && !take_port(text, 1, &n.port))) {
        return false;
    }
    if (bracketed && slice_starts_nocase(n.host, SLICE("ipv6:"))) {
        n.host = slice_skip(n.host, 5);
    }
    n.use_mx = !bracketed;
    n.is_address = ip_parse(n.host, ip);
    if (!n.is_address && !host_name_ok(n.host)) {
        return false;
    }
    *ret_nexthop = n;
    return true;
}

/* Is the byte between names, as in "[host]:port", in a list or in a set of a pattern? */
static bool is_between_names(char c)
{
    return memchr("/[]{}:, \t", c, 9) != NULL;
}

/* Removes the final dot of a name: it only marks the name as complete. */
static struct slice without_final_dot(struct slice name)
{
    if (name.len > 1 && name.ptr[name.len - 1] == '.') {
        char last = name.ptr[name.len - 2];

        name.len -= ascii_is_alnum(last) || (unsigned char)last > 0x7f;
    }
    return name;
}

/* Appends bytes to *used bytes of the room. Returns whether they fit. */
static bool put(char *room, size_t size, size_t *used, struct slice bytes)
{
    if (bytes.len > size - *used) {
        return false;
    }
    memmove(room + *used, bytes.ptr, bytes.len); /* they may be in their place */
    *used += bytes.len;
    return true;
}

struct slice nexthop_canonical(struct slice text, char *room, size_t size)
{
    struct slice rest = text;
    size_t used = 0;

    if (slice_starts(text, SLICE("unix:")) ||
        slice_starts(slice_skip(text, slice_find(text, '/') + 1), SLICE("unix:"))) {
        return text;
    }
    while (rest.len > 0) {
        struct slice name = slice_of(rest.ptr, 0), found;

        while (name.len < rest.len && !is_between_names(rest.ptr[name.len])) {
            name.len++;
        }
        rest = slice_skip(rest, name.len);
        found = idn_domain(without_final_dot(name), room + used, size - used);
        if (!put(room, size, &used, found)) {
            return text;
        }
        if (rest.len > 0) {
            if (!put(room, size, &used, slice_of(rest.ptr, 1))) {
                return text;
            }
            rest = slice_skip(rest, 1);
        }
    }
    return slice_equal(slice_of(room, used), text) ? text : slice_of(room, used);
}

bool listen_parse(struct slice text, struct listen_address *ret_listen)
{
    struct slice scheme = slice_of(text.ptr, slice_find(text, ':'));
    struct listen_address l = {
        .lmtp = slice_equal_nocase(scheme, SLICE("lmtp")),
        .tls_first = slice_equal_nocase(scheme, SLICE("submissions")),
        .submission = slice_starts_nocase(scheme, SLICE("submission")),
        .http =
            slice_equal_nocase(scheme, SLICE("http")) || slice_equal_nocase(scheme, SLICE("https")),
    };
    unsigned char ip[16];
    bool bracketed;

    l.tls_first = l.tls_first || slice_equal_nocase(scheme, SLICE("https"));
    if (!l.lmtp && !l.http && !l.tls_first && !slice_equal_nocase(scheme, SLICE("submission")) &&
        !slice_equal_nocase(scheme, SLICE("smtp"))) {
        return false;
    }
    text = slice_skip(text, scheme.len + 1);
    if (l.lmtp && unix_path(text, &l.host)) {
        l.is_unix = true;
        *ret_listen = l;
        return true;
    }
    if (!slice_starts(text, SLICE("//"))) {
        return false;
    }
    text = slice_skip(text, 2);
    l.port = l.tls_first ? LISTEN_PORT_SUBMISSIONS : LISTEN_PORT_SUBMISSION;
    if (!take_host(&text, &l.host, &bracketed) ||
        ((text.len > 0 || !l.submission) && !take_port(text, 0, &l.port))) {
        return false;
    }
    if (slice_equal(l.host, SLICE("*"))) {
        l.host.len = 0;
    }
    if (l.host.len > 0 && !ip_parse(l.host, ip) && (bracketed || !host_name_ok(l.host))) {
        return false;
    }
    *ret_listen = l;
    return true;
}

bool listen_option_parse(struct slice text, struct listen_options *options)
{
    static const struct slice key = {"class=", 6};
    char room[CLASS_NAME_MAX];
    struct slice name = slice_skip(text, key.len), lower;

    if (slice_equal_nocase(text, SLICE("auth=yes"))) {
        options->login = true;
        return true;
    }
    if (slice_equal_nocase(text, SLICE("filtered=yes"))) {
        options->filtered = true;
        return true;
    }
    if (slice_equal_nocase(text, SLICE("proxy=yes"))) {
        options->proxy = true;
        return true;
    }
    if (options->class_name.len > 0 || !slice_starts_nocase(text, key) ||
        !class_name_parse(name, room, &lower)) {
        return false;
    }
    options->class_name = name;
    return true;
}

bool listen_next(const struct conf_list *listen, size_t *at, const char **ret_url,
                 struct listen_options *ret_options)
{
    struct listen_address address;

    if (*at == listen->count) {
        return false;
    }
    *ret_url = listen->items[(*at)++];
    *ret_options = (struct listen_options){
        .login = listen_parse(slice_string(*ret_url), &address) && address.submission};
    while (*at < listen->count &&
           listen_option_parse(slice_string(listen->items[*at]), ret_options)) {
        (*at)++;
    }
    return true;
}

struct listen_options listen_options_of(const struct conf_list *listen, const char *url)
{
    struct listen_options options;
    const char *candidate;

    for (size_t at = 0; listen_next(listen, &at, &candidate, &options);) {
        if (strcmp(candidate, url) == 0) {
            return options;
        }
    }
    return (struct listen_options){.login = false};
}
