/*
 * Searches for messages. Active messages are in memory. Messages that wait on disk are not, so a
 * list scans the directories, a bounded piece per call, and each message that it finds can be read
 * and changed for a while (postfix_known.c). The position of a list is kept until the list is
 * continued, ends, or was not used for a while (struct store_list). So a list of a million messages
 * needs as much memory as one of a hundred.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "destination_list.h"
#include "mem.h"
#include "postfix_store.h"

#define PAGE 100 /* number of recipients that are read at once */
/* Limits of one call: names, files that are read, and directory entries per name. */
#define LIST_NAMES   20000
#define LIST_FILES   1000
#define LIST_ENTRIES 100
/* Limit of messages that one piece of a walk reads. */
#define WALK_MESSAGES 200
/* Age above which the count of a large queue is renewed. */
#define COUNT_AGAIN_US (60 * US_PER_S)

/* ---- filters -------------------------------------------------------------------------------- */

static bool address_matches(struct slice address, struct slice wanted)
{
    if (wanted.len > 0 && wanted.ptr[0] == '@') {
        return slice_equal_nocase(spool_domain(address), slice_skip(wanted, 1));
    }
    return slice_equal_nocase(address, wanted);
}

/* Does the recipient match "transport/nexthop", "nexthop", or its domain? */
static bool destination_matches(const struct spool_rcpt *r, struct slice wanted)
{
    size_t slash = slice_find(wanted, '/');

    return slice_equal_nocase(spool_domain(r->address), wanted) ||
           slice_equal_nocase(r->nexthop, wanted) ||
           (slash < wanted.len && r->transport.len == slash &&
            slice_equal_nocase(r->transport, slice_of(wanted.ptr, slash)) &&
            slice_equal_nocase(r->nexthop, slice_skip(wanted, slash + 1)));
}

static bool rcpts_match(struct spool *sp, struct msg_id id, const struct spool_filter *f)
{
    bool rcpt = f->rcpt.len == 0, destination = f->destination.len == 0;
    struct spool_rcpt page[PAGE];
    size_t count = PAGE;
    uint32_t after = 0;

    while ((!rcpt || !destination) && count == PAGE &&
           sp->engine->read_rcpts(sp, id, after, true, PAGE, page, &count) == 0) {
        for (size_t i = 0; i < count; i++) {
            rcpt = rcpt || address_matches(page[i].address, f->rcpt);
            destination = destination || destination_matches(&page[i], f->destination);
            after = page[i].n;
        }
    }
    return rcpt && destination;
}

static bool matches(struct spool *sp, struct msg_id id, const struct spool_filter *f)
{
    struct spool_message m;

    return sp->engine->read(sp, id, &m) == 0 &&
           (f->states == 0 || (f->states & 1U << m.state) != 0) && m.size >= f->size_min &&
           (f->size_max == 0 || m.size <= f->size_max) &&
           (f->arrived_before.us == 0 || m.arrived.us < f->arrived_before.us) &&
           (f->arrived_after.us == 0 || m.arrived.us > f->arrived_after.us) &&
           f->class_name.len == 0 &&
           (f->sender.len == 0 ||
            (slice_equal(f->sender, SLICE("<>")) ? m.sender.len == 0
                                                 : address_matches(m.sender, f->sender))) &&
           rcpts_match(sp, id, f);
}

static int by_number(const void *a, const void *b)
{
    const struct msg_id *x = a, *y = b;

    return x->n < y->n ? -1 : x->n > y->n;
}

/* Finds the message with a queue id. */
static size_t find_name(struct postfix_store *s, const struct spool_filter *f,
                        struct msg_id *ret_id)
{
    struct spool_message unused;
    struct store_known *k = NULL;
    struct store_message *m;

