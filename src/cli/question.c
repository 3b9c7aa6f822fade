#include "question.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "words.h"

static const struct {
    const char *op;
    bool post;
    const char *before, *behind; /* path before and after the id */
} operations[] = {
    {"list", false, "/v1/messages", ""},
    {"show", false, "/v1/messages/", ""},
    {"cat", false, "/v1/messages/", "/content"},
    {"why", false, "/v1/messages/", "/why"},
    {"count", false, "/v1/count", ""},
    {"shape", false, "/v1/shape", ""},
    {"events", false, "/v1/events", ""},
    {"trace", false, "/v1/trace", ""},
    {"destinations", false, "/v1/destinations", ""},
    {"sites", false, "/v1/sites", ""},
    {"site", false, "/v1/site", ""},
    {"tls", false, "/v1/tls", ""},
    {"status", false, "/v1/status", ""},
    {"totals", false, "/v1/status", ""}, /* part of the status */
    {"cluster", false, "/v1/cluster", ""},
    {"hold", true, "/v1/messages/hold", ""},
    {"release", true, "/v1/messages/release", ""},
    {"delete", true, "/v1/messages/delete", ""},
    {"requeue", true, "/v1/messages/requeue", ""},
    {"expire", true, "/v1/messages/expire", ""},
    {"flush", true, "/v1/messages/flush", ""},
    {"interventions", false, "/v1/interventions", ""},
    {"intervene", true, "/v1/interventions", ""},
    {"cancel", true, "/v1/interventions/", "/cancel"},
    {"reload", true, "/v1/reload", ""},
    {"stop", true, "/v1/stop", ""},
    {"clock", true, "/v1/clock", ""},
};

/* Appends to the URL. Appends fail only beyond QUESTION_URL_MAX, and are sticky. */

static void add_escaped(struct buf *url, const char *text)
{
    for (; *text != '\0'; text++) {
        if (ascii_is_alnum(*text) || strchr("-._~", *text) != NULL) {
            (void)buf_add_byte(url, *text);
        } else {
            (void)buf_addf(url, "%%%02X", (unsigned)(unsigned char)*text);
        }
    }
}

static void add_pair(struct buf *url, const char *name, const json_t *value, char *separator)
{
    size_t i;
    json_t *element;

    if (json_is_array(value)) {
        json_array_foreach((json_t *)(uintptr_t)value, i, element)
        {
            add_pair(url, name, element, separator);
        }
        return;
    }
    (void)buf_addf(url, "%c%s=", *separator, name);
    *separator = '&';
    if (json_is_integer(value)) {
        (void)buf_addf(url, "%" PRId64, (int64_t)json_integer_value(value));
    } else {
        CHECK(json_is_string(value));
        add_escaped(url, json_string_value(value));
    }
}

/* Adds all members that are not in the path; those of the filter as if they were members of the
 * query. */
static void add_query(struct buf *url, const json_t *question, char *separator)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)question, name, value)
    {
        if (json_is_object(value)) {
            add_query(url, value, separator);
        } else if (strcmp(name, "op") != 0 && strcmp(name, "id") != 0) {
            add_pair(url, name, value, separator);
        }
    }
}

void request_init(struct request *ret_request, const json_t *question)
{
    const char *op = member_text(question, "op");
    size_t i = 0;

    while (strcmp(operations[i].op, op) != 0) {
        i++;
        CHECK(i < sizeof operations / sizeof operations[0]);
    }
    *ret_request = (struct request){.post = operations[i].post};
    buf_init(&ret_request->url, QUESTION_URL_MAX);
    (void)buf_add_string(&ret_request->url, operations[i].before);
    add_escaped(&ret_request->url, member_text(question, "id"));
    (void)buf_add_string(&ret_request->url, operations[i].behind);
    if (!operations[i].post) {
        add_query(&ret_request->url, question, &(char){'?'});
    } else if (json_object_size(question) > 1) {
        ret_request->body = json_dumps(question, JSON_COMPACT);
        CHECK(ret_request->body != NULL);
    }
}

void request_fini(struct request *r)
{
    buf_fini(&r->url);
    free(r->body);
}
