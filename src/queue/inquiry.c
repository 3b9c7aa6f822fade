#include "inquiry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "operation.h"
#include "queue.h"

#define PLACES_DIGITS (SPOOL_PARTITIONS_MAX / 4)

static uint64_t bit_of(int node)
{
    return UINT64_C(1) << node;
}

/* ---- items ----------------------------------------------------------------------------------- */

struct inquiry_item *inquiry_add(struct inquiry *in, struct msg_id id)
{
    struct inquiry_item *item;

    if (in->item_count == in->item_size) {
        in->item_size = in->item_size == 0 ? 16 : 2 * in->item_size;
        in->items = mem_resize(in->items, in->item_size, sizeof in->items[0]);
    }
    item = &in->items[in->item_count++];
    *item = (struct inquiry_item){.asked = 0};
    if (id.n != 0) {
        spool_id_print(id, item->id);
    }
    return item;
}

void inquiry_open_all(struct inquiry_item *item)
{
    memset(&item->open, 0xff, sizeof item->open);
}

void inquiry_open_nodes(const struct queue *q, struct inquiry_item *item)
{
    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        if (spool_node_is_up(q->spool, node)) {
            item->nodes |= bit_of(node);
        }
    }
}

bool inquiry_item_is_open(const struct inquiry_item *item)
{
    uint64_t any = item->nodes;

    for (size_t i = 0; i < sizeof item->open.bits / sizeof item->open.bits[0]; i++) {
        any |= item->open.bits[i];
    }
    return any != 0;
}

/* Does the node own an open partition of the item, or must it answer anyway? */
static bool concerns(const struct queue *q, const struct inquiry_item *item, int node)
{
    if ((item->nodes & bit_of(node)) != 0) {
        return true;
    }
    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        if (spool_places_has(&item->open, p) && spool_owner(q->spool, p) == node) {
            return true;
        }
    }
    return false;
}

static bool is_over(const struct inquiry *in)
{
    for (size_t i = 0; i < in->item_count && !in->is_enough; i++) {
        if (inquiry_item_is_open(&in->items[i])) {
            return false;
        }
    }
    return true;
}

/* ---- answers with gaps ----------------------------------------------------------------------- */

void inquiry_add_failed(struct inquiry *in, const char *words)
{
    json_t *failed = json_object_get(in->answer, "failed");

    if (failed == NULL) {
        failed = json_array();
        json_put(in->answer, "failed", failed);
    }
    if (json_array_size(failed) < SPOOL_NODES_MAX) {
        json_add(failed, json_string(words));
    }
}

void inquiry_add_refusal(struct inquiry *in, const char *name, const json_t *answer)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    char words[1024];

    /* may be cut */
    (void)snprintf(words, sizeof words, "node %s: %s", name, error != NULL ? error : "?");
    inquiry_add_failed(in, words);
}

void inquiry_some_failed(struct inquiry *in, const struct inquiry_item *item, const char *words)
{
    (void)item;
    inquiry_add_failed(in, words);
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Drops all data from operation.spread, and all answers. */
static void clear(struct inquiry *in)
{
    json_decref(in->question);
    json_decref(in->answer);
    json_decref(in->notes);
    in->question = in->answer = in->notes = NULL;
    in->item_count = 0;
    in->status = 200;
    in->is_enough = false;
    in->heard = 0;
    memset(in->again, 0, sizeof in->again);
}

static void inquiry_free(struct inquiry *in)
{
    clear(in);
    json_decref(in->put);
    mem_free(in->items);
    mem_free(in);
}

static void end_asks(struct queue *q, struct inquiry *in)
{
    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        if (in->asks[node] != 0) {
            spool_ask_end(q->spool, in->asks[node]);
            in->asks[node] = 0;
        }
    }
}

static void forget(struct queue *q, struct inquiry *in)
{
    end_asks(q, in);
    TAILQ_REMOVE(&q->inquiries.list, in, next);
    q->inquiries.count--;
    inquiry_free(in);
}

/* Answers the request and frees the inquiry; `answer` is taken. */
static void end(struct queue *q, struct inquiry *in, unsigned status, json_t *answer)
{
    operations_answer_later(q, in->token, status, answer);
    forget(q, in);
}

static void finish(struct queue *q, struct inquiry *in)
{
    if (in->finish != NULL) {
        in->finish(in);
    }
    end(q, in, in->status, json_incref(in->answer));
}

/* Schedules another operation.spread. */
static void begin_again(struct queue *q, struct inquiry *in)
{
    end_asks(q, in);
    clear(in);
    in->looks++;
    in->look = 0;
    in->look_at = mono_after(clock_mono(), INQUIRY_AGAIN_US);
}

/* Calls operation.spread again, when due. Returns true if it has succeeded. May free the
 * inquiry. */
