/*
 * Files of patterns, and content that passes through header_checks and body_checks.
 *
 * Input: a byte that says how the content is split, a file of patterns up to the first NUL byte,
 * which serves for header and body alike, then content. Wanted, beside no crash: the same output
 * and the same ruling however it is split, and all of the content in the output; and that a file
 * is read as a map of entries, too.
 */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "alias_value.h"
#include "check.h"
#include "checks.h"
#include "envelope.h"
#include "map_text.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct buf out;
    struct ruling ruling;
    unsigned visits;
};

static void put(void *arg, struct slice bytes)
{
    CHECK(buf_add(arg, bytes));
}

static int64_t no_time(void)
{
    return 0;
}

static void pass(const struct rule_set *set, struct slice content, size_t step, struct run *run)
{
    struct checks *c;

    buf_init(&run->out, 64u << 20);
    ruling_init(&run->ruling);
    c = checks_new(set, &run->ruling, no_time);
    while (content.len > 0) {
        size_t len = content.len < step ? content.len : step;

        checks_feed(c, slice_of(content.ptr, len), put, &run->out);
        content = slice_skip(content, len);
    }
    checks_end(c, put, &run->out);
    CHECK(checks_held(c) == 0);
    run->visits = checks_visits(c);
    checks_free(c);
}

static struct rule_set *set_of(struct slice patterns, const struct conf *const *conf)
{
    struct table_image *image = table_image_new();
    struct rule_set *set;
    struct buf error;
    int fd;

    CHECK(table_image_begin(image, TABLE_HEADER_CHECKS, SLICE("/h")));
    CHECK(table_image_add_text(image, patterns));
    CHECK(table_image_begin(image, TABLE_BODY_CHECKS, SLICE("/b")));
    CHECK(table_image_add_text(image, patterns));
    fd = table_image_seal(image);
    CHECK(fd > 0);
    table_image_free(image);
    buf_init(&error, 10000);
    set = rule_set_new(fd, conf, &error);
    buf_fini(&error);
    (void)close(fd); /* memory */
    return set;
}

/* Reads the value of a line as each form of alias. What is stored is read again as it is. */
static void read_as_alias(const struct map_line *line, const struct conf *conf)
{
    struct slice value = line->value;
    struct buf key, stored, again;

    buf_init(&key, ADDRESS_MAX);
    buf_init(&stored, CONF_LINE_MAX);
    buf_init(&again, CONF_LINE_MAX);
    if (alias_line_split(line->whole, &key, &value) == NULL) {
        CHECK(buf_len(&key) > 0);
    } else {
        value = line->value;
    }
    for (int form = ALIAS_FORM_VIRTUAL; form <= ALIAS_FORM_ONE; form++) {
        if (alias_value_parse(value, (enum alias_form)form, conf, &stored) == NULL) {
            CHECK(alias_value_parse(buf_slice(&stored), (enum alias_form)form, conf, &again) ==
                  NULL);
            CHECK(slice_equal(buf_slice(&stored), buf_slice(&again)));
        }
    }
    buf_fini(&key);
    buf_fini(&stored);
    buf_fini(&again);
}

static void read_as_map(struct slice text, const struct conf *conf)
{
    struct map_text m;
    struct map_line line;
    unsigned last = 0;

    map_text_init(&m, text);
    while (map_text_next(&m, &line)) {
        CHECK(line.line > last);
        CHECK(line.key.len > 0);
        CHECK(line.key.len + line.value.len <= line.whole.len);
        last = line.line;
        read_as_alias(&line, conf);
    }
    map_text_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct conf *conf;
    struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct slice all, patterns, content;
    struct rule_set *set;
    struct run whole, cut;

    if (size < 2) {
        return 0;
    }
    if (conf == NULL) {
        conf = conf_load_text(SLICE("body_checks_size_limit = 100\n"), "c", "/", &world, &problems);
        conf_problems_fini(&problems);
    }
    all = slice_of(data + 1, size - 1);
    patterns = slice_of(all.ptr, slice_find(all, '\0'));
    content = slice_skip(all, patterns.len + 1);
    read_as_map(patterns, conf);
    set = set_of(patterns, &conf);
    if (set == NULL) {
        return 0;
    }
    pass(set, content, content.len + 1, &whole);
    pass(set, content, (size_t)data[0] % 40 + 1, &cut);
    CHECK(slice_equal(buf_slice(&whole.out), buf_slice(&cut.out)));
    CHECK(buf_len(&whole.out) >= content.len);
    CHECK(whole.visits == cut.visits);
    CHECK(whole.ruling.code == cut.ruling.code);
    CHECK(whole.ruling.note_count == cut.ruling.note_count);
    CHECK(whole.ruling.discard == cut.ruling.discard);
    buf_fini(&whole.out);
    buf_fini(&cut.out);
    ruling_clear(&whole.ruling);
    ruling_clear(&cut.ruling);
    rule_set_unref(set);
    return 0;
}
