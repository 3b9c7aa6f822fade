#include "operation.h"

#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
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

/* 0: the answer comes later. */
static unsigned answer_to(struct queue *q, const json_t *question, uint64_t token,
                          struct buf *bytes, int *ret_fd, json_t **ret_answer)
{
    const char *op = json_string_value(json_object_get(question, "op"));
    const struct operation *operation;

    if (op == NULL) {
        return listing_error(400, ret_answer, "op: the name of an operation is expected");
    }
    if (listing_knows(op)) {
        return listing_ask(q->spool, question, clock_wall(), ret_answer);
    }
    operation = find(op);
    if (operation == NULL) {
        return listing_error(404, ret_answer, "%s: no such operation", op);
    }
    if (operation->later != NULL) {
        return operation->later(q, question, token, ret_answer);
    }
    return operation->answer != NULL ? operation->answer(q, question, ret_answer)
                                     : operation->bytes(q, question, bytes, ret_fd, ret_answer);
}

/* `object` is taken. */
static void put_answer(struct channel *control, struct wire_answer *answer, json_t *object, int fd)
{
    char *text = json_dumps(object, JSON_COMPACT);

    CHECK(text != NULL);
    if (strlen(text) > WIRE_JSON_MAX) { /* listings bound themselves far below */
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

    if (q->control != NULL) {
        put_answer(q->control, &m, answer, -1);
    } else {
        json_decref(answer);
    }
}

/* False: something was not at hand, and nothing is answered yet. */
static bool answer_now(struct queue *q, struct channel *control, uint64_t token, struct slice json,
                       bool must)
{
    struct wire_answer answer = {.token = token};
    json_t *question, *object = NULL;
    json_error_t error;
    struct buf bytes;
    bool missed = false;
    int fd = -1;

    buf_init(&bytes, WIRE_CONTENT_MAX);
    question = json_loadb(json.ptr, json.len, JSON_REJECT_DUPLICATES, &error);
    (void)spool_missed(q->spool);
    if (question == NULL) {
        answer.status = listing_error(400, &object, "not JSON: %s", error.text);
    } else {
        answer.status = answer_to(q, question, token, &bytes, &fd, &object);
        missed = spool_missed(q->spool) && answer.status != 0 && !must;
    }
    if (missed) {
        json_decref(object);
        if (fd >= 0) {
            (void)close(fd);
        }
    } else if (answer.status != 0) {
        answer.bytes = buf_slice(&bytes);
        put_answer(control, &answer, object, fd);
    }
    json_decref(question);
    buf_fini(&bytes);
    return !missed;
}

void operations_answer(struct queue *q, struct channel *control, const struct wire_ask *ask)
{
    struct waiting_question *w;

    if (answer_now(q, control, ask->token, ask->json, q->question_count == OPERATIONS_WAIT_MAX)) {
        return;
    }
    w = mem_new(sizeof *w);
    w->token = ask->token;
    w->json = mem_copy(ask->json.ptr, ask->json.len);
    w->len = ask->json.len;
    STAILQ_INSERT_TAIL(&q->questions, w, next);
    q->question_count++;
}

static void question_free(struct waiting_question *w)
{
    mem_free(w->json);
    mem_free(w);
}

void operations_at_hand(struct queue *q)
{
    struct waiting_questions waits = STAILQ_HEAD_INITIALIZER(waits);
    struct waiting_question *w;

    STAILQ_CONCAT(&waits, &q->questions);
    while ((w = STAILQ_FIRST(&waits)) != NULL) {
        STAILQ_REMOVE_HEAD(&waits, next);
        if (q->control != NULL && !answer_now(q, q->control, w->token, slice_of(w->json, w->len),
                                              ++w->looks == OPERATION_LOOKS_MAX)) {
            STAILQ_INSERT_TAIL(&q->questions, w, next);
            continue;
        }
        q->question_count--;
        question_free(w);
    }
}

void operations_end(struct waiting_questions *waits)
{
    struct waiting_question *w;

    while ((w = STAILQ_FIRST(waits)) != NULL) {
        STAILQ_REMOVE_HEAD(waits, next);
        question_free(w);
    }
}
