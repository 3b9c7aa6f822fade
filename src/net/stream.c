#include "stream.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "heap.h"
#include "mem.h"

/*
 * Deadlines. A session moves its deadline with each command, nearly always to a later time, and a
 * deadline is rarely reached. So a stream in the heap is sorted by `heap_at`, which may be earlier
 * than its deadline but never later: a later deadline costs one write to memory. At heap_at the
 * stream is either due or sorted again. The libevent timer relates to the heap in the same way.
 */

/*
 * A deadline counts only after the sockets were read and had no input. This process may have been
 * stopped or busy while the peer was in time; a timeout would then repeat a confirmed delivery. So
 * a due stream waits for another turn of the loop, which first reads all sockets and channels, and
 * waits on while its own socket is ready.
 */

/* Streams checked per call of the timer; the others follow in the next turn. */
#define DEADLINES_PER_TURN 1000
/* Turns that a due stream may wait: enough to read a full socket buffer, and a limit for a peer
 * that never stops sending. */
#define LATE_TURNS_MAX 128

_Static_assert(STREAM_INPUT_MAX < STREAM_READ_MAX, "there is room to receive before input is full");

struct streams {
    struct event_base *base;
    struct heap deadlines; /* elements: struct stream */
    struct event timer;
    struct mono timer_at;   /* MONO_NEVER: not armed */
    struct stream *current; /* stream whose callback runs; NULL after it was freed there */
    bool in_callback;
    LIST_HEAD(late_streams, stream) late;
    LIST_HEAD(, stream) finishing; /* streams in stream_finish */
    size_t finishing_count, finishing_max;
    char space[STREAM_READ_MAX];
};

struct stream {
    struct streams *streams;
    stream_callback *callback;
    void *arg;
    struct event read_event;
    struct event write_event;
    int fd;
    enum stream_state state;
    enum stream_state failed_in;
    int error;
    bool read_armed;
    bool write_armed;
    bool paused;
    bool watching;       /* paused by stream_pause_watching */
    bool ended;          /* the peer sends no more */
    bool untold;         /* broken, but the owner has no event yet */
    bool send_waits;     /* the owner must get STREAM_WRITABLE */
    bool receive_waits;  /* TLS must write before it can read */
    bool receive_again;  /* TLS has an event without a readable socket */
    struct slice shared; /* input in streams->space, during the callback only */
    struct buf in;       /* unconsumed input */
    bool secret;         /* see stream_keep_secret */
    struct tls *tls;
    struct heap_node node;
    struct mono heap_at;
    struct mono deadline;
    unsigned late_turns; /* turns since the deadline; 0: not in streams->late */
    LIST_ENTRY(stream) in_late;
    size_t finish_bytes;
    LIST_ENTRY(stream) next;
};

/* ---- deadlines ------------------------------------------------------------------------------ */

static bool deadline_less(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, const struct stream, node)->heap_at.us <
           CONTAINER_OF(b, const struct stream, node)->heap_at.us;
}

static struct stream *first_deadline(const struct streams *streams)
{
    struct heap_node *top = heap_top(&streams->deadlines);

    return top == NULL ? NULL : CONTAINER_OF(top, struct stream, node);
}

/* Starts the timer for the first deadline, unless it runs early enough. */
static void arm_timer(struct streams *streams)
{
    struct stream *first = first_deadline(streams);
    int64_t delay_us;

    if (first == NULL || streams->timer_at.us <= first->heap_at.us) {
        return;
    }
    delay_us = first->heap_at.us - clock_mono().us;
    if (delay_us < 0) {
        delay_us = 0;
    }
    struct timeval delay = {.tv_sec = delay_us / US_PER_S, .tv_usec = delay_us % US_PER_S};
    CHECK(event_add(&streams->timer, &delay) == 0);
    streams->timer_at = first->heap_at;
}

static void leave_late(struct stream *s)
{
    LIST_REMOVE(s, in_late);
    s->late_turns = 0;
}