static bool look_again(struct queue *q, struct inquiry *in)
{
    json_t *answer = NULL;
    unsigned status;
    bool missed;

    if (!mono_reached(in->look_at, clock_mono())) {
        return false;
    }
    in->look = in->look == 0 ? spool_look_begin(q->spool) : in->look;
    spool_look_within(q->spool, in->look);
    (void)spool_missed(q->spool);
    status = in->operation->spread(q, in->put, in, &answer);
    missed = spool_missed(q->spool);
    spool_look_within(q->spool, 0);
    if (missed && !mono_reached(in->until, clock_mono())) {
        json_decref(answer);
        clear(in);
        return false; /* the spool sends an event when the data is loaded */
    }
    if (status != 0) {
        end(q, in, status, answer);
        return false;
    }
    in->look_at = MONO_NEVER;
    return true;
}

/* Appends the reason why the answer for an item is missing. */
static void say_missing(const struct queue *q, const struct inquiry *in,
                        const struct inquiry_item *item, struct buf *words)
{
    int seconds = (int)(INQUIRY_US / US_PER_S);

    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        if ((item->asked & bit_of(node)) != 0) {
            (void)buf_addf(words,
                           "node %s has not answered for %d s; it may be done there all the same",
                           spool_node_name(q->spool, node), seconds); /* all of these fit */
            return;
        }
        if ((item->nodes & bit_of(node)) != 0 && in->why_not[0] == '\0') {
            (void)buf_addf(words, "node %s can't be asked", spool_node_name(q->spool, node));
            return;
        }
    }
    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        if (spool_places_has(&item->open, p) && spool_owner(q->spool, p) == SPOOL_NOBODY) {
            (void)buf_addf(words, "no node has had its partition, %u, for %" PRId64 " s", p,
                           spool_unowned_us(q->spool, p) / US_PER_S);
            return;
        }
    }
    (void)buf_addf(words, "%s",
                   in->why_not[0] != '\0' ? in->why_not
                                          : "its partition went from node to node meanwhile");
}

static void give_up(struct queue *q, struct inquiry *in)
{
    struct buf words;

    buf_init(&words, 1024);
    for (size_t i = 0; i < in->item_count; i++) {
        if (inquiry_item_is_open(&in->items[i])) {
            buf_clear(&words);
            say_missing(q, in, &in->items[i], &words);
            in->failed(in, &in->items[i], buf_cstr(&words));
        }
    }
    buf_fini(&words);
    finish(q, in);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Returns a question with the items that concern the node; NULL: there are none. */
static json_t *question_for(const struct queue *q, struct inquiry *in, int node)
{
    json_t *question = NULL, *ids = NULL;

    for (size_t i = 0; i < in->item_count; i++) {
        struct inquiry_item *item = &in->items[i];

        if (!inquiry_item_is_open(item) || !concerns(q, item, node)) {
            continue;
        }
        if (question == NULL) {
            question = json_copy(in->question);
            CHECK(question != NULL);
            ids = json_array();
        }
        item->asked |= bit_of(node);
        if (item->id[0] != '\0') {
            json_add(ids, json_string(item->id));
        }
    }
    if (question != NULL && in->lists_ids) {
        json_put(question, "ids", json_incref(ids));
    }
    json_decref(ids);
    return question;
}

static void not_asked(struct inquiry *in, int node)
{
    for (size_t i = 0; i < in->item_count; i++) {
        in->items[i].asked &= ~bit_of(node);
    }
}

/* Sends a question, which is taken. */
static void ask_node(struct queue *q, struct inquiry *in, int node, json_t *question)
{
    uint32_t token = ++q->inquiries.last_token;
    char *text = json_dumps(question, JSON_COMPACT);
    int rc;

    CHECK(text != NULL);
    json_decref(question);
    if (node == spool_node(q->spool)) {
        in->asks[node] = token;
        operations_answer_inner(q, OPERATION_TOKEN_SELF | token, slice_string(text));
    } else {
        rc = spool_ask(q->spool, node, token, slice_string(text));
        if (rc == 0) {
            in->asks[node] = token;
        } else {
            (void)snprintf(in->why_not, sizeof in->why_not, "node %s: %s",
                           spool_node_name(q->spool, node), spool_error(q->spool)); /* may be cut */
            not_asked(in, node);
            in->again[node] = mono_after(clock_mono(), INQUIRY_AGAIN_US);
        }
    }
    free(text);
}

/* Returns the question for the next node that must be asked, from `*node` on; NULL: none. */
static json_t *next_question(const struct queue *q, struct inquiry *in, int *node)
{
    for (; *node < SPOOL_NODES_MAX; ++*node) {
        if (in->asks[*node] == 0 && mono_reached(in->again[*node], clock_mono()) &&
            spool_node_is_up(q->spool, *node)) {
            json_t *question = question_for(q, in, *node);

            if (question != NULL) {
                return question;
            }
            /* The node has nothing that is open. Do not examine all items in each turn. */
            in->again[*node] = mono_after(clock_mono(), INQUIRY_AGAIN_US);
        }
    }
    return NULL;
}

/* Ends the questions to a dead node. Items that only this node could answer have failed. */
static void node_is_down(struct queue *q, struct inquiry *in, int node)
{
    char words[400];

    if (in->asks[node] != 0) {
        spool_ask_end(q->spool, in->asks[node]);
        in->asks[node] = 0;
    }
    (void)snprintf(words, sizeof words, "node %s is down",
                   spool_node_name(q->spool, node)); /* may be cut */
    for (size_t i = 0; i < in->item_count; i++) {
        if ((in->items[i].nodes & bit_of(node)) != 0) {
            in->items[i].nodes &= ~bit_of(node);
            in->failed(in, &in->items[i], words);
        }
    }
    not_asked(in, node);
}

static void look_at_nodes(struct queue *q, struct inquiry *in)
{
    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        if (!spool_node_is_up(q->spool, node)) {
            node_is_down(q, in, node);
        }
    }
}

