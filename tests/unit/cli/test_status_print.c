#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "status_print.h"

static void a_daemon_that_is_down_shows_what_the_spool_knows(void **state)
{
    json_t *totals = json_pack("{s:i, s:i, s:i, s:i, s:i}", "incoming", 1, "deferred", 2, "hold", 3,
                               "corrupt", 4, "bytes", 2048);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    queue_status_print(out, totals);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "daemon       not running\n"
                              "messages     1 incoming, 2 deferred, 3 on hold, 4 corrupt\n"
                              "storage      2.0 KiB of mail\n");
    free(text);
    json_decref(totals);
}

static void storage_that_fails_is_told(void **state)
{
    json_t *status = json_pack("{s:i, s:s, s:f, s:i, s:b, s:b, s:b, s:i}", "pid", 7, "version", "1",
                               "uptime", 192.0, "bytes", 0, "storage_ok", 0, "space_ok", 0,
                               "behind", 1, "free_bytes", 1024);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    queue_status_print(out, status);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "daemon       running, version 1, process 7, for 3m 12s\n"));
    assert_non_null(strstr(text, "0 bytes of mail, 1.0 KiB free; IT FAILS, no mail is accepted; "
                                 "TOO LITTLE, no mail is accepted; clients are slowed down\n"));
    free(text);
    json_decref(status);
}

static void a_dead_site_says_why_and_until_when(void **state)
{
    json_t *site =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:s}", "transport", "smtp",
                  "destination", "x", "state", "dead", "busy", 0, "window", 2, "window_max", 20,
                  "waiting", 5, "seconds_left", 300.0, "reason", "refused\033[2J");
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    site_print(out, site, 1763643724);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "smtp/x: dead, tried again in 5m (2025-11-20 13:07:04)\n"
                              "  0 in flight in a window of 2 (at most 20), 5 waiting\n"
                              "  refused?[2J\n");
    free(text);
    json_decref(site);
}

static void faults_that_were_found_are_told(void **state)
{
    json_t *status =
        json_pack("{s:i, s:b, s:i, s:i, s:s, s:f}", "pid", 7, "storage_ok", 1, "audit_findings", 2,
                  "audit_repaired", 1, "audit_last", "A: lost", "audit_last_time", 1763643724.0);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    queue_status_print(out, status);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "faults       2 faults FOUND, 1 repaired; the last at "
                                 "2025-11-20 13:02:04:\n  A: lost\n"));
    free(text);
    json_decref(status);
}

UNIT_MAIN(cmocka_unit_test(faults_that_were_found_are_told),
          cmocka_unit_test(a_daemon_that_is_down_shows_what_the_spool_knows),
          cmocka_unit_test(storage_that_fails_is_told),
          cmocka_unit_test(a_dead_site_says_why_and_until_when))
