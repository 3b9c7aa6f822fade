#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "message_json.h"
#include "queue_print.h"
#include "rcpt_walk.h"

#define HEADER "----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------\n"

/* JSON with single quotes for double ones. */
static json_t *json(const char *text)
{
    char *copy = strdup(text);
    json_t *value;

    assert_non_null(copy);
    for (char *c = strchr(copy, '\''); c != NULL; c = strchr(c, '\'')) {
        *c = '"';
    }
    value = json_loads(copy, 0, NULL);
    assert_non_null(value);
    free(copy);
    return value;
}

/* The listing of an array of messages. */
static char *list(const char *messages, const char *nothing, bool classes)
{
    json_t *array = json(messages), *message, *rcpt;
    struct queue_print p = {.classes = classes};
    size_t i, j, size;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    json_array_foreach(array, i, message)
    {
        queue_print_message(&p, out, message);
        json_array_foreach(json_object_get(message, "recipients"), j, rcpt)
        {
            queue_print_rcpt(&p, out, rcpt);
        }
    }
    queue_print_end(&p, out, nothing);
    queue_print_fini(&p);
    assert_int_equal(fclose(out), 0);
    json_decref(array);
    return text;
}

/* The time is Nov 20 13:02:04 2025 UTC. */
#define MESSAGE(id, queue, more)                                                                   \
    "{'queue_id':'" id "','queue_name':'" queue                                                    \
    "','arrival_time':1763643724.5,'message_size':276,'sender':'p@s.example'" more "}"
#define LINE                                                                                       \
    "                     276 Thu Nov 20 13:02:04 p@s.example\n" /* behind an id of a byte */
#define REFUSED "host 127.0.0.1[127.0.0.1] refused to talk to me: 421 4.7.0 go away"

static void a_queue_looks_as_postqueue_prints_it(void **state)
{
    static const struct {
        const char *messages, *want;
    } rows[] = {
        {"[]", "Mail queue is empty\n"},
        {"[" MESSAGE("3Q0YXS5kGxz", "active",
                     ",'recipients':["
                     "{'address':'c@bad.example','state':'pending','delay_reason':'" REFUSED "'},"
                     "{'address':'a@ok.example','state':'pending'}]") "]",
         HEADER "3Q0YXS5kGxz*           276 Thu Nov 20 13:02:04 p@s.example\n"
                "          (" REFUSED ")\n"
                "                                               c@bad.example\n"
                "                                                          (reason unavailable)\n"
                "                                               a@ok.example\n"
                "\n-- 0 Kbytes in 1 Request.\n"},
        {"[" MESSAGE("3Q0YXS5kGxz", "hold",
                     ",'forced_expire':true") "," MESSAGE("3Q0YXS5kGyz", "incoming", "") "]",
         HEADER "3Q0YXS5kGxz!#          276 Thu Nov 20 13:02:04 p@s.example\n"
                "\n"
                "3Q0YXS5kGyz            276 Thu Nov 20 13:02:04 p@s.example\n"
                "\n-- 0 Kbytes in 2 Requests.\n"},
        /* one reason for two recipients; recipients that are done are not there */
        {"[" MESSAGE("A", "deferred",
                     ",'recipients':["
                     "{'address':'a@x','state':'pending','delay_reason':'r'},"
                     "{'address':'b@x','state':'delivered'},"
                     "{'address':'c@x','state':'pending','delay_reason':'r'},"
                     "{'address':'d@x','state':'failed','bounce_reason':'s'}]") "]",
         HEADER "A                      276 Thu Nov 20 13:02:04 p@s.example\n"
                "                                                                           (r)\n"
                "                                               a@x\n"
                "                                               c@x\n"
                "                                                                           (s)\n"
                "                                               d@x\n"
                "\n-- 0 Kbytes in 1 Request.\n"},
        /* bytes from outside do nothing to a terminal */
        {"[{'queue_id':'A','queue_name':'deferred','arrival_time':1763643724,'message_size':2048,"
         "'sender':'','recipients':[{'address':'a\\u001b[2J\\u009b','state':'pending',"
         "'delay_reason':'x\\r\\ny'}]}]",
         HEADER "A                     2048 Thu Nov 20 13:02:04 MAILER-DAEMON\n"
                "                                                                        (x ?y)\n"
                "                                               a?[2J??\n"
                "\n-- 2 Kbytes in 1 Request.\n"},
        /* what can't be decoded is there with its reason */
        {"[{'queue_id':'A','queue_name':'corrupt','reason':'bad','recipients':[]}]",
         HEADER "A?                       0                     (unreadable)\n"
                "                                                                         (bad)\n"
                "\n-- 0 Kbytes in 1 Request.\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *text = list(rows[i].messages, "Mail queue is empty", false);

        assert_string_equal(text, rows[i].want);
        free(text);
    }
}

static void classes_are_told_only_if_asked_for(void **state)
{
#define CLASSED(id, class) MESSAGE(id, "deferred", class ",'recipients':[]")
    static const char messages[] =
        "[" CLASSED("A", ",'class':'bulk','class_source':'List-Unsubscribe'") "," CLASSED(
            "B", ",'class':'x\\u009b'") "," CLASSED("C", "") "]";
    static const char end[] = "\n-- 0 Kbytes in 3 Requests.\n";
    char want[1000], *text;

    (void)state;
    for (int classes = 0; classes < 2; classes++) {
        (void)snprintf(want, sizeof want, "%sA %s%s\nB %s%s\nC %s%s", HEADER, LINE,
                       classes ? "    class bulk: List-Unsubscribe\n" : "", LINE,
                       classes ? "    class x??\n" : "", LINE, end);
        text = list(messages, "", classes);
        assert_string_equal(text, want);
        free(text);
    }
}

static void json_begins_with_the_members_of_postqueue(void **state)
{
    json_t *message = json("{'queue_id':'A','queue_name':'hold','arrival_time':5,'message_size':7,"
                           "'forced_expire':false,'sender':'','client':'c','recipients':"
                           "[{'address':'\\u009b'},{'address':'b'},{'address':'c'}]}");
    struct rcpt_walk w;
    char *line = NULL;
    size_t size;
    FILE *out = open_memstream(&line, &size);

    (void)state;
    rcpt_walk_init(&w, NULL, message, 2);
    message_json_begin(out, message);
    message_json_rcpts(out, &w);
    message_json_end(out);
    assert_true(w.cut);
    assert_int_equal(rcpt_walk_fini(&w), 0);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(line,
                        "{\"queue_name\":\"hold\",\"queue_id\":\"A\",\"arrival_time\":5,"
                        "\"message_size\":7,\"forced_expire\":false,\"sender\":\"MAILER-DAEMON\","
                        "\"client\":\"c\",\"recipients\":[{\"address\":\"\\u009B\"},"
                        "{\"address\":\"b\"}]}\n");
    free(line);
    json_decref(message);
}

UNIT_MAIN(cmocka_unit_test(a_queue_looks_as_postqueue_prints_it),
          cmocka_unit_test(classes_are_told_only_if_asked_for),
          cmocka_unit_test(json_begins_with_the_members_of_postqueue))