/* Continues the inquiry. May free it, because this node's own answer may come at once. */
static void go_on(struct queue *q, struct inquiry *in)
{
    json_t *question;

    if (in->look_at.us != MONO_NEVER.us && !look_again(q, in)) {
        return;
    }
    look_at_nodes(q, in);
    for (int node = 0; (question = next_question(q, in, &node)) != NULL; node++) {
        ask_node(q, in, node, question);
    }
    if (is_over(in) && in->is_whole != NULL && in->looks < INQUIRY_LOOKS_MAX && !in->is_whole(in)) {
        begin_again(q, in);
    } else if (is_over(in)) {
        finish(q, in);
    } else if (mono_reached(in->until, clock_mono())) {
        give_up(q, in);
    }
}

unsigned inquiry_begin(struct queue *q, const struct operation *operation, const json_t *question,
                       uint64_t token, json_t **ret_answer)
{
    struct inquiry *in;
    unsigned status;

    if (q->inquiries.count == INQUIRIES_MAX) {
        return listing_error(503, ret_answer, "%d questions to other nodes are open: try again",
                             INQUIRIES_MAX);
    }
    in = mem_new(sizeof *in);
    in->token = token;
    in->operation = operation;
    in->put = json_copy((json_t *)(uintptr_t)question);
    CHECK(in->put != NULL);
    in->status = 200;
    in->look_at = MONO_NEVER;
    in->until = mono_after(clock_mono(), INQUIRY_US);
    status = operation->spread(q, question, in, ret_answer);
    if (status != 0) {
        inquiry_free(in);
        return status;
    }
    TAILQ_INSERT_TAIL(&q->inquiries.list, in, next);
    q->inquiries.count++;
    go_on(q, in);
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Merges an answer, which is borrowed. */
static void take_answer(struct queue *q, struct inquiry *in, int node, unsigned status,
                        const struct spool_places *own, json_t *answer)
{
    in->asks[node] = 0;
    in->heard |= bit_of(node);
    in->merge(in, node, spool_node_name(q->spool, node), status, answer);
    for (size_t i = 0; i < in->item_count; i++) {
        struct inquiry_item *item = &in->items[i];

        if ((item->asked & bit_of(node)) == 0) {
            continue;
        }
        item->nodes &= ~bit_of(node);
        for (size_t k = 0; k < sizeof own->bits / sizeof own->bits[0]; k++) {
            item->open.bits[k] &= ~own->bits[k];
        }
    }
    not_asked(in, node);
    in->again[node] = mono_after(clock_mono(), INQUIRY_AGAIN_US);
}

static struct inquiry *find_ask(const struct queue *q, uint32_t token, int *ret_node)
{
    struct inquiry *in;

    TAILQ_FOREACH(in, &q->inquiries.list, next)
    {
        for (int node = 0; node < SPOOL_NODES_MAX; node++) {
            if (in->asks[node] == token) {
                *ret_node = node;
                return in;
            }
        }
    }
    return NULL;
}

static bool read_places(const json_t *value, struct spool_places *ret)
{
    const char *text = json_string_value(value);

    *ret = (struct spool_places){{0}};
    if (text == NULL || strlen(text) != PLACES_DIGITS ||
        strspn(text, "0123456789abcdef") != PLACES_DIGITS) {
        return false;
    }
    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        char digit = text[p / 4];
        unsigned four = (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);

        if ((four >> p % 4 & 1) != 0) {
            spool_places_add(ret, p);
        }
    }
    return true;
}

