#include "shape.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "hash.h"
#include "json.h"
#include "listing.h"
#include "mem.h"

#define STATES    SPOOL_CORRUPT
#define SUM_NAME  (2 * SPOOL_ROUTE_MAX + 2)
#define FIRST_AGE (5 * 60 * US_PER_S)

/* Counts of one name. */
struct sum {
    UT_hash_handle hh;
    uint64_t rcpts[STATES][SHAPE_AGES];
    char name[];
};

static const char *const state_names[STATES] = {"incoming", "deferred", "hold", "corrupt"};

/* ---- the question --------------------------------------------------------------------------- */

static bool read_by(const json_t *question, enum spool_walk_by *ret)
{
    static const char *const names[] = {[SPOOL_WALK_DESTINATION] = "destination",
                                        [SPOOL_WALK_SENDER] = "sender",
                                        [SPOOL_WALK_SENDER_DOMAIN] = "sender-domain",
                                        [SPOOL_WALK_CLASS] = "class"};
    const json_t *by = json_object_get(question, "by");

    *ret = SPOOL_WALK_DESTINATION;
    for (size_t i = 0; by != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (json_is_string(by) && strcmp(json_string_value(by), names[i]) == 0) {
            *ret = (enum spool_walk_by)i;
            return true;
        }
    }
    return by == NULL;
}

/* Formats a cursor, "ID:N". */
static json_t *cursor_json(const struct spool_walk *w)
{
    char text[48];

    (void)snprintf(text, sizeof text, "%llu:%u", (unsigned long long)w->id.n, (unsigned)w->n);
    return json_string(text);
}

static bool read_cursor(const json_t *question, struct spool_walk *ret)
{
    struct slice rest = slice_string(json_string_value(json_object_get(question, "after")));
    unsigned long long id, n;

    *ret = (struct spool_walk){.n = 0};
    if (json_object_get(question, "after") == NULL) {
        return true;
    }
    if (!slice_number(slice_cut(&rest, ':'), INT64_MAX, &id) || rest.ptr == NULL ||
        !slice_number(rest, UINT32_MAX, &n)) {
        return false;
    }
    *ret = (struct spool_walk){.id = {id}, .n = (uint32_t)n};
    return true;
}

/* ---- adding up ------------------------------------------------------------------------------ */

static size_t age_of(struct wall arrived, struct wall now)
{
    int64_t limit = FIRST_AGE;
    size_t age = 0;

    while (age < SHAPE_AGES - 1 && now.us - arrived.us >= limit) {
        limit *= 2;
        age++;
    }
    return age;
}

static void add(struct sum **sums, const struct spool_walked *row, struct wall now)
{
    char name[SUM_NAME + 1];
    size_t len = (size_t)snprintf(name, sizeof name, "%.*s%s%.*s", SLICE_ARGS(row->transport),
                                  row->transport.len > 0 ? "/" : "", SLICE_ARGS(row->key));
    struct sum *sum;

    CHECK(len < sizeof name);
    HASH_FIND(hh, *sums, name, len, sum);
    if (sum == NULL) {
        sum = mem_new(sizeof *sum + len + 1);
        memcpy(sum->name, name, len + 1);
        HASH_ADD_KEYPTR(hh, *sums, sum->name, len, sum);
    }
    sum->rcpts[row->state - 1][age_of(row->arrived, now)] += row->rcpts;
}

static json_t *sum_json(const struct sum *sum)
{
    json_t *object = json_pack("{s:o}", "name", listing_text(slice_string(sum->name)));

    for (size_t state = 0; state < STATES; state++) {
        json_t *ages = json_array();
        uint64_t total = 0;

        for (size_t age = 0; age < SHAPE_AGES; age++) {
            json_add(ages, json_integer((json_int_t)sum->rcpts[state][age]));
            total += sum->rcpts[state][age];
        }
        if (total > 0) {
            json_put(object, state_names[state], ages);
        } else {
            json_decref(ages);
        }
    }
    return object;
}

unsigned shape_ask(struct spool *sp, const json_t *question, struct wall now, json_t **ret_answer)
{
    struct spool_walked *rows;
    struct sum *sums = NULL, *sum, *next;
    enum spool_walk_by by;
    struct spool_walk w;
    size_t count = 0;
    json_t *list;
    int rc;

    if (!read_by(question, &by)) {
        return listing_error(400, ret_answer,
                             "by: destination, sender, sender-domain or class is expected");
    }
    if (!read_cursor(question, &w)) {
        return listing_error(400, ret_answer, "after: the cursor of an answer is expected");
    }
    rows = mem_array(SHAPE_PIECE, sizeof *rows);
    rc = spool_walk(sp, by, &w, SHAPE_PIECE, rows, &count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        add(&sums, &rows[i], now);
    }
    mem_free(rows);
    if (rc != 0) {
        return listing_error(rc == -ENOTSUP ? 409 : 503, ret_answer, "%s", spool_error(sp));
    }
    list = json_array();
    HASH_ITER(hh, sums, sum, next)
    {
        json_add(list, sum_json(sum));
        HASH_DEL(sums, sum);
        mem_free(sum);
    }
    *ret_answer = json_pack("{s:o}", "rows", list);
    if (!w.ended) {
        json_put(*ret_answer, "next", cursor_json(&w));
    }
    return 200;
}
