/* Messages in pieces come out as vertices, and as lists of their numbers. */
#include "unit.h"

#include "mailq_dump.h"

static json_t *threads_of(const char *text)
{
    json_t *threads = json_loads(text, 0, NULL);

    assert_non_null(threads);
    return threads;
}

static void give(struct mailq_dump *d, const char *text, const json_t *threads, bool last,
                 struct buf *out)
{
    json_t *message = json_loads(text, 0, NULL);

    assert_non_null(message);
    mailq_dump_message(d, message, threads, last, out);
    json_decref(message);
}

static void vertices_and_their_lists(void **unused)
{
    json_t *threads = threads_of(
        "[{\"transport\": \"fk\", \"nexthop\": \"defer.f\", \"pending\": \"thread\"},"
        " {\"transport\": \"wch\", \"nexthop\": \"slow.a\", \"agents\": [{\"pid\": 15442}]},"
        " {\"transport\": \"fk\", \"nexthop\": \"slow.a\"}]");
    struct mailq_dump *d = mailq_dump_new();
    struct buf out;

    (void)unused;
    buf_init(&out, 10000);
    give(d,
         "{\"path\": \"A/B/11059320\", \"recipients\": ["
         " {\"n\": 231, \"thread\": 0, \"attempts\": 2, \"delay_reason\": \"try later\"},"
         " {\"n\": 240, \"state\": \"failed\"},"
         " {\"n\": 250, \"thread\": 1, \"next\": true}]}",
         threads, false, &out);
    assert_int_equal(buf_len(&out), 0);
    give(d, "{\"path\": \"A/B/11059320\", \"recipients\": [{\"n\": 263, \"thread\": 0}]}", threads,
         true, &out);
    give(d, "{\"queue_id\": \"4X\", \"recipients\": [{\"n\": 1, \"thread\": 2}]}", threads, true,
         &out);
    give(d, "{\"queue_id\": \"4Y\", \"recipients\": [{\"n\": 1, \"thread\": 1}]}", threads, true,
         &out);
    give(d, "{\"queue_id\": \"4Z\", \"recipients\": []}", threads, true, &out);
    mailq_dump_end(d, &out);
    assert_string_equal(buf_cstr(&out),
                        "1:\tA/B/11059320\t2; 231,263\t#try later (waiting for thread slot)\n"
                        "2:\tA/B/11059320\t1; 250\t#(running now, pid=15442 NextFeed)\n"
                        "3:\t4X\t1; 1\t#(activation pending, thread inactive)\n"
                        "4:\t4Y\t1; 1\t#(running now, pid=15442)\n"
                        "Channels:\nfk:\t>1>3\nwch:\t>2>4\n"
                        "Hosts:\ndefer.f:\t>1\nslow.a:\t>2>3>4\n"
                        "End:\n");
    mailq_dump_free(d);
    json_decref(threads);
    buf_fini(&out);
}

static void an_empty_queue_has_no_lists(void **unused)
{
    struct mailq_dump *d = mailq_dump_new();
    struct buf out;

    (void)unused;
    buf_init(&out, 100);
    mailq_dump_end(d, &out);
    assert_string_equal(buf_cstr(&out), "End:\n");
    mailq_dump_free(d);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(vertices_and_their_lists), cmocka_unit_test(an_empty_queue_has_no_lists))
