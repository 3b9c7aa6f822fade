#include "message_json.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "words.h"

/* Members of postqueue, in its order. Its `recipients` are last here, because they are written as
 * they are read. */
static const char *const first[] = {"queue_name",   "queue_id",      "arrival_time",
                                    "message_size", "forced_expire", "sender"};

void message_json_begin(FILE *out, const json_t *message)
{
    json_t *head = json_object();
    char *text;

    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        json_t *value = json_object_get(message, first[i]);

        if (value != NULL) {
            CHECK(json_object_set(head, first[i], value) == 0);
        }
    }
    CHECK(json_object_update_missing(head, (json_t *)(uintptr_t)message) == 0);
    if (strcmp(member_text(head, "sender"), "") == 0 && json_object_get(head, "sender") != NULL) {
        CHECK(json_object_set_new(head, "sender", json_string("MAILER-DAEMON")) == 0);
    }
    (void)json_object_del(head, "recipients");     /* may be missing */
    (void)json_object_del(head, "next_recipient"); /* may be missing */
    text = json_dumps(head, JSON_COMPACT | JSON_ENSURE_ASCII);
    CHECK(text != NULL && strlen(text) > 2); /* the object has at least an id */
    fprintf(out, "%.*s,\"recipients\":[", (int)strlen(text) - 1, text);
    free(text);
    json_decref(head);
}

void message_json_rcpts(FILE *out, struct rcpt_walk *w)
{
    const char *separator = "";
    const json_t *rcpt;

    while ((rcpt = rcpt_walk_next(w)) != NULL) {
        fputs(separator, out);
        (void)json_dumpf(rcpt, out, JSON_COMPACT | JSON_ENSURE_ASCII); /* checked at the end */
        separator = ",";
    }
}

void message_json_end(FILE *out)
{
    fputs("]}\n", out);
}
