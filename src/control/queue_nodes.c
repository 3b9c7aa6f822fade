#include "queue_nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "inquiry.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "queue.h"
#include "queue_overview.h"
#include "queue_why.h"
#include "spool_others.h"

/* Limits of one node in an answer. */
#define PROBLEMS_MAX 20
#define BUSIEST_MAX  20
/* Busiest destinations of all nodes in an answer. */
#define BUSIEST_SHOWN 10
/* Bytes of a page of messages from one node: far below SPOOL_ANSWER_MAX. */
#define LIST_BYTES (1 << 20)

/* ---- one node's answer ----------------------------------------------------------------------- */

/* Members of a row and of the sums. */
static const char *const counts[] = {
    "active_messages",   "active_recipients",   "waiting",   "in_flight", "active_destinations",
    "dead_destinations", "parked_destinations", "decisions", "commits",   "submitted",
    "delivered",         "deferrals",           "bounced",   "expired",   "reports",
};
#define COUNTS (sizeof counts / sizeof counts[0])

/* Further members: mail in a node's partitions. */
static const char *const stored[] = {"incoming", "deferred", "hold", "corrupt", "bytes"};
#define STORED (sizeof stored / sizeof stored[0])

static const char *name_at(size_t i)
{
    return i < COUNTS ? counts[i] : stored[i - COUNTS];
}

void nodes_put_counts(const struct queue *q, json_t *object)
{
    const struct queue_counts *c = &q->counts;
    struct sched_totals t = sched_totals(q->sched);
    const uint64_t values[COUNTS] = {t.messages,
                                     t.recipients,
                                     t.entries_waiting,
                                     t.entries_busy,
                                     t.destinations,
                                     t.dead_destinations,
                                     t.parked_destinations,
                                     t.decisions,
                                     q->batch.commits,
                                     c->submitted,
                                     c->delivered,
                                     c->deferred,
                                     c->bounced,
                                     c->expired,
                                     c->reports};

    for (size_t i = 0; i < COUNTS; i++) {
        json_put(object, counts[i], json_integer((json_int_t)values[i]));
    }
}

static void put_stored(struct queue *q, json_t *object)
{
    struct spool_totals t = {.incoming = 0};
    uint64_t values[STORED];

    if (spool_totals(q->spool, &t) == 0) {
        values[0] = t.incoming;
        values[1] = t.deferred;
        values[2] = t.hold;
        values[3] = t.corrupt;
        values[4] = t.bytes;
        for (size_t i = 0; i < STORED; i++) {
            json_put(object, stored[i], json_integer((json_int_t)values[i]));
        }
    }
}

unsigned nodes_answer(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_t *own = json_object();

    (void)question; /* has no members */
    nodes_put_counts(q, own);
    put_stored(q, own);
    if (spool_has_others(q->spool)) {
        *ret_answer = own;
    } else {
        *ret_answer =
            json_pack("{s:s, s:i, s:[], s:o, s:o}", "asked", q->conf->cluster_node, "unowned", 0,
                      "nodes", "sums", own, "time", json_seconds(clock_wall().us));
        CHECK(*ret_answer != NULL);
    }
    json_put(*ret_answer, "problems", overview_own_problems(q));
    json_put(*ret_answer, "busiest", why_busiest(q));
    return 200;
}

/* ---- all answers ----------------------------------------------------------------------------- */

/* Returns the row of a node, which has the same index as its item. */
static json_t *row_at(const struct inquiry *in, size_t at)
{
    return json_array_get(json_object_get(in->answer, "nodes"), at);
}

static void say_not_counted(struct inquiry *in, const json_t *row, const char *why)
{
    json_int_t partitions = json_integer_value(json_object_get(row, "partitions"));
    char words[600];

    (void)snprintf(words, sizeof words,
                   "node %s %s: what it has of %" JSON_INTEGER_FORMAT " partitions is not counted",
                   json_string_value(json_object_get(row, "node")), why, partitions); /* cut */
    inquiry_add_failed(in, words);
}

static void node_failed(struct inquiry *in, const struct inquiry_item *item, const char *words)
{
    (void)words; /* unused, because they may be too long */
    say_not_counted(in, row_at(in, (size_t)(item - in->items)), "did not answer");
}

/* Adds a node's numbers to its row and to the sums. */
static void take_counts(struct inquiry *in, json_t *row, const json_t *answer)
{
    json_t *sums = json_object_get(in->answer, "sums");

    for (size_t i = 0; i < COUNTS + STORED; i++) {
        const char *name = name_at(i);
        json_int_t n = json_integer_value(json_object_get(answer, name));
        json_int_t sum = json_integer_value(json_object_get(sums, name));

        if (n >= 0 && n <= INT64_MAX - sum) {
            json_put(row, name, json_integer(n));
            json_put(sums, name, json_integer(sum + n));
        }
    }
    json_put(row, "answered", json_true());
}

