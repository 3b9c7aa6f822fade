/*
 * A non-blocking stream socket, TCP or Unix, with optional TLS, in a process's event loop.
 *
 *   connect --CONNECTING--> OPEN <--accepted socket       STREAM_CONNECTED on the way to OPEN
 *                           |  ^
 *             stream_start_tls  STREAM_SECURED
 *                           v  |
 *                        HANDSHAKE           anything --STREAM_FAILED--> BROKEN
 *
 * Designed for thousands of idle connections and for few system calls. A stream has almost no
 * buffers: input is received into a space that all streams share, then the owner is called, and
 * only input that the owner does not consume is kept. Output stays in the owner's buffer (its
 * protocol engine's) until the socket accepts it. The deadlines of all streams are in one heap with
 * one timer; a later deadline costs nothing.
 *
 * The loop calls the owner with one event at a time, never inside a function that the owner called.
 * The owner may call any function, even stream_free. Each call has at most one receive of
 * STREAM_READ_MAX bytes, so that a fast peer does not starve the others.
 *
 * Back pressure: reading stops while the owner has paused it (or a little later, with
 * stream_pause_watching), and while the owner has not consumed STREAM_INPUT_MAX bytes.
 */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "buf.h"
#include "slice.h"
#include "times.h"
#include "tls.h"

struct event_base;
struct streams; /* state shared by the streams of a process */
struct stream;

/* Bytes received at once. */
#define STREAM_READ_MAX 65536
/* Unconsumed bytes at which reading stops; so a stream keeps at most STREAM_READ_MAX. */
#define STREAM_INPUT_MAX 16384
/* Limits after stream_finish: bytes that the peer may still send, and time. */
#define STREAM_FINISH_BYTES 1048576
#define STREAM_FINISH_US    (5 * US_PER_S)
/* Largest number of streams in that state, unless streams_limit_finishing lowers it. At the limit
 * stream_finish closes like stream_free. */
#define STREAM_FINISH_MAX 1000

enum stream_event {
    STREAM_CONNECTED, /* the connection of stream_connect is open */
    STREAM_SECURED,   /* the TLS handshake has succeeded; see stream_tls */
    STREAM_READABLE,  /* there is new input: stream_input */
    STREAM_WRITABLE,  /* stream_flush or stream_send may send more after an incomplete send */
    /* the peer sends no more; stream_input may still have bytes, and output is still possible */
    STREAM_END,
    /* the deadline has passed and the socket has no more events, which come first, however late.
     * The deadline is now MONO_NEVER */
    STREAM_DEADLINE,
    /* the connection is lost: stream_error. Only stream_free makes sense; stream_input still has
     * earlier input */
    STREAM_FAILED,
};

typedef void stream_callback(void *arg, struct stream *s, enum stream_event event);

/* Makes the shared state; ignores SIGPIPE for the process. */
struct streams *streams_new(struct event_base *base);

/* Frees the shared state when there are no streams; cuts off those in stream_finish. */
void streams_free(struct streams *streams);

/* Limits the number of streams in stream_finish: 0..STREAM_FINISH_MAX. */
void streams_limit_finishing(struct streams *streams, size_t max);

/* Checks all deadlines again after a move of the clocks. */
void streams_clock_moved(struct streams *streams);

/* Makes a reading stream of a connected socket, which is taken and made non-blocking. */
struct stream *stream_new(struct streams *streams, int fd, stream_callback *callback, void *arg);

/* Makes a stream of a non-blocking socket (taken) on which another process or function has called
 * connect(). STREAM_CONNECTED or STREAM_FAILED follows. Set a deadline. */
struct stream *stream_adopt(struct streams *streams, int fd, stream_callback *callback, void *arg);

/* Begins to connect to `to`, from `from` unless that is NULL (its port is usually 0). Each failure,
 * even an immediate one, becomes STREAM_FAILED from the loop. Set a deadline. */
struct stream *stream_connect(struct streams *streams, const struct sockaddr *to, socklen_t to_len,
                              const struct sockaddr *from, socklen_t from_len,
                              stream_callback *callback, void *arg);

/* Closes at once. If the kernel has unread input, the last output can be lost: see stream_finish.
 * NULL is fine. */
void stream_free(struct stream *s);

/* Takes the stream and closes it after all output was sent: ends the output, reads and drops the
 * peer's input (within the limits above), then frees the stream. */
void stream_finish(struct stream *s);

/* Changes the owner's callback. */
void stream_set_callback(struct stream *s, stream_callback *callback, void *arg);

/* Returns received and unconsumed bytes. They last until stream_consume, stream_start_tls, or the
 * end of the callback. */
struct slice stream_input(const struct stream *s);
void stream_consume(struct stream *s, size_t len);

/* Makes the stream overwrite consumed input, because it has passwords; or ends that. */
void stream_keep_secret(struct stream *s, bool secret);

/* Pauses or resumes reading: no STREAM_READABLE and no STREAM_END while paused. After a pause,
 * input from before has no new event; call stream_input. */
void stream_pause(struct stream *s, bool paused);

/* Pauses reading, but still notices the peer's end, which only reading shows. Input is received and
 * kept without an event, up to STREAM_INPUT_MAX; STREAM_END and STREAM_FAILED come as always. The
 * end of a peer that sends more before it is not noticed. stream_pause ends this pause. */
void stream_pause_watching(struct stream *s);

/* Sends bytes from the front of `out` as far as the socket accepts them, and consumes them. If some
 * are left, STREAM_WRITABLE follows when the socket accepts more. On an error STREAM_FAILED follows
 * from the loop. */
void stream_flush(struct stream *s, struct buf *out);

/* Sends bytes without consuming them; returns how many were sent. Events are as for stream_flush.
 * With TLS the next call must begin with the rest, unchanged (see tls_write). */
size_t stream_send(struct stream *s, struct slice bytes);

/* Ends the output (half-close), after all of it was sent. */
void stream_end_output(struct stream *s);

/* Begins a TLS handshake as server (peer NULL) or client. Drops unconsumed input, because it was
 * received in clear. Ends with STREAM_SECURED or STREAM_FAILED. */
void stream_start_tls(struct stream *s, struct tls_context *context, const struct tls_peer *peer);

/* Returns the TLS session for queries of tls.h; NULL without TLS. */
const struct tls *stream_tls(const struct stream *s);

/* Sets the time of STREAM_DEADLINE; MONO_NEVER, the initial value, for none. */
void stream_set_deadline(struct stream *s, struct mono deadline);

enum stream_state {
    STREAM_STATE_CONNECTING,
    STREAM_STATE_OPEN,
    STREAM_STATE_HANDSHAKE,
    STREAM_STATE_BROKEN,
};
enum stream_state stream_state(const struct stream *s);

/* Returns the failure: the state in which it happened, an errno (0 for a failure of TLS itself),
 * and a text ("Connection refused"). */
enum stream_state stream_failed_in(const struct stream *s);
int stream_errno(const struct stream *s);
const char *stream_error(const struct stream *s);

/* Returns the socket, for getsockname and options. */
int stream_fd(const struct stream *s);

#endif