static json_t *print_places(const struct spool_places *places)
{
    char text[PLACES_DIGITS + 1] = {0};

    for (unsigned i = 0; i < PLACES_DIGITS; i++) {
        text[i] = "0123456789abcdef"[places->bits[i / 16] >> i % 16 * 4 & 15];
    }
    return json_string(text);
}

/* Handles an answer from another node. */
static void told_answer(struct queue *q, const struct spool_told *told)
{
    json_t *envelope = json_loadb(told->text.len > 0 ? told->text.ptr : "", told->text.len,
                                  JSON_REJECT_DUPLICATES, NULL);
    json_t *answer = json_object_get(envelope, "answer"), *refusal = NULL;
    json_int_t status = json_integer_value(json_object_get(envelope, "status"));
    struct spool_places own;
    struct inquiry *in;
    int node;

    in = find_ask(q, told->token, &node);
    if (in != NULL && node == told->node) {
        if (!read_places(json_object_get(envelope, "own"), &own) || !json_is_object(answer) ||
            status < 200 || status > 599) {
            memset(&own, 0xff, sizeof own); /* do not ask again */
            (void)listing_error(503, &refusal, "its answer makes no sense");
            answer = refusal;
            status = 503;
        }
        take_answer(q, in, node, (unsigned)status, &own, answer);
        go_on(q, in);
    }
    json_decref(refusal);
    json_decref(envelope);
}

void inquiries_turn(struct queue *q)
{
    struct spool_told told;
    struct inquiry *in, *next;

    if (!spool_has_others(q->spool)) {
        return;
    }
    while (spool_next_told(q->spool, &told)) {
        if (told.is_question) {
            operations_answer_inner(q, OPERATION_TOKEN_OTHER | told.token, told.text);
        } else {
            told_answer(q, &told);
        }
    }
    for (in = TAILQ_FIRST(&q->inquiries.list); in != NULL; in = next) {
        next = TAILQ_NEXT(in, next);
        go_on(q, in);
    }
}

/* ---- questions answered here ----------------------------------------------------------------- */

static struct inner_question *find_inner(const struct queue *q, uint64_t token)
{
    struct inner_question *inner;

    TAILQ_FOREACH(inner, &q->inquiries.inner, next)
    {
        if (inner->token == token) {
            return inner;
        }
    }
    return NULL;
}

void inquiry_carried_out(struct queue *q, uint64_t token)
{
    struct inner_question *inner = find_inner(q, token);

    if (inner == NULL) {
        inner = mem_new(sizeof *inner);
        inner->token = token;
        TAILQ_INSERT_TAIL(&q->inquiries.inner, inner, next);
    }
    spool_own_places(q->spool, &inner->own);
}

void inquiry_answer_inner(struct queue *q, uint64_t token, unsigned status, json_t *answer)
{
    struct inner_question *inner = find_inner(q, token);
    struct spool_places own = {{0}};
    struct inquiry *in;
    int node;

    if (inner != NULL) {
        own = inner->own;
        TAILQ_REMOVE(&q->inquiries.inner, inner, next);
        mem_free(inner);
    }
    if ((token & OPERATION_TOKEN_OTHER) != 0) {
        json_t *envelope = json_pack("{s:i, s:o, s:O}", "status", (int)status, "own",
                                     print_places(&own), "answer", answer);
        char *text = json_dumps(envelope, JSON_COMPACT);

        CHECK(text != NULL);
        if (strlen(text) > SPOOL_ANSWER_MAX) {
            free(text);
            json_object_clear(answer);
            json_put(answer, "error", json_string("the answer is too long: ask for less"));
            json_put(envelope, "status", json_integer(503));
            text = json_dumps(envelope, JSON_COMPACT);
            CHECK(text != NULL);
        }
        spool_answer(q->spool, (uint32_t)token, slice_string(text));
        free(text);
        json_decref(envelope);
    } else if ((in = find_ask(q, (uint32_t)token, &node)) != NULL) {
        take_answer(q, in, node, status, &own, answer); /* its next turn continues */
    }
    json_decref(answer);
}

void inquiries_init(struct inquiries *is)
{
    TAILQ_INIT(&is->list);
    TAILQ_INIT(&is->inner);
}

void inquiries_drop(struct queue *q)
{
    struct inquiry *in;

    while ((in = TAILQ_FIRST(&q->inquiries.list)) != NULL) {
        forget(q, in);
    }
}

struct mono inquiries_wake_at(const struct queue *q)
{
    return q->inquiries.count > 0 ? mono_after(clock_mono(), INQUIRY_AGAIN_US) : MONO_NEVER;
}

void inquiries_fini(struct queue *q)
{
    struct inner_question *inner;

    inquiries_drop(q);
    while ((inner = TAILQ_FIRST(&q->inquiries.inner)) != NULL) {
        TAILQ_REMOVE(&q->inquiries.inner, inner, next);
        mem_free(inner);
    }
}