static void take_list(struct inquiry *in, const char *list, const char *name, size_t max,
                      const json_t *answer)
{
    json_t *to = json_object_get(in->answer, list), *one;
    size_t i;

    json_array_foreach(json_object_get(answer, list), i, one)
    {
        if (json_is_object(one) && i < max) {
            json_put(one, "node", json_string(name));
            json_add(to, json_incref(one));
        }
    }
}

static void merge_node(struct inquiry *in, int node, const char *name, unsigned status,
                       json_t *answer)
{
    for (size_t i = 0; i < in->item_count; i++) {
        if ((in->items[i].asked >> node & 1) == 0) {
            continue;
        }
        if (status == 200) {
            take_counts(in, row_at(in, i), answer);
            take_list(in, "problems", name, PROBLEMS_MAX, answer);
            take_list(in, "busiest", name, BUSIEST_MAX, answer);
        } else {
            say_not_counted(in, row_at(in, i), "can't count it");
        }
    }
}

static json_int_t busy_of(const json_t *site)
{
    return json_integer_value(json_object_get(site, "busy"));
}

/* Keeps the busiest destinations of all nodes. */
static void finish_nodes(struct inquiry *in)
{
    json_t *all = json_object_get(in->answer, "busiest"), *best = json_array();

    while (json_array_size(all) > 0 && json_array_size(best) < BUSIEST_SHOWN) {
        size_t at = 0;

        for (size_t i = 1; i < json_array_size(all); i++) {
            at = busy_of(json_array_get(all, i)) > busy_of(json_array_get(all, at)) ? i : at;
        }
        json_add(best, json_incref(json_array_get(all, at)));
        (void)json_array_remove(all, at);
    }
    json_put(in->answer, "busiest", best);
    json_put(in->answer, "time", json_seconds(clock_wall().us));
}

static void add_node(struct queue *q, struct inquiry *in, int node)
{
    struct spool_node_facts facts;
    bool is_up = spool_node_is_up(q->spool, node);
    json_t *row;

    if (!spool_node_seen(q->spool, node, &facts)) {
        return;
    }
    row = json_pack("{s:s, s:s, s:b, s:i, s:b}", "node", spool_node_name(q->spool, node), "state",
                    facts.state, "up", is_up, "partitions", (int)facts.partitions, "answered", 0);
    CHECK(row != NULL);
    json_put(row, "silent", json_seconds(facts.silent_us));
    json_add(json_object_get(in->answer, "nodes"), row);
    inquiry_add(in, (struct msg_id){0})->nodes = is_up ? UINT64_C(1) << node : 0;
    if (!is_up && facts.partitions > 0) {
        say_not_counted(in, row, "is down");
    }
}

unsigned nodes_spread(struct queue *q, const json_t *question, struct inquiry *in,
                      json_t **ret_answer)
{
    struct spool_node_measures measures;

    (void)question;
    (void)ret_answer; /* not used: the inquiry always goes on */
    spool_measure_node(q->spool, &measures);
    in->merge = merge_node;
    in->failed = node_failed;
    in->finish = finish_nodes;
    in->until = mono_after(clock_mono(), NODES_US);
    in->question = json_pack("{s:s}", "op", "cluster");
    in->answer =
        json_pack("{s:s, s:i, s:[], s:{}, s:[], s:[]}", "asked", q->conf->cluster_node, "unowned",
                  (int)measures.unowned, "nodes", "sums", "problems", "busiest");
    CHECK(in->question != NULL && in->answer != NULL);
    for (size_t i = 0; i < COUNTS + STORED; i++) {
        json_put(json_object_get(in->answer, "sums"), name_at(i), json_integer(0));
    }
    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        add_node(q, in, node);
    }
    return 0;
}

/* ---- messages in memory ---------------------------------------------------------------------- */

/* Member of the answer that collects the messages by id until its end. */
#define ROWS "rows"
/* Member with the lowest last id of the nodes' pages that are not their last. */
#define CUT "cut"

unsigned nodes_list(struct queue *q, const json_t *question, json_t **ret_answer)
{
    return listing_ask(q->spool, question, q->question_asked, ret_answer);
}

static bool is_active(const json_t *message)
{
    const char *state = json_string_value(json_object_get(message, "queue_name"));

    return state != NULL && strcmp(state, "active") == 0;
}

static bool read_id(const json_t *value, struct msg_id *ret)
{
    const char *text = json_string_value(value);

    return text != NULL && spool_id_parse(slice_string(text), ret);
}

