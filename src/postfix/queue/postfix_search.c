/*
 * Questions about messages. What is active is in memory. Of what waits on disk nothing is known: it
 * is found by its queue id, or by a look through the directories, which ends at KNOWN_MAX messages.
 * That gives it an id of ours (struct store_known), by which it can be read and changed until too
 * many others were asked for. A message that is taken into active/ goes on under that id.
 *
 * Operators' changes of mail on disk are the file operations of postsuper(1) and flush(8), made at
 * the commit; a file that has gone meanwhile is no fault.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "destination_list.h"
#include "mem.h"
#include "postfix_store.h"

#define KNOWN_MAX    5000 /* messages on disk that are listed; others are found by name */
#define PAGE         100
#define SCAN_ENTRIES 1000

/* Where a message may be, the most likely first. */
static const enum queue_dir_name places[] = {QUEUE_DIR_DEFERRED, QUEUE_DIR_HOLD, QUEUE_DIR_INCOMING,
                                             QUEUE_DIR_CORRUPT};

/* ---- messages on disk ----------------------------------------------------------------------- */

struct store_known *known_find(struct postfix_store *s, struct msg_id id)
{
    struct store_known *k;

    HASH_FIND(by_id, s->known, &id.n, sizeof id.n, k);
    if (k != NULL) {
        TAILQ_REMOVE(&s->known_by_use, k, by_use);
        TAILQ_INSERT_TAIL(&s->known_by_use, k, by_use);
    }
    return k;
}

static void known_forget(struct postfix_store *s, struct store_known *k)
{
    CHECK(!k->touched);
    TAILQ_REMOVE(&s->known_by_use, k, by_use);
    HASH_DELETE(by_id, s->known, k);
    HASH_DELETE(by_name, s->known_by_name, k);
    mem_free(k);
}

void known_fini(struct postfix_store *s)
{
    struct store_known *k;

    while ((k = TAILQ_FIRST(&s->known_by_use)) != NULL) {
        known_forget(s, k);
    }
    queue_file_envelope_fini(&s->shown);
}

bool known_take(struct postfix_store *s, struct slice name, struct msg_id *ret_id, bool *ret_flush)
{
    struct store_known *k;

    HASH_FIND(by_name, s->known_by_name, name.ptr, name.len, k);
    if (k == NULL) {
        return false;
    }
    *ret_id = k->id;
    *ret_flush = k->flush;
    known_forget(s, k);
    return true;
}

/* Where it is now; -ENOENT when it is nowhere, or active. */
static int locate(struct postfix_store *s, const struct store_known *k,
                  enum queue_dir_name *ret_place, struct queue_dir_file *ret_file)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int err = queue_dir_stat(&s->dir, places[i], slice_string(k->name), ret_file);

        if (err == 0) {
            *ret_place = places[i];
        }
        if (err != -ENOENT) {
            return err;
        }
    }
    return -ENOENT;
}

static int no_message(struct postfix_store *s, const struct store_known *k, int err)
{
    return spool_fail(&s->base, err, "%s: %s", k->name, strerror(-err));
}

/* One more, in the place of the one that was used least if there are many; NULL: all of them are of
 * the listing that is being made. */
static struct store_known *known_add(struct postfix_store *s, struct slice name)
{
    struct store_known *oldest = TAILQ_FIRST(&s->known_by_use), *k;

    if (HASH_CNT(by_id, s->known) >= KNOWN_MAX) {
        if (oldest->touched || oldest->listing == s->listing) {
            return NULL;
        }
        known_forget(s, oldest);
    }
    k = mem_new(sizeof *k);
    memcpy(k->name, name.ptr, name.len);
    k->id.n = ++s->last_id;
    HASH_ADD(by_id, s->known, id.n, sizeof k->id.n, k);
    HASH_ADD_KEYPTR(by_name, s->known_by_name, k->name, name.len, k);
    TAILQ_INSERT_TAIL(&s->known_by_use, k, by_use);
    return k;
}

/* By its queue id; NULL when there is no such file. */
static struct store_known *known_by_name(struct postfix_store *s, struct slice name)
{
    struct store_known *k, probe = {.exit = STORE_STAYS};
    enum queue_dir_name place;
    struct queue_dir_file file;

    HASH_FIND(by_name, s->known_by_name, name.ptr, name.len, k);
    if (k != NULL) {
        return k;
    }
    memcpy(probe.name, name.ptr, name.len);
    s->listing++;
    return locate(s, &probe, &place, &file) == 0 ? known_add(s, name) : NULL;
}

