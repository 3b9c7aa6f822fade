#include "operation.h"

#include <string.h>

#include "check.h"
#include "clock.h"
#include "listing.h"
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

void operations_answer(struct queue *q, struct channel *control, const struct wire_ask *ask)
{
    struct wire_answer answer = {.token = ask->token};
    json_t *question, *object = NULL;
    json_error_t error;
    struct buf bytes;
    int fd = -1;

    buf_init(&bytes, WIRE_CONTENT_MAX);
    question = json_loadb(ask->json.ptr, ask->json.len, JSON_REJECT_DUPLICATES, &error);
    if (question == NULL) {
        answer.status = listing_error(400, &object, "not JSON: %s", error.text);
    } else {
        answer.status = answer_to(q, question, ask->token, &bytes, &fd, &object);
    }
    if (answer.status != 0) {
        answer.bytes = buf_slice(&bytes);
        put_answer(control, &answer, object, fd);
    }
    json_decref(question);
    buf_fini(&bytes);
}
