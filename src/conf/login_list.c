#include "login_list.h"

#include <string.h>

#include "list_line.h"
#include "mem.h"
#include "route.h"

struct login_list {
    char *text; /* text that the logins point into, with a NUL after each part; owned */
    size_t text_len;
    struct login *logins; /* owned, in the order of the file */
    size_t count, size;
};

/* Ends a part of the text with a NUL, in place of the separator or the end after it. */
static const char *part(struct slice text)
{
    ((char *)(uintptr_t)text.ptr)[text.len] = '\0';
    return text.ptr;
}

static bool has_control(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 127) {
            return true;
        }
    }
    return false;
}

/* Is the first word of a line a sender? A next hop has no `@`. */
static bool is_sender(struct slice word)
{
    size_t at = slice_find_last(word, '@');

    return at < word.len && at + 1 < word.len && slice_find(word, '[') >= at;
}

/* Sets the next hop of a login, in its canonical form. */
static void set_nexthop(struct login *login, struct slice nexthop)
{
    char room[ROUTE_NEXTHOP_MAX];
    struct slice form = nexthop_canonical(nexthop, room, sizeof room);

    login->changed = form.ptr == nexthop.ptr ? NULL : mem_copy(form.ptr, form.len);
    login->nexthop = login->changed != NULL ? login->changed : part(nexthop);
    (void)nexthop_parse(slice_string(login->nexthop), &login->hop); /* was parsed before */
}

static bool read_line(struct login_list *list, struct list_line *line, struct buf *ret_error)
{
    struct slice nexthop = list_line_word(line), sender = slice_of(NULL, 0), user, password;
    struct nexthop parsed;
    struct list_line before = *line;
    struct slice word;
    size_t colon;

    if (is_sender(nexthop)) {
        sender = nexthop;
        nexthop = slice_of(NULL, 0);
    } else if (!nexthop_parse(nexthop, &parsed)) {
        return list_line_bad(ret_error, line, nexthop.ptr,
                             "expected a next hop (host, [host] or [host]:port) or a sender (an "
                             "address or @DOMAIN)");
    }
    word = list_line_word(line);
    if (sender.ptr == NULL && word.len > 0 && slice_find(word, ':') == word.len) {
        if (slice_find(word, '@') == word.len) {
            return list_line_bad(
                ret_error, line, word.ptr,
                "expected USER:PASSWORD, or a sender (an address or @DOMAIN) before it");
        }
        sender = word;
        before = *line;
    }
    line->rest = slice_trim(before.rest);
    colon = slice_find(line->rest, ':');
    user = slice_of(line->rest.ptr, colon);
    if (colon == line->rest.len || user.len == 0 || user.len > LOGIN_USER_MAX) {
        return list_line_bad(ret_error, line, line->rest.len > 0 ? line->rest.ptr : word.ptr,
                             "expected USER:PASSWORD with a user of 1 to 255 bytes");
    }
    password = slice_skip(line->rest, colon + 1);
    if (password.len == 0 || password.len > LOGIN_PASSWORD_MAX || has_control(password) ||
        has_control(user)) {
        return list_line_bad(ret_error, line, password.ptr,
                             "expected a password of 1 to 1024 bytes without control characters");
    }
    if (list->count == LOGIN_LIST_MAX) {
        return list_line_bad(ret_error, line, NULL, "there are more than 10000 logins");
    }
    list->logins = mem_grow(list->logins, list->count, &list->size, sizeof *list->logins);
    list->logins[list->count++] = (struct login){
        .sender = sender.len > 0 ? part(sender) : NULL,
        .user = part(user),
        .password = part(password),
        .line = line->number,
    };
    if (nexthop.len > 0) {
        set_nexthop(&list->logins[list->count - 1], nexthop);
    }
    return true;
}

struct login_list *login_list_new(struct slice text, struct buf *ret_error)
{
    struct login_list *list = mem_new(sizeof *list);
    struct list_line line;
    struct slice rest;
    unsigned number = 0;
    bool good = true;

    list->text = mem_array(text.len + 1, 1);
    list->text_len = text.len;
    if (text.len > 0) {
        memcpy(list->text, text.ptr, text.len);
    }
    rest = slice_of(list->text, text.len);
    while (good && list_line_next(&rest, &number, &line)) {
        if (slice_find(line.whole, '\0') < line.whole.len) {
            good = list_line_bad(ret_error, &line, NULL, "there is a NUL byte in the line");
        } else if (line.rest.len > 0) {
            good = read_line(list, &line, ret_error);
        }
    }
    if (!good) {
        login_list_free(list);
        return NULL;
    }
    return list;
}

void login_list_free(struct login_list *list)
{
    if (list == NULL) {
        return;
    }
    explicit_bzero(list->text, list->text_len);
    for (size_t i = 0; i < list->count; i++) {
        mem_free(list->logins[i].changed);
    }
    mem_free(list->text);
    mem_free(list->logins);
    mem_free(list);
}

/* A next hop that logins are compared with. */
struct wanted {
    struct slice text;
    struct nexthop hop;
    bool in_brackets; /* true if `hop' is one host, in brackets */
};

/* Does a login fit the next hop, whatever its sender is? */
static bool fits_hop(const struct login *login, const struct wanted *wanted)
{
    const struct nexthop *key = &login->hop, *hop = &wanted->hop;

    if (login->nexthop == NULL) {
        return wanted->in_brackets;
    }
    return (wanted->in_brackets && !key->is_unix && slice_equal_nocase(key->host, hop->host) &&
            (key->use_mx ? key->port == 0 : key->port == hop->port)) ||
           slice_equal_nocase(slice_string(login->nexthop), wanted->text);
}

/* Returns how well a login fits: 4 the address, 2 the domain, 0 any sender, and 1 more with a next
 * hop; -1: not. */
static int fits(const struct login *login, const struct wanted *hop, struct slice sender)
{
    int named = login->nexthop != NULL;
    struct slice wanted;

    if (!fits_hop(login, hop)) {
        return -1;
    }
    if (login->sender == NULL) {
        return named;
    }
    wanted = slice_string(login->sender);
    if (wanted.ptr[0] != '@') {
        return slice_equal_nocase(wanted, sender) ? 4 + named : -1;
    }
    return sender.len > 0 &&
                   slice_equal_nocase(wanted, slice_skip(sender, slice_find_last(sender, '@')))
               ? 2 + named
               : -1;
}

const struct login *login_list_find(const struct login_list *list, struct slice nexthop,
                                    struct slice sender)
{
    char room[ROUTE_NEXTHOP_MAX];
    struct wanted wanted = {.text = nexthop_canonical(nexthop, room, sizeof room)};
    const struct login *best = NULL;
    int best_fit = -1;

    wanted.in_brackets =
        nexthop_parse(wanted.text, &wanted.hop) && !wanted.hop.use_mx && !wanted.hop.is_unix;
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        int fit = fits(&list->logins[i], &wanted, sender);

        if (fit > best_fit) {
            best = &list->logins[i];
            best_fit = fit;
        }
    }
    return best;
}
