/*
 * Reads members of the queue process's answers for the mailq protocols. A member that is missing or
 * has another type is read as empty or 0.
 */
#ifndef ZMAILER_MAILQ_JSON_H
#define ZMAILER_MAILQ_JSON_H

#include <stdint.h>

#include <jansson.h>

#include "mailq_text.h"
#include "slice.h"

/* Returns a text, which lives as long as the object. */
static inline struct slice mailq_json_text(const json_t *object, const char *name)
{
    return slice_string(json_string_value(json_object_get(object, name)));
}

/* Returns a count; a value that is too large becomes the largest count. */
static inline uint64_t mailq_json_count(const json_t *object, const char *name)
{
    double value = json_number_value(json_object_get(object, name));

    return value <= 0 ? 0 : value >= 1e18 ? UINT64_C(1000000000000000000) : (uint64_t)value;
}

static inline uint32_t mailq_json_count32(const json_t *object, const char *name)
{
    uint64_t value = mailq_json_count(object, name);

    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Returns seconds, of a time or a difference. */
static inline int64_t mailq_json_seconds(const json_t *object, const char *name)
{
    double value = json_number_value(json_object_get(object, name));

    return value < -1e15  ? INT64_C(-1000000000000000)
           : value > 1e15 ? INT64_C(1000000000000000)
                          : (int64_t)value;
}

/* Returns the limit that a thread waits for. */
static inline enum mailq_pending mailq_json_pending(const json_t *thread)
{
    struct slice word = mailq_json_text(thread, "pending");

    return slice_equal(word, SLICE("channel"))  ? MAILQ_PENDING_CHANNEL
           : slice_equal(word, SLICE("thread")) ? MAILQ_PENDING_THREAD
           : slice_equal(word, SLICE("global")) ? MAILQ_PENDING_GLOBAL
                                                : MAILQ_PENDING_NONE;
}

/* Returns the name of a message: the path of its control file, or its queue id. */
static inline struct slice mailq_json_path(const json_t *message)
{
    struct slice path = mailq_json_text(message, "path");

    return path.len > 0 ? path : mailq_json_text(message, "queue_id");
}

/* Returns the last reply, whose lines are separated by CR as in this protocol. */
static inline struct slice mailq_json_reply(const json_t *rcpt)
{
    struct slice reply = mailq_json_text(rcpt, "delay_reason");

    return reply.len > 0 ? reply : mailq_json_text(rcpt, "bounce_reason");
}

/* Returns the thread of a waiting recipient, or NULL if the recipient does not wait or has no
 * thread yet. */
static inline const json_t *mailq_json_thread(const json_t *rcpt, const json_t *threads)
{
    const json_t *its = json_object_get(rcpt, "thread");

    return its == NULL ? NULL : json_array_get(threads, (size_t)json_integer_value(its));
}

/* Returns the seconds until the message's recipients of this thread are tried; 0: they are due. */
static inline int64_t mailq_json_wait(const json_t *thread, const json_t *message, int64_t now_s)
{
    int64_t wait = mailq_json_seconds(thread, "wait"), other = 0;

    if (!json_is_true(json_object_get(thread, "retried_together"))) {
        other = mailq_json_seconds(message, "next_attempt") - now_s;
    } else if (wait <= 0) {
        other = mailq_json_seconds(thread, "asked_for_wait") -
                (now_s - mailq_json_seconds(message, "created"));
    }
    wait = other > wait ? other : wait;
    return wait > 0 ? wait : 0;
}

#endif
