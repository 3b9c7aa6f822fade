#include "unit.h"

#include <string.h>

#include "template.h"

static struct slice value_of(void *arg, struct slice name)
{
    (void)arg;
    return slice_equal(name, SLICE("n"))   ? SLICE("<&'\">")
           : slice_equal(name, SLICE("o")) ? SLICE("{{n}}")
                                           : SLICE("");
}

static void values_stand_in_the_place_of_their_names(void **unused)
{
    static const struct {
        const char *in;
        bool is_html;
        const char *want;
    } cases[] = {
        {"", false, ""},
        {"a", false, "a"},
        {"{{n}}", false, "<&'\">"},
        {"a{{ n }}b{{n}}", false, "a<&'\">b<&'\">"},
        {"{{n}}", true, "&lt;&amp;&#39;&quot;&gt;"},
        {"{{{n}}}{{n}}", true, "<&'\">&lt;&amp;&#39;&quot;&gt;"},
        {"{{o}}", false, "{{n}}"}, /* a value is no template */
        {"{{empty}}", false, ""},
        {"{{n} {{", false, "{{n} {{"},
        {"{ {n}} {", false, "{ {n}} {"},
        {"a{{n}}{{n", false, "a<&'\">{{n"},
        {"{{{n}} {{{", false, "{{{n}} {{{"},
    };
    struct buf out;

    (void)unused;
    buf_init(&out, 1000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t bytes = 2; bytes < 30; bytes++) {
            struct template t;

            buf_clear(&out);
            template_init(&t, slice_string(cases[i].in), cases[i].is_html);
            while (!template_put(&t, bytes, value_of, NULL, &out)) {
            }
            assert_string_equal(buf_cstr(&out), cases[i].want);
        }
    }
    buf_fini(&out);
}

static void a_full_buffer_ends_it(void **unused)
{
    struct template t;
    struct buf out;

    (void)unused;
    buf_init(&out, 3);
    template_init(&t, SLICE("ab{{n}}"), false);
    while (!out.failed) {
        assert_false(template_put(&t, 2, value_of, NULL, &out));
    }
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(values_stand_in_the_place_of_their_names),
          cmocka_unit_test(a_full_buffer_ends_it))
