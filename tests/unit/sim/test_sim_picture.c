/* What a picture of a run shows. That it is well-formed is tested with the program. */
#include "sim_picture.h"

#include <string.h>

#include "sim_page.h"
#include "unit.h"
#include "world.h"

static const char conf_text[] = "myhostname = mx.example\n";

static const char mail_text[] = "site a.example slots=1 latency=1s outage=1m..2m:refuse\n"
                                "site *.people.example latency=100ms\n"
                                "arrivals all class=bulk count=300 at=30s to=a.example\n"
                                "arrivals some rate=1/s to=zipf(50,1.1,people.example)\n"
                                "duration 10m\n";

/* Both kinds of picture of a run of these texts; the caller finishes them. */
static void draw(const char *mail, struct buf *svg, struct buf *html)
{
    struct sim_report_options options = {.seed = 1, .rows = 3};
    struct test_world t;

    buf_init(svg, SIM_PICTURE_MAX);
    buf_init(html, SIM_PICTURE_MAX);
    test_world(&t, conf_text, mail, 1);
    sim_picture_svg(svg, t.result, t.workload, true);
    sim_page_html(html, t.result, t.workload, &options);
    test_world_close(&t);
}

static size_t occurrences(struct buf *text, const char *what)
{
    size_t count = 0;

    for (const char *at = buf_cstr(text); (at = strstr(at, what)) != NULL; at++) {
        count++;
    }
    return count;
}

static void a_run_is_shown_with_its_trouble_first(void **state)
{
    struct buf svg, html;
    const char *trouble, *other;

    (void)state;
    draw(mail_text, &svg, &html);
    assert_int_equal(occurrences(&svg, "Messages waiting"), 1);
    trouble = strstr(buf_cstr(&svg), "class=\"h\">smtp/a.example<");
    other = strstr(buf_cstr(&svg), "class=\"h\">smtp/d1.people.example<");
    assert_non_null(trouble);
    assert_non_null(other);
    assert_true(trouble < other);
    assert_int_equal(occurrences(&svg, "class=\"note\">refuses connections<"), 1);
    assert_int_equal(occurrences(&svg, "smtp/a.example refuses connections</title>"), 2);
    assert_int_equal(occurrences(&svg, ">bulk<"), 1);
    assert_int_equal(occurrences(&svg, "class=\"h\">smtp/"), 4);
    buf_fini(&svg);
    buf_fini(&html);
}

static void a_page_has_the_picture_and_the_tables(void **state)
{
    struct buf svg, html;

    (void)state;
    draw(mail_text, &svg, &html);
    assert_int_equal(occurrences(&html, "<svg "), 1);
    assert_int_equal(occurrences(&html, "<table>"), 2);
    assert_int_equal(occurrences(&html, "<style>"), 1);
    assert_int_equal(occurrences(&html, "<tr><td>"), 3 + 4); /* classes, all; 3, and the rest */
    assert_int_equal(occurrences(&html, "<script"), 0);
    assert_int_equal(occurrences(&html, "prefers-color-scheme:dark"), 1);
    buf_fini(&svg);
    buf_fini(&html);
}

static void a_run_without_mail_has_a_picture_too(void **state)
{
    struct buf svg, html;

    (void)state;
    draw("duration 1s\n", &svg, &html);
    assert_false(svg.failed);
    assert_int_equal(occurrences(&svg, "nan"), 0);
    assert_int_equal(occurrences(&svg, "inf"), 0);
    buf_fini(&svg);
    buf_fini(&html);
}

UNIT_MAIN(cmocka_unit_test(a_run_is_shown_with_its_trouble_first),
          cmocka_unit_test(a_page_has_the_picture_and_the_tables),
          cmocka_unit_test(a_run_without_mail_has_a_picture_too))
