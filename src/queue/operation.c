#include "operation.h"

#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "inquiry.h"
#include "listing.h"
#include "mem.h"
#include "queue.h"

static struct {
    const struct operation *operations;
    size_t count;
} tables[OPERATION_TABLES_MAX];
static size_t table_count;

void operations_register(const struct operation *operations, size_t count)
{
    CHECK(table_count < OPERATION_TABLES_MAX);
    tables[table_count].operations = operations;
    tables[table_count++].count = count;
}

static const struct operation *find(const char *op)
{
    for (size_t i = 0; i < table_count; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            if (strcmp(op, tables[i].operations[j].op) == 0) {
                return &tables[i].operations[j];
            }
        }
    }
    return NULL;
}

/* Answers a question between nodes, for what this node owns. Only operations with `spread` are
 * allowed. */
static unsigned answer_to_node(struct queue *q, const json_t *question, uint64_t token,
                               json_t **ret_answer)
{
    const char *op = json_string_value(json_object_get(question, "op"));
    const struct operation *operation = op != NULL ? find(op) : NULL;

    if (operation == NULL || operation->spread == NULL) {
        return listing_error(404, ret_answer, "no operation between nodes");
    }
    return operation->later != NULL ? operation->later(q, question, token, ret_answer)
                                    : operation->answer(q, question, ret_answer);
}

/* Returns 0 if the answer comes later. */
static unsigned answer_to(struct queue *q, const json_t *question, uint64_t token,
                          struct buf *bytes, int *ret_fd, json_t **ret_answer)
{
    const char *op = json_string_value(json_object_get(question, "op"));
    const struct operation *operation;

    if (operation_is_inner(token)) {
        return answer_to_node(q, question, token, ret_answer);
    }
    if (op == NULL) {
        return listing_error(400, ret_answer, "op: the name of an operation is expected");
    }
    if (listing_knows(op) && !(spool_has_others(q->spool) && listing_is_of_memory(question))) {
        return listing_ask(q->spool, question, q->question_asked, ret_answer);
    }
    operation = find(op);
    if (operation == NULL) {
        return listing_error(404, ret_answer, "%s: no such operation", op);
    }
    if (operation->spread != NULL && spool_has_others(q->spool)) {
        return inquiry_begin(q, operation, question, token, ret_answer);
    }
    if (operation->later != NULL) {
        return operation->later(q, question, token, ret_answer);
    }
    return operation->answer != NULL ? operation->answer(q, question, ret_answer)
                                     : operation->bytes(q, question, bytes, ret_fd, ret_answer);
}

/* Sends an answer; takes `object`. */
static void put_answer(struct channel *control, struct wire_answer *answer, json_t *object, int fd)
{
    char *text = json_dumps(object, JSON_COMPACT);

    CHECK(text != NULL);
    if (strlen(text) > WIRE_JSON_MAX) { /* listings limit themselves to far less */
        free(text);
        json_decref(object);
        answer->status = listing_error(503, &object, "the answer is too long: ask for less");
        text = json_dumps(object, JSON_COMPACT);
        CHECK(text != NULL);
    }
    answer->json = slice_string(text);
    wire_put_answer(control, answer, fd);
    free(text);
    json_decref(object);
}

void operations_answer_later(struct queue *q, uint64_t token, unsigned status, json_t *answer)
{
    struct wire_answer m = {.token = token, .status = status};

    if (operation_is_inner(token)) {
        inquiry_answer_inner(q, token, status, answer);
    } else if (q->control != NULL) {
        put_answer(q->control, &m, answer, -1);
    } else {
        json_decref(answer);
    }
}

/* Returns the snapshot for a new question, so that the answer is up to date. A further page has
 * none (0): cached data is good enough, as it continues the page before. */
static uint64_t begin_look(struct queue *q, const json_t *question)
{
    return json_object_get(question, "after_recipient") != NULL ? 0 : spool_look_begin(q->spool);
}

/* Answers a question. Returns false if data was not loaded and nothing was answered. With `must`,
 * answers with the data that is loaded. */
