#include "jsonlines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

#define PATH_MAX_BYTES 64

/* A file with this content; the name says where. */
static void write_file(char path[PATH_MAX_BYTES], const char *content, size_t len)
{
    FILE *out;
    int fd;

    (void)snprintf(path, PATH_MAX_BYTES, "/tmp/test_jsonlines.XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    out = fdopen(fd, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(content, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
}

/* What is read of a content: "object;" for each, then "end" or the error behind the file's name. */
static void tell(const char *content, size_t len, char told[512])
{
    char path[PATH_MAX_BYTES];
    enum jsonlines_event event;
    struct jsonlines in;
    struct buf error;
    json_t *object;

    write_file(path, content, len);
    assert_int_equal(jsonlines_open(&in, path), 0);
    buf_init(&error, 512);
    told[0] = '\0';
    while ((event = jsonlines_next(&in, &object, &error)) == JSONLINES_OBJECT) {
        strcat(told, "object;");
        json_decref(object);
    }
    strcat(told, event == JSONLINES_END ? "end" : buf_cstr(&error) + strlen(path));
    jsonlines_close(&in);
    buf_fini(&error);
    assert_int_equal(unlink(path), 0);
}

static void lines_are_read_and_faults_are_placed(void **state)
{
    static const struct {
        const char *content, *want;
    } cases[] = {
        {"", "end"},
        {"\n\r\n \n", "end"},
        {"{}\n{\"a\":1}\n", "object;object;end"},
        {"{}\n\n{}", "object;object;end"},
        {"{}\n{\"a\":", "object;:2:5:"},
        {"[]\n", ":1: a JSON object is expected"},
        {"{\"a\":1,\"a\":2}\n", ":1:10:"},
        {"{\"a\":99999999999999999999}\n", ":1:25:"},
        {"{\"a\":1e999}\n", ":1:10:"},
    };
    char told[512];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        tell(cases[i].content, strlen(cases[i].content), told);
        told[strlen(cases[i].want)] = '\0'; /* the words behind the place are jansson's */
        assert_string_equal(told, cases[i].want);
    }
}

static void a_line_has_a_limit(void **state)
{
    static char content[JSONLINES_LINE_MAX + 2];
    char told[512];

    (void)state;
    memset(content, ' ', sizeof content);
    content[0] = '\n';
    tell(content, sizeof content, told);
    assert_string_equal(told, ":2: a line of more than 16777216 bytes");
}

static void what_is_no_file_is_refused(void **state)
{
    struct jsonlines in;

    (void)state;
    assert_int_equal(jsonlines_open(&in, "/tmp"), -EISDIR);
    assert_int_equal(jsonlines_open(&in, "/nowhere/at/all"), -ENOENT);
}

UNIT_MAIN(cmocka_unit_test(lines_are_read_and_faults_are_placed),
          cmocka_unit_test(a_line_has_a_limit), cmocka_unit_test(what_is_no_file_is_refused))