void stream_set_deadline(struct stream *s, struct mono deadline)
{
    s->deadline = deadline;
    if (s->late_turns > 0) {
        if (mono_reached(deadline, clock_mono())) {
            return; /* the deadline has passed as well */
        }
        leave_late(s);
    }
    if (!heap_has(&s->node)) {
        if (deadline.us == US_FOREVER) {
            return;
        }
        s->heap_at = deadline;
        heap_add(&s->streams->deadlines, &s->node);
    } else if (deadline.us < s->heap_at.us) {
        s->heap_at = deadline;
        heap_moved(&s->streams->deadlines, &s->node);
    } else {
        return;
    }
    arm_timer(s->streams);
}

/* ---- calling the owner ---------------------------------------------------------------------- */

/* Calls the owner. Returns true if the stream still exists afterwards. */
static bool tell(struct stream *s, enum stream_event event)
{
    struct streams *streams = s->streams;
    bool alive;

    CHECK(!streams->in_callback);
    streams->in_callback = true;
    streams->current = s;
    s->callback(s->arg, s, event);
    alive = streams->current == s;
    streams->current = NULL;
    streams->in_callback = false;
    return alive;
}

static void disarm(struct stream *s)
{
    CHECK(event_del(&s->read_event) == 0);
    CHECK(event_del(&s->write_event) == 0);
    s->read_armed = s->write_armed = false;
}

static void arm_write(struct stream *s)
{
    if (!s->write_armed) {
        CHECK(event_add(&s->write_event, NULL) == 0);
        s->write_armed = true;
    }
}

/* Marks the connection as lost; the owner gets the event from the loop. `error` 0: TLS has the
 * reason. */
static void break_later(struct stream *s, int error)
{
    s->failed_in = s->state;
    s->state = STREAM_STATE_BROKEN;
    s->error = error;
    s->untold = true;
    disarm(s);
    event_active(&s->write_event, EV_WRITE, 0);
}

static void break_now(struct stream *s, int error)
{
    break_later(s, error);
    CHECK(event_del(&s->write_event) == 0);
    s->untold = false;
    (void)tell(s, STREAM_FAILED); /* the stream may be freed */
}

static bool wants_input(const struct stream *s)
{
    return s->state == STREAM_STATE_HANDSHAKE ||
           (s->state == STREAM_STATE_OPEN && (!s->paused || s->watching) && !s->ended &&
            buf_len(&s->in) < STREAM_INPUT_MAX);
}

/* Starts reading if input is wanted. Reading stops only when input arrives: a pause is usually over
 * before, which saves two system calls. */
static void update_reading(struct stream *s)
{
    if (!wants_input(s)) {
        return;
    }
    if (!s->read_armed) {
        CHECK(event_add(&s->read_event, NULL) == 0);
        s->read_armed = true;
    }
    if (s->tls != NULL && s->state == STREAM_STATE_OPEN && !s->receive_waits &&
        (s->receive_again || tls_pending(s->tls))) {
        event_active(&s->read_event, EV_READ, 0);
    }
}

/* ---- receiving ------------------------------------------------------------------------------ */

enum receive_result { RECEIVE_SOME, RECEIVE_NOTHING, RECEIVE_END, RECEIVE_ERROR };

static enum receive_result receive_plain(struct stream *s, char *to, size_t size, size_t *ret_len)
{
    ssize_t n;

    do {
        n = recv(s->fd, to, size, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? RECEIVE_NOTHING : RECEIVE_ERROR;
    }
    *ret_len = (size_t)n;
    return n == 0 ? RECEIVE_END : RECEIVE_SOME;
}

/* Reads all available records, as far as they fit. */
static enum receive_result receive_tls(struct stream *s, char *to, size_t size, size_t *ret_len)
{
    enum tls_result result;
    size_t sum = 0;