static bool answer_now(struct queue *q, struct waiting_question *w, struct slice json, bool is_new,
                       bool must)
{
    uint64_t token = w->token;
    struct wire_answer answer = {.token = token};
    json_t *question, *object = NULL;
    json_error_t error;
    struct buf bytes;
    bool missed = false;
    int fd = -1;

    buf_init(&bytes, WIRE_CONTENT_MAX);
    question = json_loadb(json.len > 0 ? json.ptr : "", json.len, JSON_REJECT_DUPLICATES, &error);
    q->question_asked = w->asked;
    w->look = is_new ? begin_look(q, question) : w->look;
    spool_look_within(q->spool, w->look);
    (void)spool_missed(q->spool);
    if (operation_is_inner(token)) {
        inquiry_carried_out(q, token);
    }
    if (question == NULL) {
        answer.status = listing_error(400, &object, "not JSON: %s", error.text);
    } else {
        answer.status = answer_to(q, question, token, &bytes, &fd, &object);
        missed = spool_missed(q->spool) && answer.status != 0 && !must;
    }
    spool_look_within(q->spool, 0);
    if (missed) {
        json_decref(object);
        if (fd >= 0) {
            (void)close(fd);
        }
    } else if (answer.status != 0 && operation_is_inner(token)) {
        inquiry_answer_inner(q, token, answer.status, object);
    } else if (answer.status != 0) {
        answer.bytes = buf_slice(&bytes);
        put_answer(q->control, &answer, object, fd);
    }
    json_decref(question);
    buf_fini(&bytes);
    return !missed;
}

static void answer_or_wait(struct queue *q, uint64_t token, struct slice json)
{
    struct waiting_question now = {.token = token,
                                   .asked = clock_wall(),
                                   .until = mono_after(clock_mono(), OPERATION_WAIT_US)},
                            *w;

    if (answer_now(q, &now, json, true, q->question_count == OPERATIONS_WAIT_MAX)) {
        return;
    }
    w = mem_new(sizeof *w);
    *w = now;
    w->json = mem_copy(json.ptr, json.len);
    w->len = json.len;
    STAILQ_INSERT_TAIL(&q->questions, w, next);
    q->question_count++;
}

void operations_answer(struct queue *q, const struct wire_ask *ask)
{
    json_t *refusal;

    if (operation_is_inner(ask->token)) { /* the control process numbers its tokens from 1 */
        unsigned status = listing_error(400, &refusal, "a token that is none");

        put_answer(q->control, &(struct wire_answer){.token = ask->token, .status = status},
                   refusal, -1);
        return;
    }
    answer_or_wait(q, ask->token, ask->json);
}

void operations_answer_inner(struct queue *q, uint64_t token, struct slice json)
{
    answer_or_wait(q, token, json);
}

static void question_free(struct waiting_question *w)
{
    mem_free(w->json);
    mem_free(w);
}

/* Answers each waiting question again; with `due` only those whose time is over. */
static void look_anew(struct queue *q, bool due)
{
    struct waiting_questions waits = STAILQ_HEAD_INITIALIZER(waits);
    struct waiting_question *w;

    STAILQ_CONCAT(&waits, &q->questions);
    while ((w = STAILQ_FIRST(&waits)) != NULL) {
        bool is_over = mono_reached(w->until, clock_mono());

        STAILQ_REMOVE_HEAD(&waits, next);
        if ((due && !is_over) || ((q->control != NULL || operation_is_inner(w->token)) &&
                                  !answer_now(q, w, slice_of(w->json, w->len), false,
                                              is_over || ++w->looks == OPERATION_LOOKS_MAX))) {
            STAILQ_INSERT_TAIL(&q->questions, w, next);
            continue;
        }
        q->question_count--;
        question_free(w);
    }
}

void operations_at_hand(struct queue *q)
{
    look_anew(q, false);
}

void operations_turn(struct queue *q)
{
    if (mono_reached(operations_wake_at(q), clock_mono())) {
        look_anew(q, true);
    }
}

/* The list is ordered by time of arrival. */
struct mono operations_wake_at(const struct queue *q)
{
    return STAILQ_EMPTY(&q->questions) ? MONO_NEVER : STAILQ_FIRST(&q->questions)->until;
}

void operations_drop(struct queue *q, bool all)
{
    struct waiting_questions waits = STAILQ_HEAD_INITIALIZER(waits);
    struct waiting_question *w;

    STAILQ_CONCAT(&waits, &q->questions);
    while ((w = STAILQ_FIRST(&waits)) != NULL) {
        STAILQ_REMOVE_HEAD(&waits, next);
        if (!all && operation_is_inner(w->token)) {
            STAILQ_INSERT_TAIL(&q->questions, w, next);
        } else {
            q->question_count--;
            question_free(w);
        }
    }
}