    HASH_FIND(by_name, s->by_name, f->name.ptr, f->name.len, m);
    if (m == NULL && queue_id_ok(f->name)) {
        k = known_by_name(s, f->name);
    }
    if (m == NULL && k == NULL) {
        return 0;
    }
    *ret_id = m != NULL ? m->id : k->id;
    return matches(&s->base, *ret_id, f) ||
           (k != NULL && known_read(s, k, &unused) == -EBADMSG); /* a damaged message matches,
                                                                  * too */
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Queues that a list scans, in this order, after the active messages. A change of the listed mail
 * moves it to an earlier queue, so that it is not found twice. */
static const enum queue_dir_name places[] = {QUEUE_DIR_INCOMING, QUEUE_DIR_DEFERRED, QUEUE_DIR_HOLD,
                                             QUEUE_DIR_CORRUPT};
static const enum spool_state states[] = {SPOOL_INCOMING, SPOOL_DEFERRED, SPOOL_HOLD,
                                          SPOOL_CORRUPT};
#define PLACES (sizeof places / sizeof places[0])

static void list_close(struct store_list *list)
{
    if (list->is_open) {
        queue_scan_end(&list->look);
        mem_free(list->page);
    }
    *list = (struct store_list){.is_open = false};
}

void search_fini(struct postfix_store *s)
{
    for (size_t i = 0; i < STORE_LISTS; i++) {
        list_close(&s->lists[i]);
    }
    for (unsigned i = 0; i < STORE_TALLIES; i++) {
        if (s->tallies[i].running) {
            queue_scan_end(&s->tallies[i].scan);
        }
    }
}

void search_forget_old(struct postfix_store *s)
{
    for (size_t i = 0; i < STORE_LISTS; i++) {
        if (s->lists[i].used.us < s->now.us - STORE_LIST_US ||
            s->lists[i].used.us > s->now.us + STORE_LIST_US) {
            list_close(&s->lists[i]);
        }
    }
}

/* Opens a new list, which replaces the least recently used one. */
static struct store_list *list_new(struct postfix_store *s)
{
    struct store_list *list = &s->lists[0];

    for (size_t i = 1; i < STORE_LISTS; i++) {
        if (s->lists[i].turn < list->turn) {
            list = &s->lists[i];
        }
    }
    list_close(list);
    list->is_open = true;
    return list;
}

/* Finds the list that has returned this id, in its last page. *ret_from is the index after that id.
 * NULL: the list was dropped. */
static struct store_list *list_find(struct postfix_store *s, struct msg_id after, size_t *ret_from)
{
    for (size_t i = 0; i < STORE_LISTS; i++) {
        struct store_list *list = &s->lists[i];

        if (list->is_open && list->at.n == after.n) {
            *ret_from = list->page_count;
            return list;
        }
        for (size_t n = 0; list->is_open && n < list->page_count; n++) {
            if (list->page[n].n == after.n) {
                *ret_from = n + 1;
                return list;
            }
        }
    }
    return NULL;
}

/* Limits and results of one call. */
struct page {
    const struct spool_filter *f;
    bool counts; /* only counts */
    size_t max;
    unsigned names, files; /* numbers of names and files that may still be read */
    struct msg_id *ids;    /* NULL if it only counts */
    size_t count;
};

static bool is_full(const struct page *p)
{
    return p->count >= p->max || p->names == 0 || p->files == 0;
}

static void found(struct page *p, struct msg_id id)
{
    if (p->ids != NULL) {
        p->ids[p->count] = id;
    }
    p->count++;
}

static void look_at_active(struct postfix_store *s, struct store_list *list, struct page *p)
{
    struct msg_id *all = mem_array(HASH_CNT(by_id, s->by_id) + 1, sizeof *all);
    struct store_message *m, *next;
    size_t count = 0;

    HASH_ITER(by_id, s->by_id, m, next)
    {
        if (m->id.n > list->active_at.n) {
            all[count++] = m->id;
        }
    }
    qsort(all, count, sizeof *all, by_number);
    for (size_t i = 0; i < count && p->count < p->max; i++) {
        list->active_at = all[i];
        if (matches(&s->base, all[i], p->f)) {
            found(p, all[i]);
        }
    }
    mem_free(all);
    if (p->count < p->max) {
        list->is_on_disk = true;
        queue_scan_begin(&list->look, &s->dir, places[0]);
    }
}

/* Does a name alone prove that the message matches? Not in incoming/, where a file may be
 * incomplete. */
static bool name_is_enough(const struct spool_filter *f, enum queue_dir_name place)
{
    return place != QUEUE_DIR_INCOMING && f->sender.len == 0 && f->rcpt.len == 0 &&
           f->destination.len == 0 && f->class_name.len == 0 && f->size_min == 0 &&
           f->size_max == 0 && f->arrived_before.us == 0 && f->arrived_after.us == 0;
}

static void look_at_file(struct postfix_store *s, struct store_list *list, struct page *p,
                         struct slice name)
{
    struct msg_id id;

