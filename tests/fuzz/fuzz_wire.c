/*
 * Frames between our processes: a body that decodes is exactly what encoding the result gives.
 *
 * The first byte of the input chooses the type. The decoders are strict, every byte of a body has
 * one meaning, so decode and encode must be inverse; a decoder that passed over something would
 * show.
 */
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "check.h"
#include "channel.h"
#include "mem.h"
#include "wire.h"

static struct channel *near_end, *far_end;

static void ready(void *arg, struct channel *ch)
{
    (void)arg;
    (void)ch;
}

static void open_channels(void)
{
    struct event_base *base = event_base_new();
    int fds[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    near_end = channel_new(base, fds[0], ready, NULL);
    far_end = channel_new(base, fds[1], ready, NULL);
}

/* What was put on the near end comes out of the far end with the same body. */
static void expect(struct slice body)
{
    struct frame frame;
    enum channel_event event = CHANNEL_EMPTY;

    for (int i = 0; i < 100000 && event == CHANNEL_EMPTY; i++) {
        channel_flush_all();
        event = channel_next(far_end, &frame);
    }
    CHECK(event == CHANNEL_FRAME);
    CHECK(slice_equal(frame.body, body));
}

/* One line per type that has no array. */
#define TRY(name)                                                                                  \
    do {                                                                                           \
        struct wire_##name m;                                                                      \
        if (wire_get_##name(body, &m)) {                                                           \
            wire_put_##name(near_end, &m);                                                         \
            expect(body);                                                                          \
        }                                                                                          \
    } while (0)

/* And with a descriptor that may come along. */
#define TRY_FD(name)                                                                               \
    do {                                                                                           \
        struct wire_##name m;                                                                      \
        if (wire_get_##name(body, &m)) {                                                           \
            wire_put_##name(near_end, &m, -1);                                                     \
            expect(body);                                                                          \
        }                                                                                          \
    } while (0)

static void try_arrays(unsigned which, struct slice body)
{
    struct wire_conf conf;
    struct wire_file *files;
    struct wire_submit submit;
    struct wire_rcpt *rcpts;
    struct wire_deliver deliver;
    struct wire_deliver_rcpt *deliver_rcpts;
    struct wire_result result;
    struct wire_verdict *verdicts;

    if (which == 0 && wire_get_conf(body, &conf, &files)) {
        wire_put_conf(near_end, &conf);
        expect(body);
        mem_free(files);
    } else if (which == 1 && wire_get_submit(body, &submit, &rcpts)) {
        wire_put_submit(near_end, &submit, -1);
        expect(body);
        mem_free(rcpts);
    } else if (which == 2 && wire_get_deliver(body, &deliver, &deliver_rcpts)) {
        wire_put_deliver(near_end, &deliver, -1);
        expect(body);
        mem_free(deliver_rcpts);
    } else if (which == 3 && wire_get_result(body, &result, &verdicts)) {
        wire_put_result(near_end, &result);
        expect(body);
        mem_free(verdicts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice body;

    if (near_end == NULL) {
        open_channels();
    }
    if (size == 0) {
        return 0;
    }
    body = slice_of(data + 1, size - 1);
    switch (data[0] % 17) {
    case 4:
        TRY_FD(listener);
        break;
    case 5:
        TRY_FD(peer);
        break;
    case 6:
        TRY(reloaded);
        break;
    case 7:
        TRY(submit_done);
        break;
    case 8:
        TRY(etrn);
        break;
    case 9:
        TRY(etrn_done);
        break;
    case 10:
        TRY(flow);
        break;
    case 11:
        TRY_FD(content);
        break;
    case 12:
        TRY(forget);
        break;
    case 13:
        TRY(ask);
        break;
    case 14:
        TRY_FD(answer);
        break;
    case 15:
        TRY(agent);
        break;
    default:
        try_arrays(data[0] % 17, body);
        break;
    }
    return 0;
}