/* Look through a queue. False: there are more messages than can be listed. */
static bool list_queue(struct postfix_store *s, enum queue_dir_name place)
{
    enum queue_scan_found found;
    char name[QUEUE_ID_MAX + 1];
    struct queue_scan look;
    bool room = true;
    int err = 0;

    queue_scan_begin(&look, &s->dir, place);
    while (room && (found = queue_scan_next(&look, SCAN_ENTRIES, name, &err)) != QUEUE_SCAN_END) {
        struct store_known *k;

        if (found == QUEUE_SCAN_FAILED) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "scan of %s: %s", queue_dir_word(place),
                       strerror(-err));
        }
        if (found != QUEUE_SCAN_ID || store_has(s, slice_string(name))) {
            continue;
        }
        HASH_FIND(by_name, s->known_by_name, name, strlen(name), k);
        if (k == NULL) {
            k = known_add(s, slice_string(name));
        }
        room = k != NULL;
        if (room) {
            k->listing = s->listing;
            (void)known_find(s, k->id); /* it is used */
        }
    }
    queue_scan_end(&look);
    return room;
}

static void list_disk(struct postfix_store *s)
{
    bool all = true;

    s->listing++;
    for (size_t i = 0; all && i < sizeof places / sizeof places[0]; i++) {
        all = list_queue(s, places[i]);
    }
    if (!all) {
        store_tell(s, SPOOL_EVENT_WARNING, 0,
                   "%d messages on disk are listed; postqueue -p lists all", KNOWN_MAX);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Open the file and begin to read it; the caller ends the reader and closes *ret_fd. */
static int open_known(struct postfix_store *s, const struct store_known *k,
                      struct queue_file_reader *ret_reader, int *ret_fd,
                      enum queue_dir_name *ret_place, struct queue_dir_file *ret_file)
{
    int err = locate(s, k, ret_place, ret_file);

    if (err == 0) {
        err = queue_dir_open_file(&s->dir, *ret_place, slice_string(k->name), 0, ret_fd);
    }
    if (err != 0) {
        return no_message(s, k, err);
    }
    queue_file_init(ret_reader, (struct queue_file_source){.read = queue_file_read_fd,
                                                           .context = ret_fd,
                                                           .size = ret_file->size});
    return 0;
}

static enum spool_state state_of(const struct store_known *k, enum queue_dir_name place)
{
    switch (k->exit) {
    case STORE_TO_HOLD:
        return SPOOL_HOLD;
    case STORE_TO_DEFERRED:
        return SPOOL_DEFERRED;
    case STORE_TO_INCOMING:
        return SPOOL_INCOMING;
    case STORE_TO_CORRUPT:
        return SPOOL_CORRUPT;
    case STORE_STAYS:
    case STORE_CONCLUDES:
    case STORE_REMOVED:
    case STORE_REMOVED_BY:
        break;
    }
    return place == QUEUE_DIR_HOLD       ? SPOOL_HOLD
           : place == QUEUE_DIR_CORRUPT  ? SPOOL_CORRUPT
           : place == QUEUE_DIR_DEFERRED ? SPOOL_DEFERRED
                                         : SPOOL_INCOMING;
}

int known_read(struct postfix_store *s, const struct store_known *k,
               struct spool_message *ret_message)
{
    struct queue_file_rcpt rcpt;
    struct queue_file_reader r;
    enum queue_dir_name place;
    struct queue_dir_file file;
    enum queue_file_read got;
    int fd, err = k->exit == STORE_REMOVED_BY ? -ENOENT : open_known(s, k, &r, &fd, &place, &file);

    if (err != 0) {
        return err;
    }
    do {
        got = queue_file_next(&r, &rcpt);
    } while (got == QUEUE_FILE_READ_ITEM);
    queue_file_envelope_fini(&s->shown);
    if (got == QUEUE_FILE_READ_END) {
        queue_file_take_envelope(&r, &s->shown);
    } else {
        queue_file_envelope_clear(&s->shown);
    }
    if (got == QUEUE_FILE_READ_FAILED) {
        err = no_message(s, k, r.error);
    } else if (got == QUEUE_FILE_READ_CORRUPT && place != QUEUE_DIR_CORRUPT) {
        err = queue_dir_usable(&file) ? spool_fail(&s->base, -EBADMSG, "%s: %s", k->name, r.problem)
                                      : no_message(s, k, -ENOENT); /* it is being written */
    } else {
        text_pool_clear(&s->pool);
        store_show(s, &s->shown, ret_message);
        ret_message->id = k->id;
        ret_message->state = state_of(k, place);
        ret_message->due = file.modified;
        ret_message->rcpt_pending = s->shown.todo;
        ret_message->force_expire = queue_dir_force_expire(&file) || k->expire;
        ret_message->reason = text_pool_add(&s->pool, slice_string(r.problem));
        ret_message->spoolid = slice_string(k->name);
    }
    queue_file_fini(&r);
    (void)s->dir.io->close(fd); /* it was read */
    return err;
}

int known_read_rcpts(struct postfix_store *s, const struct store_known *k, uint32_t after,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct queue_file_rcpt rcpt;
    struct queue_file_reader r;
    enum queue_dir_name place;
    struct queue_dir_file file;
    size_t count = 0;
    int fd, err = open_known(s, k, &r, &fd, &place, &file);

    if (err != 0) {
        return err;
    }
    text_pool_clear(&s->pool);
    while (count < max && queue_file_next(&r, &rcpt) == QUEUE_FILE_READ_ITEM) {
        if (rcpt.type == 'R' && rcpt.n > after) {
            ret_rcpts[count++] = (struct spool_rcpt){
                .n = rcpt.n,
                .address = text_pool_add(&s->pool, rcpt.address),
                .orcpt = text_pool_add(&s->pool, rcpt.dsn_original),
                .notify = rcpt.notify,
                .state = SPOOL_RCPT_PENDING,
                .route_generation = SPOOL_ROUTE_FIXED,
            };
        }
    }
    err = r.ended == QUEUE_FILE_READ_FAILED ? no_message(s, k, r.error) : 0;
    queue_file_fini(&r);
    (void)s->dir.io->close(fd); /* it was read */
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

/* ---- changes -------------------------------------------------------------------------------- */

static void known_touch(struct postfix_store *s, struct store_known *k)
{
    if (!k->touched) {
        k->touched = true;
        STAILQ_INSERT_TAIL(&s->known_touched, k, by_batch);
    }
}

int known_leave(struct postfix_store *s, struct store_known *k, enum store_exit how)
{
    known_touch(s, k);
    k->exit = how;
    return 0;
}

int known_change(struct postfix_store *s, struct store_known *k, const struct spool_change *c)
{
    if (c->forget_tries || c->to->parked.len > 0 || c->to->warnings != c->from->warnings) {
        return spool_fail(&s->base, -ENOTSUP,
                          "%s: Postfix's queue has no place for this; see postsuper(1)", k->name);
    }
    known_touch(s, k);
    k->expire |= c->to->force_expire && !c->from->force_expire;
    if (c->to->state == SPOOL_HOLD && c->from->state != SPOOL_HOLD) {
        k->exit = STORE_TO_HOLD;
    } else if (c->to->state != SPOOL_HOLD &&
               (c->to->state != c->from->state || c->to->due.us != c->from->due.us)) {
        /* To incoming/, as flush(8) does it: no scan of deferred/ is needed to find it. */
        k->exit =
            c->to->due.us <= us_add(s->now.us, US_PER_S) ? STORE_TO_INCOMING : STORE_TO_DEFERRED;
        k->flush = k->exit == STORE_TO_INCOMING && c->from->state != SPOOL_HOLD;
        k->due = c->to->due;
    }
    return 0;
}

static int set_expire(struct postfix_store *s, const struct store_known *k,
                      enum queue_dir_name place, const struct queue_dir_file *file)
{
    int fd, err = queue_dir_open_file(&s->dir, place, slice_string(k->name), 0, &fd);

    if (err == 0) {
        err = queue_dir_set_force_expire(&s->dir, fd, file);
        (void)s->dir.io->close(fd); /* it was only opened */
    }
    return err;
}

static int move_known(struct postfix_store *s, const struct store_known *k,
                      enum queue_dir_name from, enum queue_dir_name to)
{
    struct slice name = slice_string(k->name);
    int err = 0;

    if (to == QUEUE_DIR_DEFERRED || to == QUEUE_DIR_INCOMING) {
        err = queue_dir_set_time(&s->dir, from, name, k->due);
    }
    return err != 0 || from == to ? err : queue_dir_move(&s->dir, name, from, to);
}

static int apply(struct postfix_store *s, struct store_known *k)
{
    enum queue_dir_name place;
    struct queue_dir_file file;
    int err = locate(s, k, &place, &file);

    if (err == 0 && k->expire) {
        err = set_expire(s, k, place, &file);
    }
    if (err != 0) {
        return err;
    }
    switch (k->exit) {
    case STORE_TO_HOLD:
        return move_known(s, k, place, QUEUE_DIR_HOLD);
    case STORE_TO_DEFERRED:
        return move_known(s, k, place, QUEUE_DIR_DEFERRED);
    case STORE_TO_INCOMING:
        s->scans[0].wanted = true;
        store_ready(s);
        return move_known(s, k, place, QUEUE_DIR_INCOMING);
    case STORE_TO_CORRUPT:
        return move_known(s, k, place, QUEUE_DIR_CORRUPT);
    case STORE_REMOVED_BY:
        return store_remove(s, slice_string(k->name), place);
    case STORE_STAYS:
    case STORE_CONCLUDES:
    case STORE_REMOVED:
        break;
    }
    return 0;
}

void known_end(struct postfix_store *s, bool committed)
{
    struct store_known *k;

    while ((k = STAILQ_FIRST(&s->known_touched)) != NULL) {
        int err = committed ? apply(s, k) : 0;

        STAILQ_REMOVE_HEAD(&s->known_touched, by_batch);
        if (err != 0 && err != -ENOENT) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: it stays as it is: %s", k->name,
                       strerror(-err));
        }
        k->touched = false;
        k->exit = STORE_STAYS;
        k->expire = false;
        k->flush = k->flush && committed;
    }
}

/* ---- filters -------------------------------------------------------------------------------- */

static bool address_matches(struct slice address, struct slice wanted)
{
    if (wanted.len > 0 && wanted.ptr[0] == '@') {
        return slice_equal_nocase(spool_domain(address), slice_skip(wanted, 1));
    }
    return slice_equal_nocase(address, wanted);
}

/* "transport/nexthop", "nexthop", or a recipient's domain. */
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

    return id.n > f->after.n && sp->engine->read(sp, id, &m) == 0 &&
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

/* The message of that queue id. */
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
           (k != NULL && known_read(s, k, &unused) == -EBADMSG); /* one that is damaged, too */
}

