#include "inject_session_private.h"

#include <event2/event.h>
#include <stdio.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "receive_shared.h"

/* Memory of a parsed document, as a multiple of its size. */
#define DOCUMENT_FACTOR 16u

/* Maximum time per turn of the loop for making messages or reading recipients, and number of
 * recipients between two reads of the clock. */
#define TURN_US       (5 * US_PER_MS)
#define RCPTS_AT_ONCE 20u
/* Bytes of a message that are made between two reads of the clock. */
#define BYTES_AT_ONCE 65536u

void inject_call_finish(struct inject_session *s)
{
    struct slice error = slice_of(NULL, 0), fields = error;
    unsigned status = 200;
    char retry[64];

    if (s->refusals_unlogged > 0 && receive_may_log(s->all, RECEIVE_QUOTA_SESSIONS)) {
        log_info("%u more recipients of %s were refused", s->refusals_unlogged, s->text);
    }
    if (s->answer.queued_count > 0) {
        s->good_calls++;
        s->delivered = true;
        admission_delivered(&s->place, clock_mono());
    } else if (s->answer.least_code / 100 == 4) {
        status = s->answer.busy ? 429 : 503;
        error = SLICE("nothing was queued; try again later");
        (void)snprintf(retry, sizeof retry, "Retry-After: %u\r\n",
                       s->retry_s > 0  ? s->retry_s
                       : status == 429 ? BUSY_RETRY_S
                                       : GONE_RETRY_S); /* fits */
        fields = slice_string(retry);
    } else {
        status = s->answer.least_code == 552 ? 413 : 422;
        error = s->key_refused ? SLICE("nothing was queued: Idempotency-Key was the key of another "
                                       "call, of another body, target or envelope")
                               : SLICE("nothing was queued: all was refused");
    }
    inject_answer_with(s, status, error, fields);
}

/* Begins the next message of a document. */
static void begin_message(struct inject_session *s)
{
    struct inject_part *part = inject_part_new(s, s->next_message++, inject_envelope_of_mail);
    struct server_reply reply = inject_part_set_envelope(part);
    uint64_t limit = s->settings->smtp.limits.header_bytes;

    if (reply.code != 0 || part->rcpts == 0) {
        inject_part_end(part, reply);
        return;
    }
    if (limit > 0 && inject_mail_header_least(s->mail) > limit) {
        inject_part_end(part, INTAKE_HEADER_TOO_LARGE); /* no need to make the text */
        return;
    }
    part->text = inject_message_new(s->mail, part->message);
    s->making = part;
}

/* Makes the next piece of the message. */
static void go_on_with_message(struct inject_session *s)
{
    struct inject_part *part = s->making;
    struct server_reply reply = SERVER_ACCEPT;
    enum inject_message_result result;
    struct slice piece;
    uint64_t memory;

    result = inject_message_next(part->text, BYTES_AT_ONCE, &piece);
    memory = inject_message_memory(part->text);
    (void)receive_has_memory(s->all, s->settings, &s->place, memory + 2 * piece.len);
    if (result == INJECT_MESSAGE_TOO_LARGE) {
        reply = (struct server_reply){
            552, "5.3.4",
            SLICE("Message, or a field of 8192 bytes, exceeds fixed limit (message_size_limit)")};
    } else if (!draft_hold(&s->making_account, memory)) {
        reply = NO_MEMORY;
    } else if (inject_mail_is_whole(s->mail)) {
        reply = intake_add(&part->intake, piece);
    } else {
        reply = intake_add_composed(&part->intake, piece);
    }
    if (reply.code != 0 || result == INJECT_MESSAGE_END) {
        inject_part_made(part);
        inject_part_end(part, reply);
    }
}

static void read_document(struct inject_session *s);

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct inject_session *s = arg;

    (void)fd;
    (void)what;
    if (s->phase != INJECT_WORK) {
        return;
    }
    if (s->unread != NULL) {
        read_document(s);
    } else {
        inject_call_go_on(s);
    }
    inject_drive(s);
}

/* Lets other clients have a turn before the call continues. */
void inject_call_go_on_later(struct inject_session *s)
{
    static const struct timeval now = {0};

    if (s->again == NULL) {
        s->again = evtimer_new(s->all->role->base, on_again, s);
        CHECK(s->again != NULL);
    }
    CHECK(event_add(s->again, &now) == 0);
}

bool inject_call_has_more(const struct inject_session *s)
{
    return s->mail != NULL && !s->key_refused && s->next_message < inject_mail_count(s->mail);
}

/* Is the time of this turn over? Updates the clocks, which otherwise change only between turns. */
static bool turn_is_over(struct mono until)
{
    clock_update();
    return mono_reached(until, clock_mono());
}

