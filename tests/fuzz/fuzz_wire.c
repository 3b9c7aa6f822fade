/*
 * Frames between our processes: a body that decodes is exactly what encoding the result gives.
 *
 * The first byte of the input chooses the frame by its place in WIRE_FRAMES. The decoders are
 * strict, every byte of a body has one meaning, so decode and encode must be inverse; a decoder
 * that passed over something would show.
 */
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "check.h"
#include "channel.h"
#include "mem.h"
#include "wire_fields.h"

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

/* One function per frame of the table. */
#define TRY_PLAIN(name, type, rule)                                                                \
    static void try_##name(struct slice body)                                                      \
    {                                                                                              \
        struct wire_##name m;                                                                      \
        if (wire_get_##name(body, &m)) {                                                           \
            wire_put_##name(near_end, &m);                                                         \
            expect(body);                                                                          \
        }                                                                                          \
    }
#define TRY_FD(name, type, rule)                                                                   \
    static void try_##name(struct slice body)                                                      \
    {                                                                                              \
        struct wire_##name m;                                                                      \
        if (wire_get_##name(body, &m)) {                                                           \
            wire_put_##name(near_end, &m, -1);                                                     \
            expect(body);                                                                          \
        }                                                                                          \
    }
#define TRY_ARRAY(name, type, rule, member, element)                                               \
    static void try_##name(struct slice body)                                                      \
    {                                                                                              \
        struct wire_##name m;                                                                      \
        struct wire_##element *array;                                                              \
        if (wire_get_##name(body, &m, &array)) {                                                   \
            wire_put_##name(near_end, &m);                                                         \
            expect(body);                                                                          \
            mem_free(array);                                                                       \
        }                                                                                          \
    }
#define TRY_ARRAY_FD(name, type, rule, member, element)                                            \
    static void try_##name(struct slice body)                                                      \
    {                                                                                              \
        struct wire_##name m;                                                                      \
        struct wire_##element *array;                                                              \
        if (wire_get_##name(body, &m, &array)) {                                                   \
            wire_put_##name(near_end, &m, -1);                                                     \
            expect(body);                                                                          \
            mem_free(array);                                                                       \
        }                                                                                          \
    }
#define TRY(shape, ...) TRY_##shape(__VA_ARGS__)

WIRE_FRAMES(TRY)

#define ENTRY(shape, name, ...) try_##name,

static void (*const tries[])(struct slice body) = {WIRE_FRAMES(ENTRY)};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (near_end == NULL) {
        open_channels();
    }
    if (size > 0) {
        tries[data[0] % (sizeof tries / sizeof tries[0])](slice_of(data + 1, size - 1));
    }
    return 0;
}
