#include "history.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "scheduler.h"

#define KEY_MAX (SCHED_DEST_NAME_MAX + 16)

void history_init(struct history *h)
{
    *h = (struct history){0};
    TAILQ_INIT(&h->recent);
}

static void forget(struct history *h, struct history_site *site)
{
    HASH_DEL(h->sites, site);
    TAILQ_REMOVE(&h->recent, site, recent);
    mem_free(site->key);
    mem_free(site);
}

void history_fini(struct history *h)
{
    struct history_site *site;

    while ((site = TAILQ_FIRST(&h->recent)) != NULL) {
        forget(h, site);
    }
}

static size_t key_of(char key[KEY_MAX], uint32_t transport, struct slice dest)
{
    int len = snprintf(key, KEY_MAX, "%" PRIu32 "/%.*s", transport, SLICE_ARGS(dest));

    CHECK(len > 0 && (size_t)len < KEY_MAX);
    return (size_t)len;
}

static struct history_site *find(const struct history *h, uint32_t transport, struct slice dest)
{
    char key[KEY_MAX];
    size_t len = key_of(key, transport, dest);
    struct history_site *site;

    HASH_FIND(hh, h->sites, key, len, site);
    return site;
}

const struct history_site *history_find(const struct history *h, uint32_t transport,
                                        struct slice dest)
{
    return find(h, transport, dest);
}

/* It becomes the most recent one. */
static struct history_site *need(struct history *h, uint32_t transport, struct slice dest)
{
    struct history_site *site = find(h, transport, dest);
    char key[KEY_MAX];
    size_t len;

    if (site != NULL) {
        TAILQ_REMOVE(&h->recent, site, recent);
    } else {
        if (HASH_COUNT(h->sites) == HISTORY_SITES_MAX) {
            forget(h, TAILQ_LAST(&h->recent, history_recent));
        }
        len = key_of(key, transport, dest);
        site = mem_new(sizeof *site);
        site->key = mem_copy(key, len);
        HASH_ADD_KEYPTR(hh, h->sites, site->key, len, site);
    }
    TAILQ_INSERT_HEAD(&h->recent, site, recent);
    return site;
}

void history_add_step(struct history *h, uint32_t transport, struct slice dest,
                      struct history_step step)
{
    struct history_site *site = need(h, transport, dest);

    site->newest = (site->newest + 1) % HISTORY_STEPS_MAX;
    site->steps[site->newest] = step;
    site->step_count += site->step_count < HISTORY_STEPS_MAX ? 1 : 0;
}

/* ---- replies -------------------------------------------------------------------------------- */

/* The next byte of a reply that tells it from others: not digits, not what stands in <>. -1: end.
 */
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

void history_add_reply(struct history *h, uint32_t transport, struct slice dest, struct wall now,
                       struct slice status, struct slice host, struct slice text)
{
    struct history_site *site = need(h, transport, dest);
    struct history_reply reply = {.first = now, .last = now, .count = 1};
    size_t at;

    keep(reply.status, sizeof reply.status - 1, status);
    keep(reply.host, HISTORY_WORD_MAX, host);
    keep(reply.text, HISTORY_TEXT_MAX, text);
    for (at = 0; at < site->reply_count; at++) {
        const struct history_reply *old = &site->replies[at];

        if (strcmp(old->status, reply.status) == 0 && strcmp(old->host, reply.host) == 0 &&
            alike(old->text, reply.text)) {
            reply.first = old->first;
            reply.count = old->count + 1;
            break;
        }
    }
    if (at == site->reply_count && site->reply_count < HISTORY_REPLIES_MAX) {
        site->reply_count++;
    } else if (at == HISTORY_REPLIES_MAX) {
        at--; /* the oldest goes */
    }
    memmove(&site->replies[1], &site->replies[0], at * sizeof reply);
    site->replies[0] = reply;
}
