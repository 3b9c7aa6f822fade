#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "message_print.h"

#define NOW 1763643724.0 /* 2025-11-20 13:02:04 UTC */

/* What is printed of one message with one recipient. */
static char *print(json_t *message, json_t *rcpt)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(message);
    assert_non_null(rcpt);
    message_print_head(out, message, NOW);
    message_print_rcpt(out, rcpt, NOW);
    assert_int_equal(fclose(out), 0);
    json_decref(message);
    json_decref(rcpt);
    return text;
}

static void a_deferred_message_shows_its_reasons_and_times(void **state)
{
    char *text =
        print(json_pack("{s:s, s:s, s:f, s:f, s:i, s:b, s:s, s:s, s:f, s:i, s:i}", "queue_id", "A",
                        "queue_name", "deferred", "arrival_time", NOW - 192, "created", NOW - 192,
                        "message_size", 1536, "forced_expire", 1, "sender", "a@x", "client",
                        "c[192.0.2.1]", "next_attempt", NOW + 300, "recipients_total", 2,
                        "recipients_pending", 1),
              json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:f, s:s, s:s, s:s}", "n", 2, "address",
                        "b\033@x", "state", "pending", "transport", "smtp", "nexthop", "x",
                        "attempts", 1, "last_attempt", NOW - 60, "status", "4.4.1", "delay_reason",
                        "timed out", "remote", "mx[192.0.2.2]:25"));

    (void)state;
    assert_string_equal(text, "A: deferred, to expire\n"
                              "  sender        <a@x>\n"
                              "  size          1.5 KiB\n"
                              "  client        c[192.0.2.1]\n"
                              "  arrived       2025-11-20 12:58:52 (3m 12s ago)\n"
                              "  next attempt  2025-11-20 13:07:04 (in 5m)\n"
                              "  recipients    2, 1 to be delivered\n"
                              "  2 <b?@x> pending, by smtp/x, 1 attempt, the last "
                              "2025-11-20 13:01:04 (1m ago)\n"
                              "      4.4.1 timed out (mx[192.0.2.2]:25)\n");
    free(text);
}

UNIT_MAIN(cmocka_unit_test(a_deferred_message_shows_its_reasons_and_times))
