#include "unit.h"

#include <string.h>

#include "question.h"

static void a_question_becomes_a_path_with_a_query_or_a_body(void **state)
{
    static const struct {
        const char *question, *want_url, *want_body; /* body NULL: GET; "": POST without one */
    } rows[] = {
        {"{'op':'status'}", "/v1/status", NULL},
        {"{'op':'totals'}", "/v1/status", NULL},
        {"{'op':'list','filter':{}}", "/v1/messages", NULL},
        {"{'op':'list','filter':{'state':['hold','corrupt'],'sender':'<>'},'max':100,'after':'X'}",
         "/v1/messages?state=hold&state=corrupt&sender=%3C%3E&max=100&after=X", NULL},
        {"{'op':'count','filter':{'recipient':'a+b c&d=e%/\\u00e9@x'}}",
         "/v1/count?recipient=a%2Bb%20c%26d%3De%25%2F%C3%A9%40x", NULL},
        {"{'op':'count','filter':{'older_than':86400,'min_size':1048576}}",
         "/v1/count?older_than=86400&min_size=1048576", NULL},
        {"{'op':'show','id':'3Q0YXS5kGxz','after_recipient':50}",
         "/v1/messages/3Q0YXS5kGxz?after_recipient=50", NULL},
        {"{'op':'show','id':'../x?y'}", "/v1/messages/..%2Fx%3Fy", NULL},
        {"{'op':'cat','id':'A'}", "/v1/messages/A/content", NULL},
        {"{'op':'why','id':'A'}", "/v1/messages/A/why", NULL},
        {"{'op':'sites','cursor':7}", "/v1/sites?cursor=7", NULL},
        {"{'op':'reload'}", "/v1/reload", ""},
        {"{'op':'hold','ids':['A']}", "/v1/messages/hold", "{\"op\":\"hold\",\"ids\":[\"A\"]}"},
        {"{'op':'flush','filter':{'destination':'x'},'dry_run':false}", "/v1/messages/flush",
         "{\"op\":\"flush\",\"filter\":{\"destination\":\"x\"},\"dry_run\":false}"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[300];
        struct request r;
        json_t *question;

        (void)strcpy(text, rows[i].question);
        for (char *c = strchr(text, '\''); c != NULL; c = strchr(c, '\'')) {
            *c = '"';
        }
        question = json_loads(text, 0, NULL);
        assert_non_null(question);
        request_init(&r, question);
        assert_string_equal(buf_cstr(&r.url), rows[i].want_url);
        assert_int_equal(r.post, rows[i].want_body != NULL);
        assert_string_equal(r.body == NULL ? "" : r.body,
                            rows[i].want_body == NULL ? "" : rows[i].want_body);
        request_fini(&r);
        json_decref(question);
    }
}

static void a_filter_that_is_too_long_shows(void **state)
{
    char *sender = malloc(QUESTION_URL_MAX);
    struct request r;
    json_t *question;

    (void)state;
    assert_non_null(sender);
    memset(sender, 'x', QUESTION_URL_MAX - 1);
    sender[QUESTION_URL_MAX - 1] = '\0';
    question = json_pack("{s:s, s:{s:s}}", "op", "count", "filter", "sender", sender);
    request_init(&r, question);
    assert_true(r.url.failed);
    request_fini(&r);
    json_decref(question);
    free(sender);
}

UNIT_MAIN(cmocka_unit_test(a_question_becomes_a_path_with_a_query_or_a_body),
          cmocka_unit_test(a_filter_that_is_too_long_shows))
