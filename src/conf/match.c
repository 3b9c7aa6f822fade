#include "match.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "idn.h"

/* ---- shell patterns ------------------------------------------------------------------------- */

/* Returns the length of the first element of a pattern, which matches exactly one byte; 0 if the
 * element is invalid. */
static size_t element_len(struct slice pattern)
{
    size_t at = 1;

    if (pattern.ptr[0] == '\\') {
        return pattern.len < 2 ? 0 : 2;
    }
    if (pattern.ptr[0] != '[') {
        return 1;
    }
    if (at < pattern.len && (pattern.ptr[at] == '^' || pattern.ptr[at] == '!')) {
        at++;
    }
    at++; /* a `]` in the first place is a member */
    while (at < pattern.len && pattern.ptr[at] != ']') {
        at++;
    }
    return at < pattern.len ? at + 1 : 0;
}

/* Does the element match `c`? */
static bool element_takes(struct slice element, char c)
{
    if (element.ptr[0] == '?') {
        return true;
    }
    if (element.ptr[0] == '\\') {
        return element.ptr[1] == c;
    }
    if (element.ptr[0] != '[') {
        return element.ptr[0] == c;
    }

    struct slice set = slice_of(element.ptr + 1, element.len - 2);
    bool inverted = set.ptr[0] == '^' || set.ptr[0] == '!', found = false;

    set = slice_skip(set, inverted);
    while (set.len > 0) {
        bool range = set.len >= 3 && set.ptr[1] == '-';
        char last = set.ptr[range ? 2 : 0];

        found = found || ((unsigned char)set.ptr[0] <= (unsigned char)c &&
                          (unsigned char)c <= (unsigned char)last);
        set = slice_skip(set, range ? 3 : 1);
    }
    return found != inverted;
}

static bool one_of_the_words(struct slice pattern, struct slice text)
{
    struct slice words = slice_of(pattern.ptr + 1, pattern.len - 2);

    while (words.ptr != NULL) {
        if (slice_equal(slice_cut(&words, ','), text)) {
            return true;
        }
    }
    return false;
}

/* Only the last star is tried again with one byte more, because it can match whatever an earlier
 * star could match. So this is a loop, and a hostile pattern costs at most the product of the
 * lengths. */
bool glob_match(struct slice pattern, struct slice text)
{
    struct slice star_pattern = {NULL, 0}, star_text = {NULL, 0};

    if (glob_error(pattern) != NULL) {
        return false;
    }
    for (;;) {
        if (pattern.len > 0 && pattern.ptr[0] == '*') {
            pattern = slice_skip(pattern, 1);
            star_pattern = pattern;
            star_text = text;
            continue;
        }
        if (pattern.len == 0 ? text.len == 0
                             : pattern.ptr[0] == '{' && one_of_the_words(pattern, text)) {
            return true;
        }
        if (pattern.len > 0 && pattern.ptr[0] != '{' && text.len > 0) {
            size_t len = element_len(pattern);

            if (element_takes(slice_of(pattern.ptr, len), text.ptr[0])) {
                pattern = slice_skip(pattern, len);
                text = slice_skip(text, 1);
                continue;
            }
        }
        if (star_pattern.ptr == NULL || star_text.len == 0) {
            return false;
        }
        star_text = slice_skip(star_text, 1);
        pattern = star_pattern;
        text = star_text;
    }
}

const char *glob_error(struct slice pattern)
{
    while (pattern.len > 0) {
        if (pattern.ptr[0] == '{') {
            return slice_find(pattern, '}') == pattern.len - 1
                       ? NULL
                       : "`{' needs its `}' at the end of the pattern";
        }
        size_t len = element_len(pattern);
        if (len == 0) {
            return pattern.ptr[0] == '[' ? "`[' without `]'" : "nothing after the last `\\'";
        }
        pattern = slice_skip(pattern, len);
    }
    return NULL;
}

static bool is_special(char c)
{
    return memchr("*?[{\\", c, 5) != NULL;
}

bool glob_is_plain(struct slice pattern)
{
    for (size_t i = 0; i < pattern.len; i++) {
        if (is_special(pattern.ptr[i])) {
            return false;
        }
    }
    return true;
}

