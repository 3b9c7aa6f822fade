#include "played_queue.h"

#include <event2/event.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "unit.h"

#define TURNS_MAX 200000 /* far more than anything takes */
/* So many turns without a pause, then the processor is left to others. */
#define TURNS_AT_ONCE 100
#define TURNS_SETTLE  60

struct played_queue played;

/* ---- what is wanted of role.c --------------------------------------------------------------- */

void role_queue_lost(struct role *role)
{
    (void)role;
    played.lost = true;
}

void role_exit(struct role *role, int status)
{
    (void)role;
    assert_int_equal(status, 0);
    played.exited = true;
}

struct slice role_file(const struct role *role, struct slice path)
{
    (void)role;
    (void)path;
    return slice_of(NULL, 0);
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void keep_result(const struct frame *frame)
{
    struct played_result *r = &played.results[played.count];

    assert_int_equal(frame->type, WIRE_RESULT);
    assert_true(played.count++ < COUNT(played.results));
    r->body = mem_copy(frame->body.ptr, frame->body.len);
    assert_true(wire_get_result(slice_of(r->body, frame->body.len), &r->m, &r->verdicts));
    if (r->m.thread_stops && r->m.outcome != OUTCOME_GIVEN_BACK && !played.is_slow) {
        wire_put_go_on(played.channel, r->m.entry);
    }
}

static void on_queue(void *arg, struct channel *ch)
{
    enum channel_event event;
    struct frame frame;

    (void)arg;
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.type == WIRE_NEED_CONTENT) {
            assert_true(wire_get_need_content(frame.body, &played.content_asked));
        } else if (played.on_frame == NULL || !played.on_frame(&frame)) {
            keep_result(&frame);
        }
    }
    if (event == CHANNEL_CLOSED) {
        channel_free(ch);
        played.channel = NULL;
    }
}

void played_connect(void)
{
    struct wire_peer peer = {.role = ROLE_QUEUE, .index = 0, .count = 1};
    int fds[2];

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    channel_free(played.channel);
    played.channel = channel_new(played.role.base, fds[0], on_queue, NULL);
    played.role.ops->peer(&played.role, &peer, fds[1]);
}

/* ---- its life ------------------------------------------------------------------------------- */

void played_init(const struct role_ops *ops)
{
    struct buf error;

    buf_init(&error, 1000);
    memset(&played, 0, sizeof played);
    played.role.base = event_base_new();
    played.role.ops = ops;
    assert_true(log_open("file:/dev/null", "/", "postfix", ops->program, &error));
    buf_fini(&error);
    clock_stand();
    clock_set_offset(0);
    clock_update();
}

void played_configure(struct slice text, const char *directory)
{
    struct conf_world world = {.hostname = "mx.here.test"};
    struct conf *old = played.conf;
    struct conf_problems problems;

    played.conf = conf_load_text(text, "test.conf", directory, &world, &problems);
    if (played.conf == NULL) {
        struct buf out;

        buf_init(&out, 10000);
        conf_print_problems(&out, &problems);
        fail_msg("%s", buf_cstr(&out));
    }
    conf_problems_fini(&problems);
    played.role.conf = played.conf;
    if (old != NULL) {
        played.role.ops->reload(&played.role, old);
        conf_free(old);
    }
}

void played_start(void)
{
    assert_int_equal(played.role.ops->start(&played.role), 0);
    played_connect();
}

void played_end(void)
{
    channel_free(played.channel);
    played.role.ops->end(&played.role);
    for (size_t i = 0; i < played.count; i++) {
        mem_free(played.results[i].body);
        mem_free(played.results[i].verdicts);
    }
    conf_free(played.conf);
    event_base_free(played.role.base);
    log_flush();
}

/* ---- turns ---------------------------------------------------------------------------------- */

void played_turn(void)
{
    clock_forget();
    assert_true(event_base_loop(played.role.base, EVLOOP_NONBLOCK) >= 0);
    if (played.role.ops->turn != NULL) {
        played.role.ops->turn(&played.role);
    }
    channel_flush_all();
}

bool played_until(bool (*holds)(const void *arg), const void *arg)
{
    for (int i = 0; i < TURNS_MAX && !holds(arg); i++) {
        played_turn();
        (void)poll(NULL, 0, i > TURNS_AT_ONCE);
    }
    return holds(arg);
}

struct counted {
    const size_t *what;
    size_t count;
};

static bool has_come(const void *arg)
{
    const struct counted *c = arg;

    return *c->what >= c->count;
}

void played_await_other(const size_t *what, size_t count)
{
    (void)played_until(has_come, &(struct counted){what, count});
    assert_int_equal(*what, count);
}

void played_await(size_t results)
{
    played_await_other(&played.count, results);
}

void played_settle(void)
{
    for (int i = 0; i < TURNS_SETTLE; i++) {
        played_turn();
        (void)poll(NULL, 0, 1);
    }
}