    s->receive_again = false;
    do {
        size_t len;

        result = tls_read(s->tls, to + sum, size - sum, &len);
        if (result == TLS_OK) {
            sum += len;
        }
    } while (result == TLS_OK && sum < size && tls_pending(s->tls));
    if (result == TLS_WANT_WRITE) {
        s->receive_waits = true;
        arm_write(s);
    }
    if (sum > 0) {
        s->receive_again = result == TLS_CLOSED || result == TLS_FAILED;
        *ret_len = sum;
        return RECEIVE_SOME;
    }
    switch (result) {
    case TLS_OK:
        UNREACHABLE("success has bytes");
    case TLS_WANT_READ:
    case TLS_WANT_WRITE:
        return RECEIVE_NOTHING;
    case TLS_CLOSED:
        return RECEIVE_END;
    case TLS_FAILED:
        break;
    }
    errno = 0;
    return RECEIVE_ERROR;
}

static enum receive_result receive(struct stream *s, char *to, size_t size, size_t *ret_len)
{
    return s->tls == NULL ? receive_plain(s, to, size, ret_len) : receive_tls(s, to, size, ret_len);
}

/* Receives input after the kept bytes. */
static enum receive_result receive_more(struct stream *s)
{
    size_t room = STREAM_READ_MAX - buf_len(&s->in);
    size_t len = 0;
    char *to = buf_room(&s->in, room);
    enum receive_result result;

