#include "dest_history.h"

#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "destination.h"
#include "mem.h"

void dest_histories_init(struct dest_histories *all)
{
    *all = (struct dest_histories){.count = 0};
    TAILQ_INIT(&all->recent);
}

static void forget(struct dest_histories *all, struct dest_history *h)
{
    CHECK(h->of->history == h);
    h->of->history = NULL;
    TAILQ_REMOVE(&all->recent, h, recent);
    all->count--;
    mem_free(h);
}

void dest_histories_fini(struct dest_histories *all)
{
    struct dest_history *h;

    while ((h = TAILQ_FIRST(&all->recent)) != NULL) {
        forget(all, h);
    }
}

/* Returns the destination's history, which becomes the most recent one. It is added if missing. */
static struct dest_history *need(struct dest_histories *all, struct destination *d)
{
    struct dest_history *h = d->history;

    if (h != NULL) {
        TAILQ_REMOVE(&all->recent, h, recent);
    } else {
        if (all->count == DEST_HISTORIES_MAX) {
            forget(all, TAILQ_LAST(&all->recent, dest_history_list));
        }
        h = d->history = mem_new(sizeof *h);
        h->of = d;
        all->count++;
    }
    TAILQ_INSERT_HEAD(&all->recent, h, recent);
    return h;
}

void dest_history_add_step(struct dest_histories *all, struct destination *d,
                           struct history_step step)
{
    struct dest_history *h = need(all, d);

    h->newest = (h->newest + 1) % HISTORY_STEPS_MAX;
    h->steps[h->newest] = step;
    h->step_count += h->step_count < HISTORY_STEPS_MAX ? 1 : 0;
}

/* ---- replies -------------------------------------------------------------------------------- */

/* Returns the next byte that counts in a comparison of replies, or -1 at the end. Digits and text
 * within <> do not count. */
static int next_telling(const char **at)
{
    while (**at != '\0') {
        char c = *(*at)++;

        if (c == '<') {
            size_t skip = strcspn(*at, ">");
            *at += skip + ((*at)[skip] == '>' ? 1 : 0);
        } else if (!ascii_is_digit(c)) {
            return (unsigned char)c;
        }
    }
    return -1;
}

static bool alike(const char *a, const char *b)
{
    int x, y;

    do {
        x = next_telling(&a);
        y = next_telling(&b);
    } while (x == y && x != -1);
    return x == y;
}

static void keep(char *to, size_t max, struct slice text)
{
    size_t len = text.len < max ? text.len : max;

    if (len > 0) {
        memcpy(to, text.ptr, len);
    }
    to[len] = '\0';
}

void dest_history_add_reply(struct dest_histories *all, struct destination *d, struct wall now,
                            struct slice status, struct slice host, struct slice text)
{
    struct dest_history *h = need(all, d);
    struct history_reply reply = {.first = now, .last = now, .count = 1};
    size_t at;

    keep(reply.status, sizeof reply.status - 1, status);
    keep(reply.host, HISTORY_WORD_MAX, host);
    keep(reply.text, HISTORY_TEXT_MAX, text);
    for (at = 0; at < h->reply_count; at++) {
        const struct history_reply *old = &h->replies[at];

        if (strcmp(old->status, reply.status) == 0 && strcmp(old->host, reply.host) == 0 &&
            alike(old->text, reply.text)) {
            reply.first = old->first;
            reply.count = old->count + 1;
            break;
        }
    }
    if (at == h->reply_count && h->reply_count < HISTORY_REPLIES_MAX) {
        h->reply_count++;
    } else if (at == HISTORY_REPLIES_MAX) {
        at--; /* replace the oldest */
    }
    memmove(&h->replies[1], &h->replies[0], at * sizeof reply);
    h->replies[0] = reply;
}