    if (store_has(s, name)) {
        return; /* it is active, and was listed as such */
    }
    if (p->counts && name_is_enough(p->f, places[list->place])) {
        p->count++;
        return;
    }
    p->files--;
    id = known_have(s, name)->id;
    if (matches(&s->base, id, p->f)) {
        found(p, id);
    }
}

/* Continues the scan; true at the end of all queues. */
static bool look_at_disk(struct postfix_store *s, struct store_list *list, struct page *p)
{
    char name[QUEUE_ID_MAX + 1];

    while (list->place < PLACES && !is_full(p)) {
        bool wanted = p->f->states == 0 || (p->f->states & 1U << states[list->place]) != 0;
        enum queue_scan_found got = QUEUE_SCAN_END;
        int err = 0;

        p->names--;
        if (wanted) {
            got = queue_scan_next(&list->look, LIST_ENTRIES, name, &err);
        }
        if (got == QUEUE_SCAN_FAILED) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "scan of %s: %s",
                       queue_dir_word(places[list->place]), strerror(-err));
        } else if (got == QUEUE_SCAN_ID) {
            look_at_file(s, list, p, slice_string(name));
        } else if (got == QUEUE_SCAN_END) {
            queue_scan_end(&list->look);
            if (++list->place < PLACES) {
                queue_scan_begin(&list->look, &s->dir, places[list->place]);
            }
        }
    }
    return list->place == PLACES;
}

/* Stores the ids from which the list can continue: its end, if it has `more`, and those of this
 * page, as the reader may first use a part of it. */
static void remember(struct postfix_store *s, struct store_list *list, const struct page *p,
                     bool more)
{
    mem_free(list->page);
    list->page = NULL;
    list->page_count = p->ids != NULL ? p->count : 0;
    if (list->page_count > 0) {
        list->page = mem_array(p->count, sizeof *list->page);
        memcpy(list->page, p->ids, p->count * sizeof *list->page);
    }
    list->at = list->page_count > 0 ? list->page[p->count - 1] : (struct msg_id){++s->last_id};
    list->used = s->now;
    list->turn = ++s->list_turn;
    s->goes_on = more ? list->at : (struct msg_id){0};
}

static int find(struct postfix_store *s, struct page *p)
{
    struct store_list *list = NULL;
    struct msg_id named;
    bool ended;

    s->goes_on = (struct msg_id){0};
    if (p->max == 0) {
        return 0;
    }
    if (p->f->name.len > 0) {
        if (find_name(s, p->f, &named) > 0 && named.n > p->f->after.n) {
            found(p, named);
        }
        return 0;
    }
    if (p->f->after.n == 0) {
        list = list_new(s);
    } else {
        size_t from;

        list = list_find(s, p->f->after, &from);
        if (list == NULL) {
            return spool_fail(&s->base, -ESTALE, "the list is no longer kept: begin it again");
        }
        while (from < list->page_count && p->count < p->max) {
            found(p, list->page[from++]);
        }
    }
    if (!list->is_on_disk && p->count < p->max) {
        look_at_active(s, list, p);
    }
    ended = list->is_on_disk && look_at_disk(s, list, p);
    if (ended && (p->count == 0 || p->ids == NULL)) {
        list_close(list);
    } else {
        remember(s, list, p, !ended);
    }
    return 0;
}

/* ---- how many there are on hold and set aside ---- */

static const enum queue_dir_name tallied[STORE_TALLIES] = {QUEUE_DIR_HOLD, QUEUE_DIR_CORRUPT};

/* Counts `names` more names. */
static void tally(struct postfix_store *s, unsigned i, unsigned names)
{
    struct store_tally *t = &s->tallies[i];
    char name[QUEUE_ID_MAX + 1];

    for (; t->running && names > 0; names--) {
        int unused = 0;

        switch (queue_scan_next(&t->scan, LIST_ENTRIES, name, &unused)) {
        case QUEUE_SCAN_ID:
            t->seen++;
            break;
        case QUEUE_SCAN_END:
            queue_scan_end(&t->scan);
            t->running = false;
            t->count = t->seen;
            break;
        case QUEUE_SCAN_OTHER:
        case QUEUE_SCAN_MORE:
        case QUEUE_SCAN_FAILED: /* files in it are not counted */
            break;
        }
    }
}

bool search_tally(struct postfix_store *s)
{
    bool running = false;

    for (unsigned i = 0; i < STORE_TALLIES; i++) {
        tally(s, i, STORE_SCAN_NAMES);
        running = running || s->tallies[i].running;
    }
    return running;
}

