#include "unit.h"

#include <string.h>
#include <strings.h>

#include "endpoint.h"

static json_t *description(void)
{
    struct slice text = endpoint_description();
    json_error_t error;
    json_t *json = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);

    if (json == NULL) {
        print_error("openapi.json, line %d: %s\n", error.line, error.text);
    }
    assert_non_null(json);
    return json;
}

/* What a {"$ref": "#/components/parameters/NAME"} stands for. */
static const json_t *resolved(const json_t *document, const json_t *parameter)
{
    const char *ref = json_string_value(json_object_get(parameter, "$ref"));
    const json_t *found = json_object_get(json_object_get(document, "components"), "parameters");

    return ref == NULL ? parameter : json_object_get(found, strrchr(ref, '/') + 1);
}

/* Is it a parameter of a query of the call that is described? */
static bool is_described(const json_t *document, const json_t *operation, const char *name)
{
    size_t i;
    json_t *parameter;

    json_array_foreach(json_object_get(operation, "parameters"), i, parameter)
    {
        const json_t *p = resolved(document, parameter);

        if (strcmp(json_string_value(json_object_get(p, "in")), "query") == 0 &&
            strcmp(json_string_value(json_object_get(p, "name")), name) == 0) {
            return true;
        }
    }
    return false;
}

static const json_t *described(const json_t *document, const struct endpoint *e)
{
    const json_t *path = json_object_get(json_object_get(document, "paths"), e->path);

    return json_object_get(path, strcmp(e->method, "GET") == 0 ? "get" : "post");
}

/* That a token needs. */
static const char *right_of(const json_t *operation)
{
    const json_t *with_token = json_array_get(json_object_get(operation, "security"), 1);

    return json_string_value(json_array_get(json_object_get(with_token, "token"), 0));
}

static void each_endpoint_is_described_with_its_parameters(void **unused)
{
    json_t *document = description();
    const struct endpoint *e;
    const char *name;

    (void)unused;
    for (size_t i = 0; (e = endpoint_at(i)) != NULL; i++) {
        const json_t *operation = described(document, e);

        if (operation == NULL) {
            fail_msg("%s %s is not in openapi.json", e->method, e->path);
        }
        for (size_t p = 0; (name = endpoint_parameter(p)) != NULL; p++) {
            bool taken = (e->parameters >> p & 1) != 0;

            if (taken != is_described(document, operation, name)) {
                fail_msg("%s %s: %s is %s", e->method, e->path, name,
                         taken ? "taken, but not described" : "described, but not taken");
            }
        }
        assert_true((strcmp(e->method, "POST") == 0) ==
                    (json_object_get(operation, "requestBody") != NULL));
        assert_string_equal(right_of(operation), e->operates ? "operate" : "read");
    }
    json_decref(document);
}

static bool is_endpoint(const char *method, const char *path)
{
    const struct endpoint *e;

    for (size_t i = 0; (e = endpoint_at(i)) != NULL; i++) {
        if (strcasecmp(e->method, method) == 0 && strcmp(e->path, path) == 0) {
            return true;
        }
    }
    return false;
}

static void each_call_that_is_described_is_there(void **unused)
{
    json_t *document = description(), *methods, *operation;
    const char *path, *method;

    (void)unused;
    json_object_foreach(json_object_get(document, "paths"), path, methods)
    {
        json_object_foreach(methods, method, operation)
        {
            size_t i;
            json_t *parameter;

            if (strcmp(path, "/v1/inject") == 0) {
                continue; /* the receive process answers that */
            }
            if (!is_endpoint(method, path)) {
                fail_msg("%s %s is described, but not there", method, path);
            }
            json_array_foreach(json_object_get(operation, "parameters"), i, parameter)
            {
                const json_t *p = resolved(document, parameter);
                const char *name = json_string_value(json_object_get(p, "name"));
                bool known = strcmp(json_string_value(json_object_get(p, "in")), "query") != 0;

                for (size_t n = 0; !known && endpoint_parameter(n) != NULL; n++) {
                    known = strcmp(endpoint_parameter(n), name) == 0;
                }
                if (!known) {
                    fail_msg("%s %s: no call takes %s", method, path, name);
                }
            }
        }
    }
    json_decref(document);
}