/* ---- next hops ------------------------------------------------------------------------------ */

size_t nexthop_pattern_bracket(struct slice pattern)
{
    size_t end = slice_find(pattern, ']');

    if (pattern.len < 3 || pattern.ptr[0] != '[' || end < 2 || end == pattern.len ||
        pattern.ptr[1] == '^' || pattern.ptr[1] == '!') {
        return 0;
    }
    for (size_t i = 1; i < end; i++) {
        if (pattern.ptr[i] == '.' || pattern.ptr[i] == ':') {
            return 1;
        }
    }
    return end + 1 == pattern.len || pattern.ptr[end + 1] == ':';
}

bool nexthop_match(struct slice pattern, struct slice nexthop)
{
    size_t literal = nexthop_pattern_bracket(pattern);

    return (literal == 0 || slice_starts(nexthop, SLICE("["))) &&
           glob_match(slice_skip(pattern, literal), slice_skip(nexthop, literal));
}

const char *nexthop_pattern_error(struct slice pattern)
{
    return glob_error(slice_skip(pattern, nexthop_pattern_bracket(pattern)));
}

bool nexthop_pattern_is_plain(struct slice pattern)
{
    return glob_is_plain(slice_skip(pattern, nexthop_pattern_bracket(pattern)));
}

/* Has the pattern no special bytes except these? */
static bool has_only(struct slice pattern, const char *specials)
{
    for (size_t i = nexthop_pattern_bracket(pattern); i < pattern.len; i++) {
        if (memchr("*?[{\\", pattern.ptr[i], 5) != NULL &&
            strchr(specials, pattern.ptr[i]) == NULL) {
            return false;
        }
    }
    return true;
}

bool nexthop_pattern_covers(struct slice general, struct slice special)
{
    if (slice_equal(general, special) ||
        (nexthop_pattern_is_plain(special) && nexthop_match(general, special))) {
        return true;
    }
    /* Only a star of the first pattern can match a special byte of the second. */
    return has_only(general, "*") && has_only(special, "*?") && nexthop_match(general, special);
}

void nexthop_put_pattern(struct buf *out, struct slice nexthop)
{
    size_t literal = nexthop_pattern_bracket(nexthop);

    (void)buf_add(out, slice_of(nexthop.ptr, literal)); /* errors are sticky */
    for (size_t i = literal; i < nexthop.len; i++) {
        if (is_special(nexthop.ptr[i])) {
            (void)buf_add_byte(out, '\\');
        }
        (void)buf_add_byte(out, nexthop.ptr[i]);
    }
}

/* ---- networks ------------------------------------------------------------------------------- */

#define IPV4_BITS 32
#define IPV6_BITS 128

static void map_ipv4(const void *ipv4, unsigned char ret_ip[16])
{
    memset(ret_ip, 0, 10);
    ret_ip[10] = ret_ip[11] = 0xff;
    memcpy(ret_ip + 12, ipv4, 4);
}

/* Returns the address family, or AF_UNSPEC if the text is no address. */
static int parse_ip(struct slice text, unsigned char ret_ip[16])
{
    char string[INET6_ADDRSTRLEN];
    unsigned char ipv4[4];

    if (text.len >= sizeof string || (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL)) {
        return AF_UNSPEC;
    }
    if (text.len > 0) {
        memcpy(string, text.ptr, text.len);
    }
    string[text.len] = '\0';
    if (inet_pton(AF_INET, string, ipv4) == 1) {
        map_ipv4(ipv4, ret_ip);
        return AF_INET;
    }
    return inet_pton(AF_INET6, string, ret_ip) == 1 ? AF_INET6 : AF_UNSPEC;
}

bool ip_parse(struct slice text, unsigned char ret_ip[16])
{
    unsigned char ip[16];

    if (parse_ip(text, ip) == AF_UNSPEC) {
        return false;
    }
    memcpy(ret_ip, ip, sizeof ip);
    return true;
}