uint64_t search_count(struct postfix_store *s, unsigned i)
{
    struct store_tally *t = &s->tallies[i];

    if (!t->running && (t->count < LIST_NAMES || t->began.us < s->now.us - COUNT_AGAIN_US ||
                        t->began.us > s->now.us)) {
        t->running = true;
        t->seen = 0;
        t->began = s->now;
        queue_scan_begin(&t->scan, &s->dir, tallied[i]);
    }
    tally(s, i, LIST_NAMES);
    if (t->running) {
        store_ready(s); /* later polls continue it */
    }
    return t->running && t->seen < t->count ? t->count : t->seen;
}

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    struct page p = {.f = f, .max = max, .names = LIST_NAMES, .files = LIST_FILES, .ids = ret_ids};
    int err = find(store_of(sp), &p);

    if (err == 0) {
        *ret_count = p.count;
    }
    return err;
}

static int count_some(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    struct page p = {
        .f = f, .counts = true, .max = SIZE_MAX, .names = LIST_NAMES, .files = LIST_FILES};
    int err = find(store_of(sp), &p);

    if (err == 0) {
        *ret_count = p.count;
    }
    return err;
}

static bool goes_on(const struct spool *sp, struct msg_id *ret_after)
{
    const struct postfix_store *s = (const struct postfix_store *)sp;

    *ret_after = s->goes_on;
    return s->goes_on.n != 0;
}

/* ---- destinations of what is active --------------------------------------------------------- */

struct waiting_rcpt {
    const struct store_rcpt *r;
    const struct store_message *m;
};

static struct spool_destination destination_of(const struct waiting_rcpt *w)
{
    struct postfix_rcpt r = read_rcpt_show(w->r);

    return (struct spool_destination){.transport = r.transport, .nexthop = r.nexthop};
}

static bool has_destination(const struct waiting_rcpt *w, const struct spool_destination *d)
{
    struct spool_destination of = destination_of(w);

    return slice_equal(of.transport, d->transport) && slice_equal(of.nexthop, d->nexthop);
}

static int by_destination(const void *a, const void *b)
{
    const struct waiting_rcpt *x = a, *y = b;
    struct spool_destination dx = destination_of(x), dy = destination_of(y);
    int order = destination_order(&dx, &dy);

    return order != 0 ? order : x->m->id.n < y->m->id.n ? -1 : x->m->id.n > y->m->id.n;
}

/* Returns the recipients that wait for delivery, sorted by destination and message; owned by the
 * caller. */
static struct waiting_rcpt *waiting_rcpts(struct postfix_store *s, size_t *ret_count)
{
    struct waiting_rcpt *all = mem_array(s->rcpts + 1, sizeof *all);
    const struct store_message *m, *next;
    size_t count = 0;

    HASH_ITER(by_id, s->by_id, m, next)
    {
        for (size_t i = 0; i < m->rcpt_count; i++) {
            if (m->rcpts[i].state == STORE_RCPT_ROUTED) {
                all[count++] = (struct waiting_rcpt){&m->rcpts[i], m};
            }
        }
    }
    qsort(all, count, sizeof *all, by_destination);
    *ret_count = count;
    return all;
}

static void stream(struct postfix_store *s, const struct spool_destination *from,
                   struct destination_list *list)
{
    size_t count;
    struct waiting_rcpt *all = waiting_rcpts(s, &count);

    for (size_t i = 0; i < count && !destination_list_is_full(list); i++) {
        struct spool_destination d = destination_of(&all[i]);
        bool counted = i > 0 && all[i].m == all[i - 1].m && has_destination(&all[i - 1], &d);

        d.rcpts = 1;
        d.messages = counted ? 0 : 1;
        if (from == NULL || destination_order(&d, from) >= 0) {
            destination_list_add(list, &d);
        }
    }
    mem_free(all);
}

static int destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    struct postfix_store *s = store_of(sp);
    struct destination_list list;

    text_pool_clear(&s->pool);
    destination_list_init(&list, &s->pool, ret, max);
    stream(s, NULL, &list);
    *ret_count = destination_list_end(&list);
    return 0;
}

static int destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    struct postfix_store *s = store_of(sp);
    struct destination_list list;

    text_pool_clear(&s->pool);
    destination_list_init_by_name(&list, &s->pool, ret, max);
    stream(s, from, &list);
    *ret_count = destination_list_end(&list);
    return 0;
}