static void paths_are_found_with_the_part_that_differs(void **unused)
{
    static const struct {
        const char *method, *path, *op, *part, *allowed;
    } cases[] = {
        {"GET", "/v1/messages", "list", NULL, NULL},
        {"HEAD", "/v1/messages/A%2F1", "show", "A%2F1", NULL},
        {"GET", "/v1/messages/A/why", "why", "A", NULL},
        {"GET", "/v1/messages//why", "why", "", NULL},
        {"POST", "/v1/messages/hold", "hold", NULL, NULL},
        {"GET", "/v1/messages/hold", "show", "hold", NULL},
        {"POST", "/v1/messages/A", NULL, NULL, "Allow: GET, HEAD\r\n"},
        {"GET", "/v1/reload", NULL, NULL, "Allow: POST\r\n"},
        {"DELETE", "/v1/interventions", NULL, NULL, "Allow: GET, HEAD, POST\r\n"},
        {"GET", "/v1/messages/A/why/", NULL, NULL, NULL},
        {"GET", "/v1", NULL, NULL, NULL},
        {"GET", "", NULL, NULL, NULL},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct slice part = {.ptr = NULL};
        const char *allowed = NULL;
        const struct endpoint *e = endpoint_find(slice_string(cases[i].method),
                                                 slice_string(cases[i].path), &part, &allowed);

        assert_int_equal(e != NULL, cases[i].op != NULL);
        if (e != NULL) {
            assert_string_equal(e->op, cases[i].op);
            assert_int_equal(part.ptr != NULL, cases[i].part != NULL);
            assert_true(cases[i].part == NULL || slice_equal(part, slice_string(cases[i].part)));
        } else if (cases[i].allowed == NULL) {
            assert_null(allowed);
        } else {
            assert_string_equal(allowed, cases[i].allowed);
        }
    }
}

static void a_query_is_read_or_refused_with_what_is_expected(void **unused)
{
    static const struct {
        const char *query, *want; /* the question, or what the error has */
    } cases[] = {
        {"", "{\"filter\": {}}"},
        {"max=7&state=hold&state=deferred",
         "{\"filter\": {\"state\": [\"hold\", \"deferred\"]}, \"max\": 7}"},
        {"sender=a%2Bb+c%40d", "{\"filter\": {\"sender\": \"a+b c@d\"}}"},
        {"max=", "max: a number is expected, not \"\""},
        {"max=-1", "max: a number is expected, not \"-1\""},
        {"max=99999999999999999999", "max: a number is expected"},
        {"max=1&max=1", "max: it is there twice, once is expected"},
        {"fetch=1", "fetch is not known; known are state, sender"},
        {"=1", "query:  is not known"},
        {"class=%ff", "class: UTF-8 is expected"},
        {"class=a%00", "class: UTF-8 is expected"},
        {"class=%zz", "query: name=value&name=value is expected"},
    };
    const struct endpoint *list = NULL;

    (void)unused;
    for (size_t i = 0; list == NULL || strcmp(list->path, "/v1/messages") != 0; i++) {
        list = endpoint_at(i);
        assert_non_null(list);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *question = json_object();
        struct buf error;
        bool good;

        buf_init(&error, 1024);
        good = endpoint_read_query(list, slice_string(cases[i].query), question, &error);
        assert_int_equal(good, cases[i].want[0] == '{');
        if (good) {
            char *text = json_dumps(question, JSON_SORT_KEYS);

            assert_string_equal(text, cases[i].want);
            free(text);
        } else {
            assert_non_null(strstr(buf_cstr(&error), cases[i].want));
        }
        buf_fini(&error);
        json_decref(question);
    }
}

UNIT_MAIN(cmocka_unit_test(each_endpoint_is_described_with_its_parameters),
          cmocka_unit_test(each_call_that_is_described_is_there),
          cmocka_unit_test(paths_are_found_with_the_part_that_differs),
          cmocka_unit_test(a_query_is_read_or_refused_with_what_is_expected))
