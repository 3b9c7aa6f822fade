#include "hook_list.h"

#include <arpa/inet.h>
#include <string.h>

#include "list_line.h"
#include "mem.h"

bool hook_name_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (!ascii_is_alnum(name.ptr[i]) && name.ptr[i] != '-' && name.ptr[i] != '_') {
            return false;
        }
    }
    return name.len > 0 && name.len <= HOOK_NAME_MAX;
}

static bool is_graphic(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~') {
            return false;
        }
    }
    return true;
}

/* Is the text a host of a URL: without a user, and without text that libcurl could read
 * differently? */
static bool is_host(struct slice host, bool is_ipv6)
{
    for (size_t i = 0; i < host.len; i++) {
        if (!ascii_is_alnum(host.ptr[i]) && host.ptr[i] != (is_ipv6 ? ':' : '-') &&
            host.ptr[i] != '.') {
            return false;
        }
    }
    return host.len > 0 && host.len <= HOOK_HOST_MAX;
}

/* Is the host this machine: a loopback address, or "localhost", which is not looked up? */
static bool is_this_machine(const char *host)
{
    unsigned char address[4];

    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (inet_pton(AF_INET, host, address) == 1 && address[0] == 127);
}

/* Reads a URL. Returns false if it is not supported. */
static bool read_url(struct slice url, struct hook *hook)
{
    const struct slice https = SLICE("https://"), http = SLICE("http://");
    struct slice authority, host, path;
    unsigned long long port;

    hook->tls = slice_starts(url, https);
    if ((!hook->tls && !slice_starts(url, http)) || !is_graphic(url)) {
        return false;
    }
    authority = slice_skip(url, hook->tls ? https.len : http.len);
    path = slice_skip(authority, slice_find(authority, '/'));
    authority.len -= path.len;
    host = authority;
    hook->is_ipv6 = slice_starts(host, SLICE("["));
    if (hook->is_ipv6) {
        host = slice_skip(host, 1);
        if (slice_find(host, ']') == host.len) {
            return false;
        }
        host.len = slice_find(host, ']');
        authority = slice_skip(authority, host.len + 2);
    } else {
        host.len = slice_find(host, ':');
        authority = slice_skip(authority, host.len);
    }
    port = hook->tls ? 443 : 80;
    if (!is_host(host, hook->is_ipv6) || path.len > HOOK_PATH_MAX ||
        slice_find(path, '#') < path.len ||
        (authority.len > 0 &&
         (authority.ptr[0] != ':' || !slice_number(slice_skip(authority, 1), UINT16_MAX, &port) ||
          port == 0))) {
        return false;
    }
    memcpy(hook->host, host.ptr, host.len);
    if (path.len > 0) {
        memcpy(hook->path, path.ptr, path.len);
    } else {
        hook->path[0] = '/';
    }
    hook->port = (uint16_t)port;
    return true;
}

static bool read_filter(struct hook *hook, struct slice word)
{
    struct slice rest = word, member = slice_cut(&rest, '=');

    if (rest.ptr == NULL || rest.len == 0) {
        return false;
    }
    while (rest.ptr != NULL) {
        if (!event_filter_add(&hook->filter, member, slice_cut(&rest, ','))) {
            return false;
        }
    }
    return true;
}

static bool read_line(struct hook_list *list, struct list_line *line, struct buf *ret_error)
{
    struct hook *hook = &list->hooks[list->count];
    struct slice name = list_line_word(line), url = list_line_word(line),
                 secret = list_line_word(line), word;

    if (list->count == HOOKS_MAX) {
        return list_line_bad(ret_error, line, name.ptr, "there are more than 16 web hooks");
    }
    if (!hook_name_valid(name)) {
        return list_line_bad(ret_error, line, name.ptr,
                             "expected a name of up to 32 letters, digits, - and _");
    }
    for (size_t i = 0; i < list->count; i++) {
        if (slice_equal(name, slice_string(list->hooks[i].name))) {
            return list_line_bad(ret_error, line, name.ptr,
                                 "there is a web hook of this name already");
        }
    }
    list->count++; /* so that hook_list_free frees it */
    memcpy(hook->name, name.ptr, name.len);
    if (!read_url(url, hook)) {
        return list_line_bad(ret_error, line, url.ptr,
                             "expected a URL like https://host.example/path");
    }
    if (!hook->tls && !is_this_machine(hook->host)) {
        return list_line_bad(
            ret_error, line, url.ptr,
            "http:// is for this machine alone: events would cross the network in clear; "
            "expected https://");
    }
    if (secret.len < HOOK_SECRET_MIN || secret.len > HOOK_SECRET_MAX || !is_graphic(secret)) {
        return list_line_bad(ret_error, line, secret.ptr,
                             "expected a secret of 16 to 255 bytes, printable ASCII");
    }
    memcpy(hook->secret, secret.ptr, secret.len);
    for (word = list_line_word(line); word.len > 0; word = list_line_word(line)) {
        if (!read_filter(hook, word)) {
            return list_line_bad(
                ret_error, line, word.ptr,
                "expected MEMBER=VALUE,...: event with names of events, queue_id, sender, "
                "recipient, class, destination or intervention");
        }
    }
    return true;
}

struct hook_list *hook_list_new(struct slice text, struct buf *ret_error)
{
    struct hook_list *list = mem_new(sizeof *list);
    struct list_line line;
    unsigned number = 0;
    bool good = true;

    while (good && list_line_next(&text, &number, &line)) {
        if (line.rest.len > 0) {
            good = read_line(list, &line, ret_error);
        }
    }
    if (!good) {
        hook_list_free(list);
        return NULL;
    }
    return list;
}

void hook_list_free(struct hook_list *list)
{
    if (list == NULL) {
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        event_filter_fini(&list->hooks[i].filter);
    }
    explicit_bzero(list->hooks, sizeof list->hooks);
    mem_free(list);
}

bool hook_equal(const struct hook *a, const struct hook *b)
{
    bool equal = strcmp(a->name, b->name) == 0 && strcmp(a->host, b->host) == 0 &&
                 strcmp(a->path, b->path) == 0 && strcmp(a->secret, b->secret) == 0 &&
                 a->port == b->port && a->tls == b->tls && a->filter.count == b->filter.count;

    for (size_t i = 0; equal && i < a->filter.count; i++) {
        equal = a->filter.values[i].member == b->filter.values[i].member &&
                strcmp(a->filter.values[i].text, b->filter.values[i].text) == 0;
    }
    return equal;
}
