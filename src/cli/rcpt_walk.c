#include "rcpt_walk.h"

#include <sysexits.h>

#include "check.h"
#include "words.h"

void rcpt_walk_init(struct rcpt_walk *w, struct ask *ask, json_t *message, int64_t max)
{
    *w =
        (struct rcpt_walk){.ask = ask, .page = json_incref(message), .left = max, .status = ASK_OK};
}

/* Requests the next page. Returns false if there is none or the query fails. */
static bool next_page(struct rcpt_walk *w)
{
    json_t *after = json_object_get(w->page, "next_recipient"), *question, *page;

    if (w->ask == NULL || after == NULL) {
        return false;
    }
    question = json_pack("{s:s, s:O, s:O}", "op", "show", "id",
                         json_object_get(w->page, "queue_id"), "after_recipient", after);
    CHECK(question != NULL);
    w->status = ask_json(w->ask, question, &page);
    json_decref(question);
    if (w->status == 404) {
        /* the message was delivered meanwhile */
        json_decref(page);
        w->status = ASK_OK;
        return false;
    }
    if (w->status != ASK_OK) {
        w->answer = page;
        return false;
    }
    json_decref(w->page);
    w->page = page;
    w->index = 0;
    return json_array_size(json_object_get(page, "recipients")) > 0;
}

const json_t *rcpt_walk_next(struct rcpt_walk *w)
{
    const json_t *list = json_object_get(w->page, "recipients");
    bool more = w->index < json_array_size(list);

    if (w->left == 0) {
        w->cut = more || json_object_get(w->page, "next_recipient") != NULL;
        return NULL;
    }
    if (!more && !next_page(w)) {
        return NULL;
    }
    w->left--;
    return json_array_get(json_object_get(w->page, "recipients"), w->index++);
}

int rcpt_walk_fini(struct rcpt_walk *w)
{
    json_decref(w->page);
    return w->status == ASK_OK ? EX_OK : ask_failed(w->status, w->answer);
}
