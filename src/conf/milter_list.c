#include "milter_list.h"

#include <stdio.h>
#include <string.h>

#include "conf.h"
#include "value.h"

#define HOST_MAX       255
#define PATH_BYTES_MAX 107 /* sizeof sun_path of sockaddr_un without its NUL */
#define QUOTED_MAX     200 /* bytes of a refused text in an error */

static bool separates(char c)
{
    return c == ' ' || c == '\t' || c == ',';
}

/* Cuts the next word, or the text in braces, from the front. Returns false if none is left, or
 * (*ret_bad) if a brace is not closed. */
static bool next_element(struct slice *rest, struct slice *ret_element, bool *ret_braces,
                         bool *ret_bad)
{
    size_t len = 0;

    while (rest->len > 0 && separates(rest->ptr[0])) {
        *rest = slice_skip(*rest, 1);
    }
    *ret_bad = false;
    *ret_braces = rest->len > 0 && rest->ptr[0] == '{';
    if (*ret_braces) {
        len = slice_find(*rest, '}');
        *ret_bad = len == rest->len;
        *ret_element = slice_trim(slice_of(rest->ptr + 1, *ret_bad ? 0 : len - 1));
        *rest = slice_skip(*rest, *ret_bad ? len : len + 1);
        return !*ret_bad;
    }
    while (len < rest->len && !separates(rest->ptr[len]) && rest->ptr[len] != '{') {
        len++;
    }
    *ret_element = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len);
    return len > 0;
}

static bool host_ok(struct slice host)
{
    bool brackets = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';

    if (host.len == 0 || host.len > HOST_MAX) {
        return false;
    }
    for (size_t i = brackets; i < host.len - brackets; i++) {
        char c = host.ptr[i];

        if (!ascii_is_alnum(c) && c != '-' && c != '_' && c != '.' && !(brackets && c == ':')) {
            return false;
        }
    }
    return true;
}

bool milter_address_parse(struct slice text, struct milter_address *ret_address)
{
    struct milter_address a = {.is_unix = false};
    unsigned long long port;
    size_t colon;

    if (slice_starts(text, SLICE("unix:")) || slice_starts(text, SLICE("local:"))) {
        a.is_unix = true;
        a.host = slice_skip(text, slice_find(text, ':') + 1);
        *ret_address = a;
        return a.host.len > 0 && a.host.len <= PATH_BYTES_MAX;
    }
    a.is_v6 = slice_starts(text, SLICE("inet6:"));
    if (!a.is_v6 && !slice_starts(text, SLICE("inet:"))) {
        return false;
    }
    text = slice_skip(text, slice_find(text, ':') + 1);
    colon = slice_find_last(text, ':');
    a.host = slice_of(text.ptr, colon);
    if (colon == text.len || !host_ok(a.host) ||
        !slice_number(slice_skip(text, colon + 1), UINT16_MAX, &port) || port == 0) {
        return false;
    }
    if (a.host.ptr[0] == '[') {
        a.host = slice_of(a.host.ptr + 1, a.host.len - 2);
    }
    a.port = (uint16_t)port;
    *ret_address = a;
    return true;
}

static bool fail(struct buf *error, const char *what, struct slice bad, const char *expected)
{
    (void)buf_addf(error, "%s `%.*s': %s is expected", what,
                   (int)(bad.len < QUOTED_MAX ? bad.len : QUOTED_MAX), bad.ptr,
                   expected); /* errors are sticky */
    return false;
}

/* Parses a time from 1 s to a day, as the parameters do. */
static bool read_time(struct slice value, int64_t *ret_us)
{
    int64_t us;

    if (!interval_parse(value, US_PER_S, &us) || us < US_PER_S || us > US_PER_DAY) {
        return false;
    }
    *ret_us = us;
    return true;
}