static int oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived)
{
    struct postfix_store *s = store_of(sp);
    struct wall first = WALL_NEVER;
    size_t count;
    struct waiting_rcpt *all = waiting_rcpts(s, &count);

    for (size_t i = 0; i < count; i++) {
        if (has_destination(&all[i], of)) {
            first = wall_min(first, all[i].m->envelope.arrived);
        }
    }
    mem_free(all);
    if (first.us == WALL_NEVER.us) {
        return -ENOENT;
    }
    *ret_arrived = first;
    return 0;
}

/* ---- summing up ----------------------------------------------------------------------------- */

/* Value of w->n after all rows of a message were returned. */
#define WALK_DONE UINT32_MAX

/* Copies a text of a file, cut to the limit of a row. */
static struct slice walk_text(struct postfix_store *s, struct slice text)
{
    return text_pool_add(
        &s->walked, slice_of(text.ptr, text.len < SPOOL_ROUTE_MAX ? text.len : SPOOL_ROUTE_MAX));
}

static struct slice walk_key(const struct spool_message *m, enum spool_walk_by by)
{
    switch (by) {
    case SPOOL_WALK_SENDER:
        return m->sender;
    case SPOOL_WALK_SENDER_DOMAIN:
        return spool_domain(m->sender);
    case SPOOL_WALK_CLASS:
        return m->class_name;
    case SPOOL_WALK_DESTINATION:
        break;
    }
    UNREACHABLE("a message has no destination");
}

/* Returns rows of the message w->id after recipient w->n: one row, or one for each recipient.
 * Returns false if there may be more. */
static bool walk_message(struct postfix_store *s, enum spool_walk_by by, struct spool_walk *w,
                         size_t max, struct spool_walked *ret, size_t *count)
{
    struct spool_rcpt page[PAGE];
    struct spool_message m;
    size_t got = PAGE;

    if (s->base.engine->read(&s->base, w->id, &m) != 0) {
        return true; /* it is gone, or damaged */
    }
    if (by != SPOOL_WALK_DESTINATION) {
        ret[(*count)++] = (struct spool_walked){.key = walk_text(s, walk_key(&m, by)),
                                                .transport = SLICE(""),
                                                .state = m.state,
                                                .arrived = m.arrived,
                                                .rcpts = m.rcpt_pending};
        return true;
    }
    while (got == PAGE && *count < max) {
        size_t wanted = max - *count < PAGE ? max - *count : PAGE;

        if (s->base.engine->read_rcpts(&s->base, w->id, w->n, false, wanted, page, &got) != 0) {
            return true;
        }
        for (size_t i = 0; i < got; i++) {
            bool routed = page[i].transport.len > 0;

            ret[(*count)++] = (struct spool_walked){
                .key = walk_text(s, routed ? page[i].nexthop : spool_domain(page[i].address)),
                .transport = walk_text(s, page[i].transport),
                .state = m.state,
                .arrived = m.arrived,
                .rcpts = 1};
            w->n = page[i].n;
        }
        if (got < wanted) {
            return true;
        }
    }
    return false;
}

static int walk(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
                struct spool_walked *ret, size_t *ret_count)
{
    struct postfix_store *s = store_of(sp);
    struct msg_id ids[WALK_MESSAGES];
    struct spool_filter f = {.states = 0};
    size_t count = 0, found = 0;
    int err;

    text_pool_clear(&s->walked);
    if (w->id.n != 0 && w->n != WALK_DONE && !walk_message(s, by, w, max, ret, &count)) {
        *ret_count = count;
        return 0;
    }
    f.after = w->id;
    err = scan(sp, &f, WALK_MESSAGES, ids, &found);
    if (err != 0) {
        return err;
    }
    *w = (struct spool_walk){.id = w->id, .n = WALK_DONE, .ended = s->goes_on.n == 0};
    if (found == 0 && !w->ended) {
        w->id = s->goes_on;
    }
    for (size_t i = 0; i < found; i++) {
        if (count == max) {
            w->ended = false; /* the others follow w->id */
            break;
        }
        *w = (struct spool_walk){.id = ids[i], .ended = w->ended};
        if (!walk_message(s, by, w, max, ret, &count)) {
            w->ended = false;
            break;
        }
        w->n = WALK_DONE;
    }
    *ret_count = count;
    return 0;
}

const struct spool_search_part postfix_search = {.due_by_scans = true,
                                                 .scan = scan,
                                                 .count = count_some,
                                                 .goes_on = goes_on,
                                                 .destinations = destinations,
                                                 .destinations_from = destinations_from,
                                                 .oldest = oldest,
                                                 .walk = walk};
