/*
 * A connection between two of our processes: frames and file descriptors over a Unix stream socket.
 *
 *   frame on the wire:  u32 length of body | u16 type | u16 number of descriptors (0 or 1) | body
 *
 * Sending appends to a buffer; channel_flush_all, called at the end of each turn of a process's
 * loop, writes what has gathered, so a busy turn costs one write per neighbour (two when some of it
 * should not wait for the rest). Receiving hands out complete frames; their bodies last until the
 * next channel_next.
 *
 * The owner is told by callback when frames may be there or the other side is gone, and then pulls
 * with channel_next until it says CHANNEL_EMPTY.
 *
 * Limits: a body of CHANNEL_BODY_MAX; CHANNEL_OUTPUT_MAX bytes waiting to be written, at which the
 * owner should have stopped long before (channel_waiting); beyond it the channel counts as broken.
 * Descriptors that arrive without a frame that claims them break it, too.
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
    CHANNEL_EMPTY, /* nothing complete at the moment */
    CHANNEL_FRAME,
    CHANNEL_CLOSED, /* the other side is gone, or broke the rules; channel_free it */
};

struct frame {
    uint16_t type;
    struct slice body;
    int fd; /* -1, or a descriptor that is now the caller's */
};

typedef void channel_ready(void *arg, struct channel *ch);

/* Take over a connected socket (made non-blocking). `ready` is called from the loop. */
struct channel *channel_new(struct event_base *base, int fd, channel_ready *ready, void *arg);

/* Passwords pass through it: bytes of frames are overwritten once they were sent or looked at. */
void channel_keep_secret(struct channel *ch);

/* Close and free, also from within `ready`; what was not written is lost. NULL is fine. */
void channel_free(struct channel *ch);

enum channel_event channel_next(struct channel *ch, struct frame *ret_frame);

/* Start a frame: the caller appends the body with frame_put_* to the returned buffer, then calls
 * channel_end. Nothing else may be sent on the channel in between. */
struct buf *channel_begin(struct channel *ch, uint16_t type);

/* Has the other end gone, whatever of its frames is unread? */
bool channel_is_deserted(const struct channel *ch);

/* Finish the frame. `fd` (or -1) is taken: closed once it has been sent. */
void channel_end(struct channel *ch, int fd);

/* Bytes not written yet. */
size_t channel_waiting(const struct channel *ch);

/* Write what waits on every channel of this process as far as the sockets take it; the rest goes
 * when they can take more. */
void channel_flush_all(void);

/* Write everything out now, waiting for the other side at most `timeout_ms`. False when that did
 * not work. For start-up and for the last frames of a process. */
bool channel_drain(struct channel *ch, int timeout_ms);

/* Wait at most `timeout_ms` for the next frame. For start-up, before the loop runs. */
enum channel_event channel_wait(struct channel *ch, int timeout_ms, struct frame *ret_frame);

/* While paused, no input is read and the other side feels it. */
void channel_pause(struct channel *ch, bool paused);

#endif