/* May another message begin? If not, an answer of a process will continue the call. */
static bool may_begin_message(struct inject_session *s)
{
    return s->part_count < INJECT_AHEAD &&
           (s->part_count == 0 || s->all->queue == NULL ||
            channel_waiting(s->all->queue) <= RECEIVE_WAITING_MAX / 4) &&
           (s->settings->filters_apart == NULL || inject_find_slot(s) != NULL);
}

void inject_call_go_on(struct inject_session *s)
{
    struct mono until = mono_after(clock_mono(), TURN_US);

    if (s->unread != NULL) {
        return; /* the next turn continues */
    }
    while (s->making != NULL || inject_call_has_more(s)) {
        if (s->making != NULL) {
            go_on_with_message(s);
        } else if (!may_begin_message(s)) {
            return; /* an answer continues */
        } else {
            begin_message(s);
        }
        if ((s->making != NULL || inject_call_has_more(s)) && turn_is_over(until)) {
            inject_call_go_on_later(s);
            return;
        }
    }
    if (s->part_count > 0) {
        return;
    }
    if (s->all->flow.behind && s->settings->flow_delay_us > 0) {
        inject_wait_for_us(s, INJECT_DELAYED, s->settings->flow_delay_us);
        return;
    }
    inject_call_finish(s);
}

/* Charges the parsed document, and an answer that accepts all its recipients. */
static bool hold_document(struct inject_session *s)
{
    uint64_t answer = 0, messages = inject_mail_count(s->mail);

    if (inject_mail_is_divided(s->mail)) {
        answer = messages * ANSWER_ELEMENT + inject_mail_address_bytes(s->mail);
    }
    return inject_charge(s, inject_mail_memory(s->mail) + answer);
}

/* Refuses a document that could not be read. */
static void refuse_document(struct inject_session *s, enum inject_mail_result result)
{
    if (result == INJECT_MAIL_TOO_LARGE && s->short_of_memory) {
        inject_refuse(s, 429, NO_DOCUMENT_MEMORY);
    } else {
        inject_refuse(s,
                      result == INJECT_MAIL_NO_JSON ? 400
                      : result == INJECT_MAIL_WRONG ? 422
                                                    : 413,
                      buf_cstr(&s->error));
    }
}

/* Continues to read the document, then makes its messages. */
static void read_document(struct inject_session *s)
{
    struct mono until = mono_after(clock_mono(), TURN_US);
    enum inject_mail_result result;
    struct server_reply reply;

    do {
        buf_clear(&s->error);
        result = inject_mail_read(s->unread, RCPTS_AT_ONCE, &s->error);
    } while (result == INJECT_MAIL_MORE && !turn_is_over(until));
    if (result == INJECT_MAIL_MORE) {
        inject_call_go_on_later(s);
        return;
    }
    if (result != INJECT_MAIL_OK) {
        refuse_document(s, result);
        return;
    }
    s->mail = s->unread;
    s->unread = NULL;
    if (!hold_document(s)) {
        inject_refuse(s, 429, NO_DOCUMENT_MEMORY);
        return;
    }
    reply = inject_judge_sender(s, inject_mail_sender(s->mail));
    if (reply.code != 0) {
        inject_refuse_as(s, &reply);
        return;
    }
    inject_call_go_on(s);
}

static void begin_document(struct inject_session *s)
{
    struct inject_mail_limits limits = {.rcpts = s->settings->inject_rcpts,
                                        .message_bytes = s->settings->smtp.limits.message_bytes};
    uint64_t most = DOCUMENT_FACTOR * s->json.bytes + ANSWER_EXTRA, free_bytes;

    json_document_end(&s->json);
    (void)receive_has_memory(s->all, s->settings, &s->place, most);
    free_bytes = s->all->budget.max - s->all->budget.used;
    limits.memory = most < free_bytes ? most : free_bytes;
    s->short_of_memory = free_bytes < most;
    s->unread = inject_mail_new(&s->json, &limits);
    read_document(s);
}

void inject_call_begin(struct inject_session *s)
{
    if (s->sum != NULL) {
        XXH128_canonicalFromHash(&s->sum_bytes, XXH3_128bits_digest(s->sum));
    }
    s->calls++;
    s->arrived = clock_wall();
    inject_log_connect(s);
    inject_wait_for_us(s, INJECT_WORK, s->settings->answer_us);
    s->next_message = 0;
    if (s->kind == BODY_MESSAGE) {
        struct inject_part *part = s->reading;

        s->reading = NULL;
        inject_part_end(part, SERVER_ACCEPT);
        inject_call_go_on(s);
    } else {
        begin_document(s);
    }
}
