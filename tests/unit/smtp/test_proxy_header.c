#include "unit.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "proxy_header.h"

#define V2 "\r\n\r\n\0\r\nQUIT\n"
#define IPV4                                                                                       \
    "\xc0\x00\x02\x01"                                                                             \
    "\x0a\x00\x00\x02"                                                                             \
    "\xd9\x03"                                                                                     \
    "\x00\x19"
#define IPV6                                                                                       \
    "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"                                                   \
    "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02"                                                   \
    "\x12\x67"                                                                                     \
    "\x00\x19"
#define FULL "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

#define TEXT_MAX 200

/* Prints a result: "more", "bad: WHY", or the source, its address and port, and the length. */
static void print(struct slice bytes, char text[TEXT_MAX])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct proxy_header h = {.len = 0};
    char ip[INET6_ADDRSTRLEN];
    const char *why = NULL;
    bool v4;

    switch (proxy_header_parse(bytes, &h, &why)) {
    case PROXY_MORE:
        snprintf(text, TEXT_MAX, "more");
        return;
    case PROXY_BAD:
        snprintf(text, TEXT_MAX, "bad: %s", why);
        return;
    case PROXY_DONE:
        break;
    }
    if (h.source != PROXY_CLIENT) {
        snprintf(text, TEXT_MAX, "%s %zu", h.source == PROXY_ITSELF ? "itself" : "unknown", h.len);
        return;
    }
    v4 = memcmp(h.address, mapped, sizeof mapped) == 0;
    assert_non_null(
        inet_ntop(v4 ? AF_INET : AF_INET6, h.address + (v4 ? sizeof mapped : 0), ip, sizeof ip));
    snprintf(text, TEXT_MAX, "%s %u %zu", ip, h.port, h.len);
}

#define INVALID  "bad: its line is invalid"
#define NO_PROXY "bad: it is of neither version 1 nor version 2"