bool ip_of_sockaddr(const struct sockaddr *addr, unsigned char ret_ip[16])
{
    if (addr->sa_family == AF_INET) {
        struct sockaddr_in in;

        memcpy(&in, addr, sizeof in); /* `addr` may be an unaligned byte buffer */
        map_ipv4(&in.sin_addr, ret_ip);
        return true;
    }
    if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;

        memcpy(&in6, addr, sizeof in6);
        memcpy(ret_ip, &in6.sin6_addr, 16);
        return true;
    }
    return false;
}

/* Are all bits from number `bits` on zero? */
static bool clear_behind(const unsigned char ip[16], unsigned bits)
{
    for (unsigned i = bits; i < IPV6_BITS; i++) {
        if ((ip[i / 8] >> (7 - i % 8) & 1) != 0) {
            return false;
        }
    }
    return true;
}

bool cidr_parse(struct slice text, struct cidr *ret_cidr)
{
    struct slice rest = text, host = slice_cut(&rest, '/');
    unsigned long long bits;
    struct cidr c;
    bool bracketed = host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';

    if (bracketed) {
        host = slice_of(host.ptr + 1, host.len - 2);
    }
    int family = parse_ip(host, c.address);
    unsigned width = family == AF_INET ? IPV4_BITS : IPV6_BITS;

    if (family == AF_UNSPEC || (bracketed && family == AF_INET)) {
        return false;
    }
    if (rest.ptr == NULL) {
        bits = width;
    } else if (!slice_number(rest, width, &bits)) {
        return false;
    }
    c.bits = (unsigned)bits + IPV6_BITS - width;
    if (!clear_behind(c.address, c.bits)) {
        return false;
    }
    *ret_cidr = c;
    return true;
}

bool cidr_match(const struct cidr *c, const unsigned char ip[16])
{
    unsigned bytes = c->bits / 8, left = c->bits % 8;

    if (memcmp(c->address, ip, bytes) != 0) {
        return false;
    }
    return left == 0 || (c->address[bytes] ^ ip[bytes]) >> (8 - left) == 0;
}

bool network_list_match(const struct conf_list *networks, const struct sockaddr *addr)
{
    unsigned char ip[16];
    struct cidr c;

    if (!ip_of_sockaddr(addr, ip)) {
        return false;
    }
    for (size_t i = 0; i < networks->count; i++) {
        if (cidr_parse(slice_string(networks->items[i]), &c) && cidr_match(&c, ip)) {
            return true;
        }
    }
    return false;
}

/* ---- domains -------------------------------------------------------------------------------- */

#define DOMAIN_ROOM 256 /* bytes; more than a domain has (RFC 1035: 255) */

static struct slice lower_case(struct slice s, char *room)
{
    for (size_t i = 0; i < s.len; i++) {
        room[i] = ascii_lower(s.ptr[i]);
    }
    return slice_of(room, s.len);
}

static bool domain_match(struct slice element, struct slice domain)
{
    char lower_element[DOMAIN_ROOM], lower_domain[DOMAIN_ROOM];

    if (element.len > 0 && element.ptr[0] == '.') {
        return domain.len > element.len && slice_ends_nocase(domain, element);
    }
    if (slice_find(element, '*') < element.len || slice_find(element, '?') < element.len) {
        return element.len <= sizeof lower_element && domain.len <= sizeof lower_domain &&
               glob_match(lower_case(element, lower_element), lower_case(domain, lower_domain));
    }
    return slice_equal_nocase(element, domain);
}

static bool has_a_label(struct slice domain)
{
    const struct slice prefix = SLICE("xn--");

    for (; domain.len >= prefix.len; domain = slice_skip(domain, slice_find(domain, '.') + 1)) {
        if (slice_equal_nocase(slice_of(domain.ptr, prefix.len), prefix)) {
            return true;
        }
    }
    return false;
}

bool domain_list_match(const struct conf_list *domains, struct slice domain)
{
    char room[DOMAIN_ROOM], element_room[DOMAIN_ROOM];
    bool convert;

    domain = idn_domain(domain, room, sizeof room);
    convert = has_a_label(domain); /* for other domains a long list is only compared */
    for (size_t i = 0; i < domains->count; i++) {
        struct slice element = slice_string(domains->items[i]);

        if (convert) {
            element = idn_domain(element, element_room, sizeof element_room);
        }
        if (domain_match(element, domain)) {
            return true;
        }
    }
    return false;
}
