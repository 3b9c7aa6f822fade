/*
 * A non-blocking stream socket, TCP or Unix, with TLS when asked for, in a process's event loop.
 *
 *   connect --CONNECTING--> OPEN <--accepted socket       STREAM_CONNECTED on the way to OPEN
 *                           |  ^
 *             stream_start_tls  STREAM_SECURED
 *                           v  |
 *                        HANDSHAKE           anything --STREAM_FAILED--> BROKEN
 *
 * Made for thousands of idle connections and for few system calls. A stream has no buffers of its
 * own to speak of: input is received into a space that all streams share and the owner is called
 * with it; only what the owner leaves is kept. Output stays in the owner's buffer (its protocol
 * engine's) until the socket has taken it. Deadlines of all streams are one heap and one timer, and
 * moving a deadline further away costs nothing.
 *
 * The owner is called from the loop with one event at a time, never from within a function it
 * called, and may do anything in the call, stream_free included. Per call there is at most one
 * receive of STREAM_READ_MAX bytes, so that a fast peer does not starve the others.
 *
 * Back pressure: reading stops while the owner has it paused (or goes on a little, watching), and
 * while STREAM_INPUT_MAX bytes wait that the owner has not consumed.
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
struct streams; /* what the streams of a process share */
struct stream;

/* Received at once. */
#define STREAM_READ_MAX 65536
/* With this much not consumed, reading stops; so at most STREAM_READ_MAX is kept for a stream. */
#define STREAM_INPUT_MAX 16384
/* What a peer may still send, and how long it may take, after stream_finish. */
#define STREAM_FINISH_BYTES 1048576
#define STREAM_FINISH_US    (5 * US_PER_S)
/* Streams that may be in that state at once, unless streams_limit_finishing lowers it; with more,
 * stream_finish closes like stream_free. */
#define STREAM_FINISH_MAX 1000

enum stream_event {
    STREAM_CONNECTED, /* the connection of stream_connect is there */
    STREAM_SECURED,   /* the TLS handshake has succeeded; see stream_tls */
    STREAM_READABLE,  /* there is input that was not there before: stream_input */
    STREAM_WRITABLE,  /* stream_flush or stream_send, which took too little, may take more now */
    STREAM_END,       /* the peer sends no more; stream_input may still hold something, and output
                         is still possible */
    STREAM_DEADLINE,  /* the deadline has passed, and the socket has nothing more: what it is ready
                         for is told first, however late. The deadline is now MONO_NEVER */
    STREAM_FAILED,    /* the connection is lost: stream_error. Only stream_free is of use. Input
                         received before is still in stream_input */
};

typedef void stream_callback(void *arg, struct stream *s, enum stream_event event);

/* Ignores SIGPIPE for the process. */
struct streams *streams_new(struct event_base *base);

/* When there are no streams any more; those that stream_finish has taken over are cut off. */
void streams_free(struct streams *streams);

/* How many streams stream_finish may have taken over at once: 0..STREAM_FINISH_MAX. */
void streams_limit_finishing(struct streams *streams, size_t max);

/* The clocks were moved: look at all deadlines again. */
void streams_clock_moved(struct streams *streams);

/* A stream of a connected socket (taken, made non-blocking), reading. */
struct stream *stream_new(struct streams *streams, int fd, stream_callback *callback, void *arg);

/* A stream of a socket (taken) that does not block and whose connect() has begun elsewhere, or has
 * succeeded: STREAM_CONNECTED or STREAM_FAILED tells. Set a deadline. */
struct stream *stream_adopt(struct streams *streams, int fd, stream_callback *callback, void *arg);

/* Begin to connect to `to`, from `from` unless that is NULL (its port is usually 0). Whatever goes
 * wrong, also at once, is reported as STREAM_FAILED from the loop. Set a deadline. */
struct stream *stream_connect(struct streams *streams, const struct sockaddr *to, socklen_t to_len,
                              const struct sockaddr *from, socklen_t from_len,
                              stream_callback *callback, void *arg);

/* Close at once. If unread input is in the kernel, the peer may not get what was sent last: see
 * stream_finish. NULL is fine. */
void stream_free(struct stream *s);

/* Close when all output has been sent: end the output, read and forget what the peer
 * still sends (see the limits above), then free. The stream is taken. */
void stream_finish(struct stream *s);

/* Change whom to call. */
void stream_set_callback(struct stream *s, stream_callback *callback, void *arg);

/* Received and not consumed. Lasts until stream_consume, stream_start_tls, or the end of the
 * callback. */
struct slice stream_input(const struct stream *s);
void stream_consume(struct stream *s, size_t len);

/* Passwords come on it: what was received is overwritten when it is consumed. And no longer so. */
void stream_keep_secret(struct stream *s, bool secret);

/* Stop reading, and go on: no STREAM_READABLE and no STREAM_END while paused. Input that waits is
 * not announced again by going on; ask stream_input. */
void stream_pause(struct stream *s, bool paused);

/* The same pause for an owner that wants to know when the peer is gone, which only reading shows:
 * input is received and kept, up to STREAM_INPUT_MAX, without a word; STREAM_END and STREAM_FAILED
 * come as always. A peer that sends more than that before its end is not noticed. Ends with
 * stream_pause. */
void stream_pause_watching(struct stream *s);

/* Send from the front of `out` as much as the socket takes, and consume that. If something is left,
 * STREAM_WRITABLE will tell when to try again. On an error STREAM_FAILED follows from the loop. */
void stream_flush(struct stream *s, struct buf *out);

/* The same for bytes that stay where they are: returns how many were taken. With TLS the next call
 * must offer the rest, unchanged, before anything else (see tls_write). */
size_t stream_send(struct stream *s, struct slice bytes);

/* End the output (half-close), when all of it has been sent. */
void stream_end_output(struct stream *s);

/* Begin a TLS handshake as server (peer NULL) or client. Input that has not been consumed is thrown
 * away: it came in the clear. Ends with STREAM_SECURED or STREAM_FAILED. */
void stream_start_tls(struct stream *s, struct tls_context *context, const struct tls_peer *peer);

/* The TLS session, for what tls.h can tell of it; NULL without. */
const struct tls *stream_tls(const struct stream *s);

/* When STREAM_DEADLINE is due; MONO_NEVER (as at first) for never. */
void stream_set_deadline(struct stream *s, struct mono deadline);

enum stream_state {
    STREAM_STATE_CONNECTING,
    STREAM_STATE_OPEN,
    STREAM_STATE_HANDSHAKE,
    STREAM_STATE_BROKEN,
};
enum stream_state stream_state(const struct stream *s);

/* What failed: the state in which it happened, an errno (0 when TLS itself failed), and a text
 * ("Connection refused"). */
enum stream_state stream_failed_in(const struct stream *s);
int stream_errno(const struct stream *s);
const char *stream_error(const struct stream *s);

/* The socket, for getsockname and options. */
int stream_fd(const struct stream *s);

#endif
