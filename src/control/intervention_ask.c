#include "intervention_ask.h"

#include <stdint.h>

#include "buf.h"
#include "check.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "queue.h"
#include "spool_others.h"
#include "spool_shared.h"

/* Overrides in one answer. */
#define PAGE 500

/* Answers with a page of overrides and "next": N; a query with "cursor": N gets the next page. */
unsigned interventions_ask_list(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_int_t cursor = json_integer_value(json_object_get(question, "cursor"));
    const struct intervention **page = mem_array(PAGE, sizeof(struct intervention *));
    size_t count =
        interventions_list(&q->interventions, cursor > 0 ? (uint64_t)cursor : 0, page, PAGE);
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        json_add(list, intervention_json(page[i]));
    }
    *ret_answer = json_pack("{s:o}", "interventions", list);
    if (count == PAGE) {
        json_put(*ret_answer, "next", json_integer((json_int_t)page[PAGE - 1]->number));
    }
    mem_free(page);
    return 200;
}

/* Adds up the counts of all nodes; both lists are in the order of numbers. */
static void merge_list(struct inquiry *in, int node, const char *name, unsigned status,
                       json_t *answer)
{
    const json_t *theirs = json_object_get(answer, "interventions");
    json_t *ours;
    size_t i, at = 0;

    (void)node;
    if (status != 200 || !json_is_array(theirs)) {
        inquiry_add_refusal(in, name, answer);
        return;
    }
    json_array_foreach(json_object_get(in->answer, "interventions"), i, ours)
    {
        json_int_t number = json_integer_value(json_object_get(ours, "number"));
        json_int_t sum = json_integer_value(json_object_get(ours, "recipients"));
        const json_t *it;

        while ((it = json_array_get(theirs, at)) != NULL &&
               json_integer_value(json_object_get(it, "number")) < number) {
            at++;
        }
        if (it != NULL && json_integer_value(json_object_get(it, "number")) == number) {
            json_int_t more = json_integer_value(json_object_get(it, "recipients"));

            if (more > 0 && more <= INT64_MAX - sum) {
                json_put(ours, "recipients", json_integer(sum + more));
            }
        }
    }
}

unsigned interventions_ask_list_spread(struct queue *q, const json_t *question, struct inquiry *in,
                                       json_t **ret_answer)
{
    struct inquiry_item *item;

    (void)interventions_ask_list(q, question, &in->answer);
    if (!spool_has_shared(q->spool)) {
        *ret_answer = json_incref(in->answer);
        return 200;
    }
    in->question = json_copy((json_t *)(uintptr_t)question);
    CHECK(in->question != NULL);
    in->merge = merge_list;
    in->failed = inquiry_some_failed;
    item = inquiry_add(in, (struct msg_id){0});
    inquiry_open_nodes(q, item);
    if (spool_node(q->spool) != SPOOL_NOBODY) {
        item->nodes &= ~(UINT64_C(1) << spool_node(q->spool));
    }
    return 0;
}

unsigned interventions_ask_set(struct queue *q, const json_t *question, uint64_t token,
                               json_t **ret_answer)
{
    return interventions_set(q, question, token, ret_answer);
}

unsigned interventions_ask_cancel(struct queue *q, const json_t *question, uint64_t token,
                                  json_t **ret_answer)
{
    const char *name = json_string_value(json_object_get(question, "id"));

    return name == NULL || name[0] == '\0'
               ? listing_error(400, ret_answer, "the name of an intervention is expected")
               : interventions_cancel(q, name, token, ret_answer);
}

json_t *interventions_ask_counts(const struct queue *q)
{
    json_t *object = json_object();

    for (int v = 0; v < INTERVENTION_VERBS; v++) {
        json_put(object, intervention_verb_name((enum intervention_verb)v),
                 json_integer((json_int_t)interventions_count(&q->interventions,
                                                              (enum intervention_verb)v)));
    }
    return object;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void add_values(struct buf *text, const json_t *values)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)values, name, value)
    {
        (void)buf_addf(text, " %s=%s", name, json_string_value(value)); /* fits: all have limits */
    }
}

static json_t *note(const struct intervention *i)
{
    json_t *object =
        json_pack("{s:s, s:s}", "name", i->name, "verb", intervention_verb_name(i->verb));
    struct buf text;

    buf_init(&text, 65536);
    (void)buf_addf(&text, "%s", i->name);
    switch (i->verb) {
    case INTERVENTION_PAUSE:
        (void)buf_addf(&text, " keeps mail for %s on disk", i->target);
        break;
    case INTERVENTION_BOUNCE:
        (void)buf_addf(&text, " returns mail for %s to its senders", i->target);
        break;
    case INTERVENTION_REDIRECT:
        (void)buf_addf(&text, " sends mail for %s to %s", i->target, i->to);
        break;
    case INTERVENTION_LIMIT:
        (void)buf_addf(&text, " says of %s", i->target);
        add_values(&text, i->values);
        break;
    case INTERVENTION_VERBS:
        UNREACHABLE("their number is no verb");
    }
    if (i->text[0] != '\0') {
        (void)buf_addf(&text, ": %s", i->text);
    }
    json_put(object, "text", listing_text(buf_slice(&text)));
    json_put_time(object, "since", i->since);
    json_put_time(object, "until", i->until);
    buf_fini(&text);
    return object;
}

json_t *intervention_notes(const struct intervention *const *found, size_t count)
{
    json_t *list = count > 0 ? json_array() : NULL;

    for (size_t n = 0; n < count; n++) {
        json_add(list, note(found[n]));
    }
    return list;
}
