#include "proxy_header.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

/* Bytes of a header of version 2 before its addresses. */
#define FIXED_BYTES 16

static const struct slice line_start = SLICE_INIT("PROXY ");
static const struct slice signature = SLICE_INIT("\r\n\r\n\0\r\nQUIT\n");

static enum proxy_result bad(const char *why, const char **ret_why)
{
    *ret_why = why;
    return PROXY_BAD;
}

static void set_ipv4(struct proxy_header *h, const void *address)
{
    memset(h->address, 0, sizeof h->address);
    h->address[10] = h->address[11] = 0xff;
    memcpy(h->address + 12, address, 4);
}

/* ---- version 1 ------------------------------------------------------------------------------ */

static bool parse_ip(int family, struct slice text, unsigned char ret_ip[16])
{
    char copy[INET6_ADDRSTRLEN];

    if (text.len == 0 || text.len >= sizeof copy || slice_find(text, '\0') < text.len) {
        return false;
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return inet_pton(family, copy, ret_ip) == 1;
}

static bool parse_port(struct slice text, uint16_t *ret_port)
{
    unsigned long long port;

    if ((text.len > 1 && text.ptr[0] == '0') || !slice_number(text, UINT16_MAX, &port)) {
        return false;
    }
    *ret_port = (uint16_t)port;
    return true;
}

/* Parses the part after "PROXY " of a complete line. */
static bool parse_line(struct slice line, struct proxy_header *h)
{
    struct slice protocol = slice_cut(&line, ' '), client, server, client_port, server_port;
    bool v4 = slice_equal(protocol, SLICE("TCP4"));
    int family = v4 ? AF_INET : AF_INET6;
    unsigned char ip[16], server_ip[16];
    uint16_t unused;

    if (slice_equal(protocol, SLICE("UNKNOWN"))) { /* the rest of the line means nothing */
        h->source = PROXY_UNKNOWN;
        return true;
    }
    if (!v4 && !slice_equal(protocol, SLICE("TCP6"))) {
        return false;
    }
    client = slice_cut(&line, ' ');
    server = slice_cut(&line, ' ');
    client_port = slice_cut(&line, ' ');
    server_port = line;
    if (!parse_ip(family, client, ip) || !parse_ip(family, server, server_ip) ||
        !parse_port(client_port, &h->port) || !parse_port(server_port, &unused)) {
        return false;
    }
    if (v4) {
        set_ipv4(h, ip);
    } else {
        memcpy(h->address, ip, sizeof h->address);
    }
    h->source = PROXY_CLIENT;
    return true;
}

static enum proxy_result parse_version_1(struct slice bytes, struct proxy_header *h,
                                         const char **ret_why)
{
    size_t most = PROXY_LINE_MAX - 1; /* the place of the last possible CR, from 1 */
    struct slice line = slice_of(bytes.ptr, bytes.len < most ? bytes.len : most);
    size_t end = slice_find(line, '\r');

    if (slice_find(line, '\n') < end) {
        return bad("its line ends with LF alone", ret_why);
    }
    if (end == most) {
        return bad("its line is longer than 107 bytes", ret_why);
    }
    if (end + 1 >= bytes.len) {
        return PROXY_MORE;
    }
    if (bytes.ptr[end + 1] != '\n') {
        return bad("its line has a CR without LF", ret_why);
    }
    if (!parse_line(slice_skip(slice_of(bytes.ptr, end), line_start.len), h)) {
        return bad("its line is invalid", ret_why);
    }
    h->len = end + 2;
    return PROXY_DONE;
}

/* ---- version 2 ------------------------------------------------------------------------------ */

static uint16_t number_at(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static enum proxy_result parse_version_2(struct slice bytes, struct proxy_header *h,
                                         const char **ret_why)
{
    const unsigned char *b = (const unsigned char *)bytes.ptr, *addresses = b + FIXED_BYTES;
    unsigned command, family, transport, rest;

    if (bytes.len < FIXED_BYTES) {
        return PROXY_MORE;
    }
    command = b[12] & 0xfu;
    family = b[13] >> 4;
    transport = b[13] & 0xfu;
    rest = number_at(b + 14);
    if (b[12] >> 4 != 2 || command > 1) {
        return bad("its version or command is unknown", ret_why);
    }
    if (command == 1 && (family > 3 || transport > 2)) {
        return bad("its address family or transport is unknown", ret_why);
    }
    if (FIXED_BYTES + rest > PROXY_HEADER_MAX) {
        return bad("it is longer than 4096 bytes", ret_why);
    }
    if (command == 1 && ((b[13] == 0x11 && rest < 12) || (b[13] == 0x21 && rest < 36))) {
        return bad("it is too short for its addresses", ret_why);
    }
    if (bytes.len < FIXED_BYTES + rest) {
        return PROXY_MORE;
    }
    h->len = FIXED_BYTES + rest;
    h->source = command == 0 ? PROXY_ITSELF : PROXY_UNKNOWN;
    if (command == 1 && b[13] == 0x11) { /* TCP over IPv4 */
        h->source = PROXY_CLIENT;
        set_ipv4(h, addresses);
        h->port = number_at(addresses + 8);
    } else if (command == 1 && b[13] == 0x21) { /* TCP over IPv6 */
        h->source = PROXY_CLIENT;
        memcpy(h->address, addresses, sizeof h->address);
        h->port = number_at(addresses + 32);
    }
    return PROXY_DONE;
}

/* ---- both ----------------------------------------------------------------------------------- */

/* Do the bytes begin like that, as far as they go? */
static bool may_start(struct slice bytes, struct slice start)
{
    size_t len = bytes.len < start.len ? bytes.len : start.len;

    return slice_equal(slice_of(bytes.ptr, len), slice_of(start.ptr, len));
}

enum proxy_result proxy_header_parse(struct slice bytes, struct proxy_header *ret_header,
                                     const char **ret_why)
{
    struct proxy_header h = {.len = 0};
    enum proxy_result result;

    if (bytes.len == 0) {
        return PROXY_MORE;
    }
    if (may_start(bytes, line_start)) {
        result = parse_version_1(bytes, &h, ret_why);
    } else if (may_start(bytes, signature)) {
        result = parse_version_2(bytes, &h, ret_why);
    } else {
        return bad("it is of neither version 1 nor version 2", ret_why);
    }
    if (result == PROXY_DONE) {
        *ret_header = h;
    }
    return result;
}