static bool read_option(struct slice option, struct milter_spec *spec, struct buf *error)
{
    size_t equal = slice_find(option, '=');
    struct slice name = slice_trim(slice_of(option.ptr, equal));
    struct slice value = slice_trim(slice_skip(option, equal < option.len ? equal + 1 : equal));
    unsigned long long version;
    int action;

    if (slice_equal(name, SLICE("default_action"))) {
        action = choice_parse(value, CONF_MILTER_ACTION_WORDS);
        spec->default_action = action < 0 ? spec->default_action : (enum conf_milter_action)action;
        return action >= 0 || fail(error, "default_action of a filter", value,
                                   "accept, reject, tempfail, quarantine or shutdown");
    }
    if (slice_equal(name, SLICE("protocol"))) {
        if (!slice_number(value, MILTER_PROTOCOL_MAX, &version) || version < MILTER_PROTOCOL_MIN) {
            return fail(error, "protocol of a filter", value, "a number from 2 to 6");
        }
        spec->protocol = (unsigned)version;
        return true;
    }
    if (slice_equal(name, SLICE("connect_timeout"))) {
        return read_time(value, &spec->connect_timeout_us) ||
               fail(error, "connect_timeout of a filter", value, "a time from 1s to 1d");
    }
    if (slice_equal(name, SLICE("command_timeout"))) {
        return read_time(value, &spec->command_timeout_us) ||
               fail(error, "command_timeout of a filter", value, "a time from 1s to 1d");
    }
    if (slice_equal(name, SLICE("content_timeout"))) {
        return read_time(value, &spec->content_timeout_us) ||
               fail(error, "content_timeout of a filter", value, "a time from 1s to 1d");
    }
    return fail(error, "option of a filter", name,
                "connect_timeout, command_timeout, content_timeout, default_action or protocol");
}

/* Stores the address; a relative path is made absolute. */
static bool keep_address(const struct conf *conf, struct slice text, struct milter_spec *spec,
                         struct buf *error)
{
    struct milter_address a;
    int len;

    if (!milter_address_parse(text, &a)) {
        return fail(error, "filter", text, "inet:HOST:PORT, inet6:HOST:PORT or unix:PATH");
    }
    if (a.is_unix && a.host.ptr[0] != '/') {
        len = snprintf(spec->text, sizeof spec->text, "unix:%s/%.*s", conf->state_directory,
                       SLICE_ARGS(a.host));
    } else {
        len = snprintf(spec->text, sizeof spec->text, "%.*s", SLICE_ARGS(text));
    }
    if (len < 0 || (size_t)len >= sizeof spec->text ||
        !milter_address_parse(slice_string(spec->text), &a)) {
        return fail(error, "filter", text, "a path that is not too long for a Unix socket");
    }
    return true;
}

static bool read_element(const struct conf *conf, struct slice element, bool braces,
                         struct milter_spec *spec, struct buf *error)
{
    struct slice rest = element, word;
    bool in_braces, bad;

    *spec = (struct milter_spec){
        .connect_timeout_us = conf->milter_connect_timeout_us,
        .command_timeout_us = conf->milter_command_timeout_us,
        .content_timeout_us = conf->milter_content_timeout_us,
        .default_action = (enum conf_milter_action)conf->milter_default_action,
        .protocol = (unsigned)conf->milter_protocol,
    };
    if (!braces) {
        return keep_address(conf, element, spec, error);
    }
    if (!next_element(&rest, &word, &in_braces, &bad)) {
        return fail(error, "filter", element, "an address in the braces");
    }
    if (!keep_address(conf, word, spec, error)) {
        return false;
    }
    while (next_element(&rest, &word, &in_braces, &bad)) {
        if (!read_option(word, spec, error)) {
            return false;
        }
    }
    return true;
}

bool milter_list_parse(const struct conf *conf, const char *list, struct milter_list *ret_list,
                       struct buf *ret_error)
{
    struct slice rest = slice_trim(slice_string(list)), element;
    bool braces, bad;

    *ret_list = (struct milter_list){.count = 0};
    if (slice_equal(rest, SLICE("none"))) {
        return true;
    }
    while (next_element(&rest, &element, &braces, &bad)) {
        if (ret_list->count == MILTER_LIST_MAX) {
            return fail(ret_error, "filter", element, "a list of at most 8");
        }
        if (!read_element(conf, element, braces, &ret_list->at[ret_list->count], ret_error)) {
            return false;
        }
        ret_list->count++;
    }
    return !bad || fail(ret_error, "filter", rest, "a brace that is closed");
}
