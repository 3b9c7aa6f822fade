/*
 * A connection between two of our processes: frames and file descriptors over a Unix stream socket.
 *
 *   frame on the wire:  u32 length of body | u16 type | u16 number of descriptors (0 or 1) | body
 *
 * Sending appends to a buffer. channel_flush_all, called at the end of each turn of a process's
 * loop, writes the buffer, so a busy turn costs one write per neighbour (two if part of it must not
 * wait for the rest). Receiving returns complete frames, whose bodies last until the next
 * channel_next.
 *
 * A callback notifies the owner of possible frames or the end of the other side. The owner then
 * calls channel_next until it returns CHANNEL_EMPTY.
 *
 * Limits: CHANNEL_BODY_MAX bytes in a body, and CHANNEL_OUTPUT_MAX bytes waiting for the socket.
 * The owner should stop sending long before (channel_waiting); a channel above the limit is broken.
 * A descriptor without a frame that announces it also breaks the channel.
 */
#ifndef PROCESS_CHANNEL_H
#define PROCESS_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

struct event_base;
struct channel;

#define CHANNEL_BODY_MAX   (32u << 20)
#define CHANNEL_OUTPUT_MAX (256u << 20)

enum channel_event {
    CHANNEL_EMPTY, /* no complete frame now */
    CHANNEL_FRAME,
    CHANNEL_CLOSED, /* the other side is gone or broke the rules; call channel_free */
};

struct frame {
    uint16_t type;
    struct slice body;
    int fd; /* -1, or a descriptor that the caller owns */
};

typedef void channel_ready(void *arg, struct channel *ch);

/* Takes a connected socket and makes it non-blocking. The loop calls `ready`. */
struct channel *channel_new(struct event_base *base, int fd, channel_ready *ready, void *arg);

/* Makes the channel overwrite the bytes of frames after they were sent or read: they have
 * passwords. */
void channel_keep_secret(struct channel *ch);

/* Closes and frees the channel, also from within `ready`; unwritten bytes are lost. NULL is
 * fine. */
void channel_free(struct channel *ch);

enum channel_event channel_next(struct channel *ch, struct frame *ret_frame);

/* Begins a frame: the caller appends the body to the returned buffer with frame_put_*, then calls
 * channel_end. Until then nothing else must be sent on the channel. */
struct buf *channel_begin(struct channel *ch, uint16_t type);

/* Has the other side closed the channel, even if frames are unread? */
bool channel_is_deserted(const struct channel *ch);

/* Ends the frame. Takes `fd` (or -1), which is closed after it was sent. */
void channel_end(struct channel *ch, int fd);

/* Returns the number of bytes not written yet. */
size_t channel_waiting(const struct channel *ch);

/* Writes the output of all channels of this process, as far as the sockets accept it; the rest
 * follows when they accept more. */
void channel_flush_all(void);

/* Writes all output now; waits at most `timeout_ms` for the other side. Returns false on a failure.
 * For start-up and the last frames of a process. */
bool channel_drain(struct channel *ch, int timeout_ms);

/* Waits at most `timeout_ms` for the next frame. For start-up, before the loop runs. */
enum channel_event channel_wait(struct channel *ch, int timeout_ms, struct frame *ret_frame);

/* Pauses or resumes reading. While paused, no input is read, and the other side's output
 * backs up. */
void channel_pause(struct channel *ch, bool paused);

#endif