    CHECK(to != NULL);
    result = receive(s, to, room, &len);
    if (result == RECEIVE_SOME) {
        buf_grew(&s->in, len);
    } else if (buf_len(&s->in) == 0) {
        buf_fini(&s->in);
    }
    return result;
}

static void keep_rest(struct stream *s)
{
    if (s->shared.len > 0) {
        CHECK(buf_len(&s->in) == 0);
        CHECK(buf_add(&s->in, s->shared)); /* STREAM_READ_MAX limits both */
    }
    s->shared = slice_of(NULL, 0);
}

static void read_input(struct stream *s)
{
    struct streams *streams = s->streams;
    enum receive_result result;
    bool alive, secret = s->secret;
    size_t len = 0;

    if (!wants_input(s)) {
        CHECK(event_del(&s->read_event) == 0);
        s->read_armed = false;
        return;
    }
    if (buf_len(&s->in) > 0) {
        result = receive_more(s);
    } else {
        result = receive(s, s->streams->space, STREAM_READ_MAX, &len);
        s->shared = slice_of(s->streams->space, len);
    }
    switch (result) {
    case RECEIVE_SOME:
        alive = s->paused || tell(s, STREAM_READABLE);
        if (alive) {
            keep_rest(s);
        }
        if (secret) {
            explicit_bzero(streams->space, len);
        }
        if (alive) {
            update_reading(s);
        }
        return;
    case RECEIVE_NOTHING:
        return;
    case RECEIVE_END:
        s->ended = true;
        CHECK(event_del(&s->read_event) == 0);
        s->read_armed = false;
        (void)tell(s, STREAM_END); /* the stream may be freed */
        return;
    case RECEIVE_ERROR:
        break_now(s, errno);
        return;
    }
}

struct slice stream_input(const struct stream *s)
{
    return s->shared.len > 0 ? s->shared : buf_slice(&s->in);
}

void stream_consume(struct stream *s, size_t len)
{
    if (s->shared.len > 0) {
        CHECK(len <= s->shared.len);
        s->shared = slice_skip(s->shared, len);
        return;
    }
    buf_consume(&s->in, len);
    if (buf_len(&s->in) == 0) {
        buf_fini(&s->in); /* no memory while idle */
    }
    update_reading(s);
}

void stream_keep_secret(struct stream *s, bool secret)
{
    s->secret = secret;
    s->in.secret = secret;
}

void stream_pause(struct stream *s, bool paused)
{
    s->paused = paused;
    s->watching = false;
    update_reading(s);
}

void stream_pause_watching(struct stream *s)
{
    s->paused = s->watching = true;
    update_reading(s);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Handles an error of a send. The peer may have sent a reason before it closed (a server's last
 * reply), which is kept, unless the owner uses earlier input, which must not move. */
static void broken_by_send(struct stream *s, int error)
{
    if (stream_input(s).len == 0 && wants_input(s)) {
        (void)receive_more(s); /* the connection is lost anyway */
    }
    break_later(s, error);
}

static size_t send_tls(struct stream *s, struct slice bytes)
{
    size_t sum = 0;

    while (sum < bytes.len) {
        size_t len = 0;

        switch (tls_write(s->tls, slice_skip(bytes, sum), &len)) {
        case TLS_OK:
            sum += len;
            continue;
        case TLS_WANT_WRITE:
            s->send_waits = true;
            arm_write(s);
            return sum;
        case TLS_WANT_READ: /* only with renegotiation, which is off */
        case TLS_CLOSED:
        case TLS_FAILED:
            broken_by_send(s, 0);
            return sum;
        }
    }
    return sum;
}

size_t stream_send(struct stream *s, struct slice bytes)
{
    ssize_t n;

    if (s->state == STREAM_STATE_BROKEN || bytes.len == 0) {
        return 0;
    }
    CHECK(s->state == STREAM_STATE_OPEN);
    if (s->tls != NULL) {
        return send_tls(s, bytes);
    }
    do {
        n = send(s->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        broken_by_send(s, errno);
        return 0;
    }
    if (n < (ssize_t)bytes.len) {
        s->send_waits = true;
        arm_write(s);
    }
    return n < 0 ? 0 : (size_t)n;
}

void stream_flush(struct stream *s, struct buf *out)
{
    buf_consume(out, stream_send(s, buf_slice(out)));
}

void stream_end_output(struct stream *s)
{
    if (s->state != STREAM_STATE_OPEN) {
        return; /* it has already ended */
    }
    if (s->tls != NULL) {
        tls_shutdown(s->tls);
    }
    (void)shutdown(s->fd, SHUT_WR); /* reading shows if the peer is gone */
}

/* ---- connecting, handshakes, events --------------------------------------------------------- */

static void opened(struct stream *s, enum stream_event event)
{
    s->state = STREAM_STATE_OPEN;
    if (tell(s, event)) {
        update_reading(s);
    }
}

static void go_on_connecting(struct stream *s)
{
    int error = 0;
    socklen_t len = sizeof error;

    CHECK(getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    if (error != 0) {
        break_now(s, error);
    } else {
        opened(s, STREAM_CONNECTED);
    }
}

static void go_on_with_handshake(struct stream *s)
{
    switch (tls_handshake(s->tls)) {
    case TLS_OK:
        opened(s, STREAM_SECURED);
        return;
    case TLS_WANT_READ:
        update_reading(s);
        return;
    case TLS_WANT_WRITE:
        arm_write(s);
        return;
    case TLS_CLOSED:
    case TLS_FAILED:
        break_now(s, 0);
        return;
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *s = arg;

    (void)fd;
    (void)what;
    switch (s->state) {
    case STREAM_STATE_OPEN:
        if (!s->receive_waits) {
            read_input(s);
        }
        return;
    case STREAM_STATE_HANDSHAKE:
        go_on_with_handshake(s);
        return;
    case STREAM_STATE_CONNECTING:
    case STREAM_STATE_BROKEN:
        return;
    }
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *s = arg;

    (void)fd;
    (void)what;
    s->write_armed = false;
    switch (s->state) {
    case STREAM_STATE_CONNECTING:
        go_on_connecting(s);
        return;
    case STREAM_STATE_HANDSHAKE:
        go_on_with_handshake(s);
        return;
    case STREAM_STATE_OPEN:
        if (s->receive_waits) {
            s->receive_waits = false;
            s->receive_again = true;
            update_reading(s);
        }
        if (s->send_waits) {
            s->send_waits = false;
            (void)tell(s, STREAM_WRITABLE); /* the stream may be freed */
        }
        return;
    case STREAM_STATE_BROKEN:
        if (s->untold) {
            s->untold = false;
            (void)tell(s, STREAM_FAILED); /* as above */
        }
        return;
    }
}

/* Is the socket ready for an event that the stream waits for? */
static bool is_ready(const struct stream *s)
{
    bool reads = s->read_armed && !s->receive_waits && wants_input(s);
    struct pollfd socket = {
        .fd = s->fd,
        .events = (short)((reads ? POLLIN : 0) | (s->write_armed ? POLLOUT : 0)),
    };

    return s->untold || (socket.events != 0 && poll(&socket, 1, 0) > 0) ||
           (reads && s->tls != NULL && (s->receive_again || tls_pending(s->tls)));
}

/* Reports due deadlines of streams whose sockets were read since. */
static void judge_late(struct streams *streams)
{
    struct late_streams late = streams->late;
    struct stream *s;

    LIST_INIT(&streams->late);
    if (late.lh_first != NULL) {
        late.lh_first->in_late.le_prev = &late.lh_first;
    }
    while ((s = LIST_FIRST(&late)) != NULL) {
        LIST_REMOVE(s, in_late);
        if (s->late_turns < LATE_TURNS_MAX && is_ready(s)) {
            s->late_turns++;
            LIST_INSERT_HEAD(&streams->late, s, in_late);
            continue;
        }
        s->late_turns = 0;
        s->deadline = MONO_NEVER;
        (void)tell(s, STREAM_DEADLINE); /* in no list; may be freed */
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval next_turn;
    struct streams *streams = arg;
    struct stream *s;

    (void)fd;
    (void)what;
    streams->timer_at = MONO_NEVER;
    judge_late(streams);
    for (int i = 0; i < DEADLINES_PER_TURN; i++) {
        s = first_deadline(streams);
        if (s == NULL || !mono_reached(s->heap_at, clock_mono())) {
            break;
        }
        if (s->deadline.us > s->heap_at.us && s->deadline.us != US_FOREVER) {
            s->heap_at = s->deadline;
            heap_moved(&streams->deadlines, &s->node);
            continue;
        }
        heap_remove(&streams->deadlines, &s->node);
        if (s->deadline.us != US_FOREVER) {
            s->late_turns = 1;
            LIST_INSERT_HEAD(&streams->late, s, in_late);
        }
    }
    if (LIST_EMPTY(&streams->late)) {
        arm_timer(streams);
    } else {
        CHECK(event_add(&streams->timer, &next_turn) == 0);
        streams->timer_at.us = 0;
    }
}

void stream_start_tls(struct stream *s, struct tls_context *context, const struct tls_peer *peer)
{
    CHECK(s->tls == NULL);
    s->shared = slice_of(NULL, 0);
    buf_fini(&s->in);
    if (s->state != STREAM_STATE_OPEN) {
        CHECK(s->state == STREAM_STATE_BROKEN); /* the owner will get STREAM_FAILED */
        return;
    }
    s->tls = peer == NULL ? tls_accept(context, s->fd) : tls_connect(context, s->fd, peer);
    s->state = STREAM_STATE_HANDSHAKE;
    event_active(&s->write_event, EV_WRITE, 0);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct streams *streams_new(struct event_base *base)
{
    struct streams *streams = mem_new(sizeof *streams);

    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    streams->base = base;
    streams->finishing_max = STREAM_FINISH_MAX;
    streams->timer_at = MONO_NEVER;
    LIST_INIT(&streams->late);
    LIST_INIT(&streams->finishing);
    heap_init(&streams->deadlines, deadline_less);
    CHECK(evtimer_assign(&streams->timer, base, on_timer, streams) == 0);
    return streams;
}

void streams_free(struct streams *streams)
{
    struct stream *s;

    if (streams == NULL) {
        return;
    }
    while ((s = LIST_FIRST(&streams->finishing)) != NULL) {
        stream_free(s);
    }
    CHECK(event_del(&streams->timer) == 0);
    heap_fini(&streams->deadlines);
    mem_free(streams);
}

void streams_limit_finishing(struct streams *streams, size_t max)
{
    CHECK(max <= STREAM_FINISH_MAX);
    streams->finishing_max = max;
}

void streams_clock_moved(struct streams *streams)
{
    if (LIST_EMPTY(&streams->late)) { /* otherwise the timer runs at once */
        streams->timer_at = MONO_NEVER;
        arm_timer(streams);
    }
}

static struct stream *stream_make(struct streams *streams, int fd, stream_callback *callback,
                                  void *arg)
{
    struct stream *s = mem_new(sizeof *s);

    s->streams = streams;
    s->fd = fd;
    s->callback = callback;
    s->arg = arg;
    s->deadline = MONO_NEVER;
    heap_node_init(&s->node);
    buf_init(&s->in, STREAM_READ_MAX);
    CHECK(event_assign(&s->read_event, streams->base, fd, EV_READ | EV_PERSIST, on_readable, s) ==
          0);
    CHECK(event_assign(&s->write_event, streams->base, fd, EV_WRITE, on_writable, s) == 0);
    return s;
}

/* Disables the delay of small packets: requests and replies are complete when they are sent. */
static void no_delay(int fd)
{
    int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails without TCP */
}

struct stream *stream_new(struct streams *streams, int fd, stream_callback *callback, void *arg)
{
    struct stream *s = stream_make(streams, fd, callback, arg);

    CHECK(evutil_make_socket_nonblocking(fd) == 0);
    no_delay(fd);
    s->state = STREAM_STATE_OPEN;
    update_reading(s);
    return s;
}

struct stream *stream_adopt(struct streams *streams, int fd, stream_callback *callback, void *arg)
{
    struct stream *s = stream_make(streams, fd, callback, arg);

    no_delay(fd);
    s->state = STREAM_STATE_CONNECTING;
    arm_write(s);
    return s;
}

struct stream *stream_connect(struct streams *streams, const struct sockaddr *to, socklen_t to_len,
                              const struct sockaddr *from, socklen_t from_len,
                              stream_callback *callback, void *arg)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct stream *s = stream_make(streams, fd, callback, arg);

    s->state = STREAM_STATE_CONNECTING;
    if (fd < 0) {
        break_later(s, errno);
        return s;
    }
    no_delay(fd);
    if (from != NULL && bind(fd, from, from_len) != 0) {
        break_later(s, errno);
    } else if (connect(fd, to, to_len) == 0) {
        event_active(&s->write_event, EV_WRITE, 0);
    } else if (errno == EINPROGRESS) {
        arm_write(s);
    } else {
        break_later(s, errno);
    }
    return s;
}

void stream_free(struct stream *s)
{
    if (s == NULL) {
        return;
    }
    if (s->streams->current == s) {
        s->streams->current = NULL;
    }
    if (s->finish_bytes > 0) {
        LIST_REMOVE(s, next);
        s->streams->finishing_count--;
    }
    if (heap_has(&s->node)) {
        heap_remove(&s->streams->deadlines, &s->node);
    }
    if (s->late_turns > 0) {
        leave_late(s);
    }
    disarm(s);
    tls_free(s->tls);
    buf_fini(&s->in);
    if (s->fd >= 0) {
        (void)close(s->fd); /* a socket: nothing to lose */
    }
    mem_free(s);
}

static void on_finishing(void *arg, struct stream *s, enum stream_event event)
{
    size_t len = stream_input(s).len;

    (void)arg;
    if (event == STREAM_READABLE && len < s->finish_bytes) {
        s->finish_bytes -= len;
        stream_consume(s, len);
    } else {
        stream_free(s);
    }
}

void stream_finish(struct stream *s)
{
    CHECK(s->finish_bytes == 0);
    if (s->state != STREAM_STATE_OPEN || s->ended ||
        s->streams->finishing_count >= s->streams->finishing_max) {
        stream_end_output(s);
        stream_free(s);
        return;
    }
    stream_set_callback(s, on_finishing, NULL);
    s->finish_bytes = STREAM_FINISH_BYTES;
    LIST_INSERT_HEAD(&s->streams->finishing, s, next);
    s->streams->finishing_count++;
    stream_end_output(s);
    stream_set_deadline(s, mono_after(clock_mono(), STREAM_FINISH_US));
    s->shared = slice_of(NULL, 0);
    buf_fini(&s->in);
    stream_pause(s, false);
}

void stream_set_callback(struct stream *s, stream_callback *callback, void *arg)
{
    s->callback = callback;
    s->arg = arg;
}

const struct tls *stream_tls(const struct stream *s)
{
    return s->tls;
}

enum stream_state stream_state(const struct stream *s)
{
    return s->state;
}

enum stream_state stream_failed_in(const struct stream *s)
{
    CHECK(s->state == STREAM_STATE_BROKEN);
    return s->failed_in;
}

int stream_errno(const struct stream *s)
{
    return s->error;
}

const char *stream_error(const struct stream *s)
{
    if (s->error != 0) {
        return strerror(s->error);
    }
    return s->tls == NULL ? "" : tls_error(s->tls);
}

int stream_fd(const struct stream *s)
{
    return s->fd;
}