static const struct {
    struct slice in;
    const char *want;
} cases[] = {
    {SLICE_INIT(""), "more"},
    /* version 1 */
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25\r\n"), "192.0.2.1 55555 40"},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 0 65535\r\nEHLO x\r\n"), "192.0.2.1 0 39"},
    {SLICE_INIT("PROXY TCP6 2001:db8::1 2001:db8::2 4711 25\r\n"), "2001:db8::1 4711 44"},
    {SLICE_INIT("PROXY TCP6 ::ffff:192.0.2.1 ::1 4711 25\r\n"), "192.0.2.1 4711 41"},
    {SLICE_INIT("PROXY TCP6 " FULL " " FULL " 65535 65535\r\n"), FULL " 65535 104"},
    {SLICE_INIT("PROXY UNKNOWN\r\n"), "unknown 15"},
    {SLICE_INIT("PROXY UNKNOWN " FULL " " FULL " 65535 65535\r\n"), "unknown 107"},
    {SLICE_INIT("PROXY UNKNOWN \0 rubbish\r\n"), "unknown 25"},
    {SLICE_INIT("PROXY UNKNOWN " FULL " " FULL " 65535 65535 \r\n"),
     "bad: its line is longer than 107 bytes"},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25\r"), "more"},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25\n"), "bad: its line ends with LF alone"},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25\rx"), "bad: its line has a CR without LF"},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25 \r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 55555 25 26\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4  192.0.2.1 10.0.0.2 55555 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1\t10.0.0.2 55555 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 65536 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 -1 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 025 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 10.0.0.2 25 smtp\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1 localhost 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.01 10.0.0.2 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 192.0.2.1\0x 10.0.0.2 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP4 2001:db8::1 2001:db8::2 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP6 192.0.2.1 10.0.0.2 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP6 " FULL ":ffff ::1 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY TCP5 192.0.2.1 10.0.0.2 25 25\r\n"), INVALID},
    {SLICE_INIT("PROXY UNKNOWNS\r\n"), INVALID},
    {SLICE_INIT("PROXY \r\n"), INVALID},
    {SLICE_INIT("PROXY\r\n"), NO_PROXY},
    {SLICE_INIT("proxy UNKNOWN\r\n"), NO_PROXY},
    {SLICE_INIT("EHLO x\r\n"), NO_PROXY},
    {SLICE_INIT("\x16\x03\x01"), NO_PROXY},
    {SLICE_INIT("\0"), NO_PROXY},
    /* version 2 */
    {SLICE_INIT(V2 "\x21\x11\x00\x0c" IPV4), "192.0.2.1 55555 28"},
    {SLICE_INIT(V2 "\x21\x11\x00\x0c" IPV4 "EHLO x\r\n"), "192.0.2.1 55555 28"},
    {SLICE_INIT(V2 "\x21\x11\x00\x10" IPV4 "\x04\x00\x01x" V2), "192.0.2.1 55555 32"},
    {SLICE_INIT(V2 "\x21\x11\x00\x0d" IPV4 "\xff"), "192.0.2.1 55555 29"}, /* half a field */
    {SLICE_INIT(V2 "\x21\x21\x00\x24" IPV6), "2001:db8::1 4711 52"},
    {SLICE_INIT(V2 "\x20\x00\x00\x00"), "itself 16"},
    {SLICE_INIT(V2 "\x20\xff\x00\x02xy"), "itself 18"},
    {SLICE_INIT(V2 "\x20\x11\x00\x0c" IPV4), "itself 28"},
    {SLICE_INIT(V2 "\x21\x00\x00\x00"), "unknown 16"},
    {SLICE_INIT(V2 "\x21\x12\x00\x0c" IPV4), "unknown 28"}, /* UDP */
    {SLICE_INIT(V2 "\x21\x10\x00\x00"), "unknown 16"},
    {SLICE_INIT(V2 "\x21\x31\x00\x02xy"), "unknown 18"},
    {SLICE_INIT(V2 "\x21\x11\x00\x0b" IPV4), "bad: it is too short for its addresses"},
    {SLICE_INIT(V2 "\x21\x21\x00\x23" IPV6), "bad: it is too short for its addresses"},
    {SLICE_INIT(V2 "\x21\x41\x00\x0c" IPV4), "bad: its address family or transport is unknown"},
    {SLICE_INIT(V2 "\x21\x13\x00\x0c" IPV4), "bad: its address family or transport is unknown"},
    {SLICE_INIT(V2 "\x11\x11\x00\x0c" IPV4), "bad: its version or command is unknown"},
    {SLICE_INIT(V2 "\x22\x11\x00\x0c" IPV4), "bad: its version or command is unknown"},
    {SLICE_INIT(V2 "\x21\x11\x0f\xf0" IPV4), "more"},
    {SLICE_INIT(V2 "\x21\x11\x0f\xf1" IPV4), "bad: it is longer than 4096 bytes"},
    {SLICE_INIT(V2 "\x20\x00\xff\xff"), "bad: it is longer than 4096 bytes"},
    {SLICE_INIT(V2 "\x21\x11\x00\x0c\xc0"), "more"},
    {SLICE_INIT(V2 "\x21\x11\x00"), "more"},
    {SLICE_INIT(V2), "more"},
    {SLICE_INIT("\r\n\r\n\r\n"), NO_PROXY},
};

static void headers_give_the_address_of_the_client(void **unused)
{
    char text[TEXT_MAX];

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        print(cases[i].in, text);
        if (strcmp(text, cases[i].want) != 0) {
            fail_msg("case %zu: %s, wanted %s", i, text, cases[i].want);
        }
    }
}

static void a_part_of_a_header_decides_nothing_else(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t len = 0; len < cases[i].in.len; len++) {
            char text[TEXT_MAX];

            print(slice_of(cases[i].in.ptr, len), text);
            if (strcmp(text, "more") != 0 && strcmp(text, cases[i].want) != 0) {
                fail_msg("case %zu, %zu bytes: %s, wanted %s", i, len, text, cases[i].want);
            }
        }
    }
}

static void the_largest_header_is_read_to_its_end(void **unused)
{
    static char largest[PROXY_HEADER_MAX + 1] = V2 "\x21\x11\x0f\xf0" IPV4;
    char text[TEXT_MAX];

    (void)unused;
    print(slice_of(largest, PROXY_HEADER_MAX - 1), text);
    assert_string_equal(text, "more");
    print(slice_of(largest, sizeof largest), text);
    assert_string_equal(text, "192.0.2.1 55555 4096");
}

UNIT_MAIN(cmocka_unit_test(headers_give_the_address_of_the_client),
          cmocka_unit_test(a_part_of_a_header_decides_nothing_else),
          cmocka_unit_test(the_largest_header_is_read_to_its_end))