/* The first `max` that match, in order; ret_ids may be NULL. */
static size_t find(struct postfix_store *s, const struct spool_filter *f, size_t max,
                   struct msg_id *ret_ids)
{
    struct store_message *m, *next_m;
    struct store_known *k, *next_k;
    struct msg_id *all, found;
    size_t count = 0, candidates = 0;

    if (f->name.len > 0) {
        count = max > 0 ? find_name(s, f, &found) : 0;
        if (count > 0 && ret_ids != NULL) {
            ret_ids[0] = found;
        }
        return count;
    }
    if (f->after.n == 0) {
        list_disk(s);
    }
    all = mem_array(HASH_CNT(by_id, s->by_id) + HASH_CNT(by_id, s->known) + 1, sizeof *all);
    HASH_ITER(by_id, s->by_id, m, next_m)
    {
        all[candidates++] = m->id;
    }
    HASH_ITER(by_id, s->known, k, next_k)
    {
        all[candidates++] = k->id;
    }
    qsort(all, candidates, sizeof *all, by_number);
    for (size_t i = 0; i < candidates && count < max; i++) {
        if (matches(&s->base, all[i], f)) {
            if (ret_ids != NULL) {
                ret_ids[count] = all[i];
            }
            count++;
        }
    }
    mem_free(all);
    return count;
}

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    *ret_count = find(store_of(sp), f, max, ret_ids);
    return 0;
}