static void merge_messages(struct inquiry *in, int node, const char *name, unsigned status,
                           json_t *answer)
{
    json_t *rows = json_object_get(in->answer, ROWS), *cut, *message;
    struct msg_id id, before;
    size_t i;

    (void)node;
    if (status != 200) {
        inquiry_add_refusal(in, name, answer);
        return;
    }
    json_array_foreach(json_object_get(answer, "messages"), i, message)
    {
        const json_t *given = json_object_get(message, "queue_id");

        if (i < LISTING_PAGE_MAX && read_id(given, &id) &&
            (is_active(message) || json_object_get(rows, json_string_value(given)) == NULL)) {
            json_put(rows, json_string_value(given), json_incref(message));
        }
    }
    if (read_id(json_object_get(answer, "next"), &id)) {
        cut = json_object_get(in->answer, CUT);
        if (cut == NULL || (read_id(cut, &before) && id.n < before.n)) {
            json_put(in->answer, CUT, json_incref(json_object_get(answer, "next")));
        }
    }
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = ((const struct msg_id *)a)->n, y = ((const struct msg_id *)b)->n;

    return x < y ? -1 : x > y;
}

/* Returns the messages up to the cut, in order, at most `max`. *ret_next is the start of the next
 * page, empty if this was the last. */
static json_t *page_of(struct inquiry *in, size_t max, char ret_next[SPOOL_ID_TEXT_MAX])
{
    json_t *rows = json_object_get(in->answer, ROWS), *cut = json_object_get(in->answer, CUT);
    struct msg_id *ids = mem_array(json_object_size(rows) + 1, sizeof *ids), last = {UINT64_MAX};
    json_t *page = json_array(), *message;
    char text[SPOOL_ID_TEXT_MAX];
    size_t count = 0, shown = 0;
    const char *key;

    ret_next[0] = '\0';
    if (read_id(cut, &last)) {
        spool_id_print(last, ret_next);
    }
    json_object_foreach(rows, key, message)
    {
        if (spool_id_parse(slice_string(key), &ids[count]) && ids[count].n <= last.n) {
            count++;
        }
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    for (; shown < count && shown < max; shown++) {
        spool_id_print(ids[shown], text);
        json_add(page, json_incref(json_object_get(rows, text)));
    }
    if (shown < count) {
        spool_id_print(ids[shown - 1], ret_next);
    }
    mem_free(ids);
    return page;
}

static void finish_page(struct inquiry *in, bool counts_only)
{
    size_t max = (size_t)json_integer_value(json_object_get(in->question, "max"));
    char next[SPOOL_ID_TEXT_MAX];
    json_t *page = page_of(in, max, next);

    if (counts_only) {
        json_put(in->answer, "count", json_integer((json_int_t)json_array_size(page)));
        json_decref(page);
    } else {
        json_put(in->answer, "messages", page);
    }
    if (next[0] != '\0') {
        json_put(in->answer, "next", json_string(next));
    }
    (void)json_object_del(in->answer, ROWS);
    (void)json_object_del(in->answer, CUT);
}

static void finish_list(struct inquiry *in)
{
    finish_page(in, false);
}

static void finish_count(struct inquiry *in)
{
    finish_page(in, true);
}

unsigned nodes_list_spread(struct queue *q, const json_t *question, struct inquiry *in,
                           json_t **ret_answer)
{
    static const char *const kept[] = {"filter", "after", "recipients"};
    const json_t *given = json_object_get(question, "max");
    json_int_t max = json_is_integer(given) ? json_integer_value(given) : 100;
    bool counts_only = strcmp(json_string_value(json_object_get(question, "op")), "count") == 0;

    json_t *filter = json_deep_copy(json_object_get(question, "filter")); /* parsing changes it */
    struct listing_filter f;
    const char *error;
    bool is_good = listing_filter(filter, q->question_asked, &f, &error);

    json_decref(filter);
    if (!is_good || max == 0) {
        return nodes_list(q, question, ret_answer); /* answers with an error, or an empty list */
    }
    in->merge = merge_messages;
    in->failed = inquiry_some_failed;
    in->finish = counts_only ? finish_count : finish_list;
    in->answer = json_pack("{s:{}}", ROWS);
    in->question = json_pack("{s:s, s:i}", "op", "list", "bytes", LIST_BYTES);
    CHECK(in->answer != NULL && in->question != NULL);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        json_t *value = json_object_get(question, kept[i]);

        if (value != NULL) {
            json_put(in->question, kept[i], json_copy(value));
        }
    }
    if (counts_only || max > LISTING_PAGE_MAX) {
        max = LISTING_PAGE_MAX;
    }
    json_put(in->question, "max", json_integer(max > 0 ? max : 100));
    if (counts_only) {
        json_put(in->question, "recipients", json_integer(1));
    }
    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        if (spool_node_is_up(q->spool, node)) {
            inquiry_add(in, (struct msg_id){0})->nodes = UINT64_C(1) << node;
        }
    }
    return 0;
}