static int count_all(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    *ret_count = find(store_of(sp), f, SIZE_MAX, NULL);
    return 0;
}

/* ---- destinations of what is active --------------------------------------------------------- */

struct waiting_rcpt {
    const struct store_rcpt *r;
    const struct store_message *m;
};

static int by_destination(const void *a, const void *b)
{
    const struct waiting_rcpt *x = a, *y = b;
    struct spool_destination dx = {.transport = x->r->r.transport, .nexthop = x->r->r.nexthop};
    struct spool_destination dy = {.transport = y->r->r.transport, .nexthop = y->r->r.nexthop};
    int order = destination_order(&dx, &dy);

    return order != 0 ? order : x->m->id.n < y->m->id.n ? -1 : x->m->id.n > y->m->id.n;
}

/* Recipients to be delivered, by destination and message; owned by the caller. */
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
        struct spool_destination d = {.transport = all[i].r->r.transport,
                                      .nexthop = all[i].r->r.nexthop,
                                      .rcpts = 1,
                                      .messages = 1};

        if (i > 0 && all[i].m == all[i - 1].m &&
            slice_equal(d.transport, all[i - 1].r->r.transport) &&
            slice_equal(d.nexthop, all[i - 1].r->r.nexthop)) {
            d.messages = 0; /* counted already */
        }
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
        if (slice_equal(all[i].r->r.transport, of->transport) &&
            slice_equal(all[i].r->r.nexthop, of->nexthop)) {
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

const struct spool_search_part postfix_search = {.due_by_scans = true,
                                                 .scan = scan,
                                                 .count = count_all,
                                                 .destinations = destinations,
                                                 .destinations_from = destinations_from,
                                                 .oldest = oldest};
