#include "cluster_spool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "answers.h"
#include "boot_clock.h"
#include "check.h"
#include "cluster_engine.h"
#include "cluster_view.h"
#include "cluster_tables.h"
#include "loader.h"
#include "mem.h"
#include "member_link.h"
#include "rows.h"

_Static_assert(DESK_UNDER_WAY_MAX == COMMITTER_UNDER_WAY_MAX, "the same commits");

/* ---- batches --------------------------------------------------------------------------------- */

static int begin(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);

    desk_begin(&s->desk);
    s->extra = committer_batch_new();
    return 0;
}

static void rollback(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);

    desk_rollback(&s->desk);
    s->shares = false;
    committer_batch_free(s->extra);
    s->extra = NULL;
}

static void begin_commit(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);
    struct committer_batch *b;

    fresh_mover_move(&s->mover);
    b = rows_write(&s->desk, desk_begin_commit(&s->desk));
    committer_batch_join(b, s->extra);
    arrivals_begin(&s->arrivals, engine_member_number(s->member), b);
    s->extra = NULL;
    handover_join(&s->handover, b, s->desk.under_way_count);
    s->begun++;
    s->sharing = s->shares ? s->begun : s->sharing;
    s->shares = false;
    s->desk.under_way[s->desk.under_way_count - 1].number = committer_begin(s->committer, b);
}

/* Ends a commit. If it changed shared texts, reads them again and notifies the other nodes. */
static void tell_texts(struct cluster_spool *s)
{
    s->ended++;
    if (s->sharing != 0 && s->ended >= s->sharing) {
        s->sharing = 0;
        shared_texts_woken(s->shared);
        engine_member_notify_texts(s->member);
    }
}

static bool end_commit(struct spool *sp, int *ret_rc)
{
    struct cluster_spool *s = cluster_of(sp);
    struct partition_set told;

    if (!committer_end(s->committer, ret_rc)) {
        return false;
    }
    tell_texts(s);
    fresh_mover_ended(&s->mover);
    handover_ended(&s->handover, *ret_rc != 0);
    if (*ret_rc == 0) {
        engine_member_keep(s);
        recount_kept(&s->recount);
        desk_keep_oldest(&s->desk, &told);
        arrivals_kept(&s->arrivals);
        engine_member_tell(s->member, &told);
        return true;
    }
    if (*ret_rc == -ECANCELED) {
        return true; /* an older commit has failed, which undid this one, too */
    }
    (void)spool_fail(sp, *ret_rc, "%s: %s", s->url.text, committer_error(s->committer));
    if (sp->dirty) {
        rollback(sp);
    }
    if (*ret_rc == -EUCLEAN) {
        desk_stay(&s->desk, (struct msg_id){committer_in_the_way(s->committer)});
    }
    desk_undo_all(&s->desk); /* also the younger commits, which fail next */
    arrivals_undone(&s->arrivals);
    recount_doubt(&s->recount);
    engine_member_failed(s, *ret_rc);
    return true;
}

static void turn(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);

    engine_member_turn(s);
    committer_turn(s->committer);
    housekeeper_turn(s->housekeeper);
    loader_turn(s->loader);
    engine_member_tell_reading(s->member, reader_refusal(loader_reader(s->loader)));
    fresh_mover_turn(&s->mover, boot_now().us);
    handover_turn(&s->handover, boot_now().us);
    engine_search_turn(s->search);
    committer_hold(s->committer, loader_is_counting(s->loader) || engine_member_is_out(s->member) ||
                                     engine_member_must_hold(s->member));
}

static bool next_event(struct spool *sp, struct spool_event *ret_event)
{
    struct cluster_spool *s = cluster_of(sp);
    bool mail, found, durable, asked, shared;

    if (engine_member_event(s, ret_event)) {
        return true;
    }
    mail = loader_has_come(s->loader);
    found = engine_search_has_come(s->search);
    durable = desk_is_there_now(&s->desk);
    asked = asks_has_come(s->asks);
    shared = shared_texts_has_come(s->shared);
    if (!mail && !found && !durable && !asked && !shared) {
        return false;
    }
    *ret_event = (struct spool_event){.type = SPOOL_EVENT_READY};
    return true;
}

static int want(struct spool *sp, struct msg_id id, bool content)
{
    struct cluster_spool *s = cluster_of(sp);

    return desk_want(&s->desk, id, content);
}

static bool commit_is_wanted(const struct spool *sp)
{
    const struct cluster_spool *s = (const struct cluster_spool *)sp;

    return fresh_mover_is_wanted(&s->mover) || handover_is_wanted(&s->handover);
}

static int commits_fd(const struct spool *sp)
{
    return ((const struct cluster_spool *)sp)->epoll_fd;
}

static void tidy(struct spool *sp)
{
    (void)sp; /* nothing to do */
}

/* Error text for an id that the last renewal has not reserved. */
#define NOT_RESERVED "the database has not been heard of for too long"

/* ---- calls that the desk answers ------------------------------------------------------------- */

static struct msg_id next_id(struct spool *sp)
{
    return engine_member_next_id(cluster_of(sp)->member);
}

static int submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    struct cluster_spool *s = cluster_of(sp);

    return engine_member_has_reserved(s->member, id)
               ? desk_submit(&s->desk, id, n)
               : spool_batch_failed(sp, spool_fail(sp, -EIO, NOT_RESERVED));
}

static int settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    return desk_settle(&cluster_of(sp)->desk, id, n, v);
}

static int set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation)
{
    return desk_set_route(&cluster_of(sp)->desk, id, n, transport, nexthop, route_generation);
}

static int reported(struct spool *sp, struct msg_id id)
{
    return desk_reported(&cluster_of(sp)->desk, id);
}

static int finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    return desk_finish(&cluster_of(sp)->desk, id, due, ret_gone);
}

static int finish_all_done(struct spool *sp, struct msg_id id)
{
    return desk_finish_all_done(&cluster_of(sp)->desk, id);
}

static int change(struct spool *sp, const struct spool_change *c)
{
    return desk_change(&cluster_of(sp)->desk, c);
}

static int remove_message(struct spool *sp, struct msg_id id)
{
    return desk_remove(&cluster_of(sp)->desk, id);
}

static int quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    return desk_quarantine(&cluster_of(sp)->desk, id, reason);
}

static void unclaim(struct spool *sp, struct msg_id id)
{
    desk_unclaim(&cluster_of(sp)->desk, id);
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    struct cluster_spool *s = cluster_of(sp);
    int err = desk_claim(&s->desk, from, now, max, ret_ids, ret_count);

    s->now = now.us;
    if (err == 0 && s->desk.ready_count < LOADER_LOW) {
        loader_want(s->loader, now.us);
    }
    return err;
}

static int claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    struct cluster_spool *s = cluster_of(sp);
    const struct desk_key *known;
    int err = desk_claim_parked(&s->desk, key, now, max, ret_ids, ret_count, ret_more);

    if (*ret_count > 0) {
        loader_look_at_key_again(s->loader);
    }
    if (err == 0 && *ret_more && (*ret_count < max || max == 0)) {
        known = desk_key(&s->desk, key);
        if (known != NULL && desk_key_waits_elsewhere(known)) {
            *ret_more = loader_want_key(s->loader, key) || s->desk.passed_over;
        }
    }
    /* Until all is counted, more mail may be parked under the key than is known. */
    *ret_more = *ret_more || loader_is_counting(s->loader);
    return err == 0 && *ret_count == 0 && *ret_more && max > 0
               ? spool_fail(sp, -EAGAIN, "what is parked is not loaded yet")
               : err;
}

static int parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    struct cluster_spool *s = cluster_of(sp);

    if (loader_is_counting(s->loader)) {
        return spool_fail(sp, -EAGAIN, "what is parked is being counted");
    }
    return desk_parked_keys(&s->desk, after, max, ret_keys, ret_count);
}

/* Mail that is due and not on the desk is being loaded; an event follows when it is loaded. */
static int next_due(struct spool *sp, struct wall *ret_due)
{
    struct cluster_spool *s = cluster_of(sp);
    int64_t next = finder_next(&s->finder);
    int err = desk_next_due(&s->desk, (struct wall){s->now}, ret_due);

    if (next > s->now && next < ret_due->us) {
        ret_due->us = next;
    }
    return err;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    return desk_is_claimed(&((const struct cluster_spool *)sp)->desk, id);
}

static size_t claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    return desk_claimed(&((const struct cluster_spool *)sp)->desk, cursor, max, ret_ids);
}

static int read_message(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    return desk_read(&cluster_of(sp)->desk, id, ret_message);
}

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    return desk_read_rcpts(&cluster_of(sp)->desk, id, after, only_pending, max, ret_rcpts,
                           ret_count);
}

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    return desk_read_content(&cluster_of(sp)->desk, id, ret_bytes, ret_fd, ret_size);
}

/* A total may be below 0 until all mail was counted at the start. */
static uint64_t not_below_0(uint64_t n)
{
    return n <= INT64_MAX ? n : 0;
}

static int totals(struct spool *sp, struct spool_totals *ret_totals)
{
    const struct spool_totals *t = &cluster_of(sp)->desk.totals;

    *ret_totals = (struct spool_totals){.incoming = not_below_0(t->incoming),
                                        .deferred = not_below_0(t->deferred),
                                        .hold = not_below_0(t->hold),
                                        .corrupt = not_below_0(t->corrupt),
                                        .bytes = not_below_0(t->bytes)};
    return 0;
}

static int free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    *ret_bytes = UINT64_MAX; /* the server does not report its free space */
    if (engine_member_is_unfit(cluster_of(sp)->member)) {
        return spool_fail(sp, -EROFS, "the server is not what it must be");
    }
    return 0;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void close_spool(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);

    committer_batch_free(s->extra);
    committer_free(s->committer); /* commits in flight may still happen; the fence decides */
    housekeeper_free(s->housekeeper);
    loader_free(s->loader);
    engine_search_free(s->search);
    asks_free(s->asks);
    shared_texts_free(s->shared);
    if (s->member != NULL) { /* last, as leaving waits on the descriptor */
        engine_member_leave(s);
    }
    engine_member_free(s->member);
    desk_fini(&s->desk);
    recount_fini(&s->recount);
    arrivals_fini(&s->arrivals);
    handover_fini(&s->handover);
    finder_fini(&s->finder);
    if (s->epoll_fd >= 0) {
        (void)close(s->epoll_fd);
    }
    cluster_url_fini(&s->url);
    mem_free(s);
}

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    return cluster_search_scan(engine_search_of(cluster_of(sp)->search), f, max, ret_ids,
                               ret_count);
}

static int count_matches(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    return cluster_search_count(engine_search_of(cluster_of(sp)->search), f, ret_count);
}

static int destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    return cluster_search_destinations(engine_search_of(cluster_of(sp)->search), max, ret,
                                       ret_count);
}

static int destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    return cluster_search_destinations_from(engine_search_of(cluster_of(sp)->search), from, max,
                                            ret, ret_count);
}

static int oldest(struct spool *sp, const struct spool_destination *of, struct wall *ret_arrived)
{
    return cluster_search_oldest(engine_search_of(cluster_of(sp)->search), of, ret_arrived);
}

/* Searches see committed data only. */
static const struct spool_search_part search = {
    .scan = scan,
    .count = count_matches,
    .destinations = destinations,
    .destinations_from = destinations_from,
    .oldest = oldest,
};

static const struct spool_commits_part commits = {
    .begin = begin_commit,
    .end = end_commit,
    .turn = turn,
    .is_wanted = commit_is_wanted,
    .want = want,
    .fd = commits_fd,
    .max = COMMITTER_UNDER_WAY_MAX,
};

static int64_t lease_left_us(const struct spool *sp)
{
    return engine_member_lease_left_us((const struct cluster_spool *)sp);
}

static void lease_ended(struct spool *sp)
{
    engine_member_lease_ended(cluster_of(sp)->member);
}

static unsigned lease_nodes(const struct spool *sp)
{
    return engine_member_nodes_up(((const struct cluster_spool *)sp)->member);
}

static const char *lease_why(const struct spool *sp)
{
    return engine_member_why(((const struct cluster_spool *)sp)->member);
}

static int64_t clock_off_us(const struct spool *sp)
{
    return engine_member_clock_off_us(((const struct cluster_spool *)sp)->member);
}

static const struct spool_lease_part lease = {.left_us = lease_left_us,
                                              .ended = lease_ended,
                                              .nodes = lease_nodes,
                                              .why = lease_why,
                                              .clock_off_us = clock_off_us};

static unsigned partition(const struct spool *sp, const struct spool_rcpt *r)
{
    return partition_of(r, parts_ring(sp, r)); /* the same on all nodes */
}

static int submit_parts(struct spool *sp, struct msg_id whole, const struct spool_new *n,
                        const struct spool_share *shares, size_t count)
{
    struct cluster_spool *s = cluster_of(sp);

    return engine_member_has_reserved(s->member, shares[count - 1].id)
               ? desk_submit_parts(&s->desk, whole, n, shares, count)
               : spool_batch_failed(sp, spool_fail(sp, -EIO, NOT_RESERVED));
}

static int give(struct spool *sp, struct msg_id id, struct wall due)
{
    return desk_give(&cluster_of(sp)->desk, id, due);
}

static int lies_in(const struct spool *sp, struct msg_id id)
{
    return desk_partition(&((const struct cluster_spool *)sp)->desk, id);
}

static int move(struct spool *sp, struct msg_id id, const struct spool_relocation *m)
{
    struct cluster_spool *s = cluster_of(sp);

    for (size_t i = 0; i < m->count; i++) {
        if (m->shares[i].id.n != id.n && !engine_member_has_reserved(s->member, m->shares[i].id)) {
            return spool_batch_failed(sp, spool_fail(sp, -EIO, NOT_RESERVED));
        }
    }
    return desk_move(&s->desk, id, m);
}

static int parts_want(struct spool *sp, struct msg_id whole)
{
    return desk_parts_want(&cluster_of(sp)->desk, whole);
}

static int parts_of(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                    struct msg_id *ret_ids, size_t *ret_count)
{
    return desk_parts_of(&cluster_of(sp)->desk, whole, after, max, ret_ids, ret_count);
}

static const struct spool_parts_part parts = {.partition = partition,
                                              .submit = submit_parts,
                                              .give = give,
                                              .lies_in = lies_in,
                                              .move = move,
                                              .want = parts_want,
                                              .parts_of = parts_of};

static int places_of(struct spool *sp, struct msg_id id, struct spool_places *ret)
{
    return desk_places_of(&cluster_of(sp)->desk, id, ret);
}

static uint64_t look_begin(struct spool *sp)
{
    return ++cluster_of(sp)->desk.looks;
}

static void look_within(struct spool *sp, uint64_t look)
{
    cluster_of(sp)->desk.look = look;
}

static void own_places(const struct spool *sp, struct spool_places *ret)
{
    const struct finder *f = &((const struct cluster_spool *)sp)->finder;

    for (unsigned p = 0; p < PARTITIONS; p++) {
        if (f->is_mine[p]) {
            spool_places_add(ret, p);
        }
    }
}

static bool is_own(const struct spool *sp, struct msg_id id)
{
    const struct cluster_spool *s = (const struct cluster_spool *)sp;
    const struct desk_message *msg = desk_find(&s->desk, id);

    return msg != NULL && s->finder.is_mine[msg->f.p];
}

static int owner(const struct spool *sp, unsigned p)
{
    return engine_member_owner(((const struct cluster_spool *)sp)->member, p);
}

static int64_t unowned_us(const struct spool *sp, unsigned p)
{
    return engine_member_unowned_us(((const struct cluster_spool *)sp)->member, p);
}

static int node(const struct spool *sp)
{
    return engine_member_number(((const struct cluster_spool *)sp)->member);
}

static const char *node_name(const struct spool *sp, int no)
{
    return engine_member_node_name(((const struct cluster_spool *)sp)->member, no);
}

static bool node_is_up(const struct spool *sp, int no)
{
    return engine_member_node_is_up(((const struct cluster_spool *)sp)->member, no);
}

static uint64_t gains(const struct spool *sp)
{
    return engine_member_gains(((const struct cluster_spool *)sp)->member);
}

static void measure(const struct spool *sp, struct spool_node_measures *ret)
{
    const struct cluster_spool *s = (const struct cluster_spool *)sp;

    for (unsigned p = 0; p < PARTITIONS; p++) {
        ret->partitions += s->finder.is_mine[p];
        ret->unowned += engine_member_owner(s->member, p) == SPOOL_NOBODY;
    }
    ret->nodes_up = engine_member_nodes_up(s->member);
    ret->given_up = engine_member_given_up(s->member);
    ret->missed = loader_missed(s->loader);
    ret->drift = s->recount.drift;
    ret->lacks = engine_member_lacks(s->member);
    ret->clock_us = engine_member_clock_us(s->member);
    ret->fresh_bytes = housekeeper_measures(s->housekeeper)->fresh_bytes;
    ret->oldest_snapshot_us = housekeeper_measures(s->housekeeper)->oldest_snapshot_us;
}

static bool node_seen(const struct spool *sp, int no, struct spool_node_facts *ret)
{
    return engine_member_node_seen(((const struct cluster_spool *)sp)->member, no, ret);
}

static void tell_others(struct spool *sp, const struct spool_node_words *words)
{
    engine_member_tell_others(cluster_of(sp), words);
}

static uint64_t others_behind(const struct spool *sp)
{
    return engine_member_others_behind(((const struct cluster_spool *)sp)->member);
}

static int ask(struct spool *sp, int no, uint32_t token, struct slice question)
{
    return asks_ask(cluster_of(sp)->asks, sp, no, token, question);
}

static void ask_end(struct spool *sp, uint32_t token)
{
    asks_end(cluster_of(sp)->asks, token);
}

static bool next_told(struct spool *sp, struct spool_told *ret)
{
    return asks_next_told(cluster_of(sp)->asks, ret);
}

static void answer_other(struct spool *sp, uint32_t token, struct slice answer)
{
    asks_answer(cluster_of(sp)->asks, token, answer);
}

static const struct spool_others_part others = {.places_of = places_of,
                                                .look_begin = look_begin,
                                                .look_within = look_within,
                                                .own_places = own_places,
                                                .is_own = is_own,
                                                .owner = owner,
                                                .unowned_us = unowned_us,
                                                .node = node,
                                                .node_name = node_name,
                                                .node_is_up = node_is_up,
                                                .gains = gains,
                                                .measure = measure,
                                                .node_seen = node_seen,
                                                .tell = tell_others,
                                                .others_behind = others_behind,
                                                .ask = ask,
                                                .ask_end = ask_end,
                                                .next_told = next_told,
                                                .answer = answer_other};

static void hand_over_from(struct spool *sp, spool_tell_suspensions *tell, void *arg)
{
    cluster_of(sp)->handover.tell = tell;
    cluster_of(sp)->handover.arg = arg;
}

static bool next_suspension(struct spool *sp, struct spool_suspension *ret)
{
    return handover_next(&cluster_of(sp)->handover, ret);
}

static bool came(struct spool *sp)
{
    return loader_has_counted(cluster_of(sp)->loader);
}

static bool next_leaving(struct spool *sp, struct spool_places *ret)
{
    struct partition_set leaving;
    bool any = engine_member_leaving(cluster_of(sp)->member, &leaving);

    *ret = (struct spool_places){{0}};
    for (int p = 0; p < PARTITIONS; p++) {
        if (partition_set_has(&leaving, p)) {
            spool_places_add(ret, (unsigned)p);
        }
    }
    return any;
}

static const struct spool_handover_part handover = {
    .from = hand_over_from, .next = next_suspension, .came = came, .next_leaving = next_leaving};
static void route_by(struct spool *sp, uint64_t fingerprint)
{
    engine_member_route_by(cluster_of(sp)->member, fingerprint);
}

/* Redirects and the like also determine routes; each change of one raises the version. */
static uint64_t route_generation(const struct spool *sp)
{
    const struct cluster_spool *s = (const struct cluster_spool *)sp;
    uint64_t number = engine_member_route(s->member), version = shared_texts_reroutes(s->shared);

    return number == 0 ? 0
                       : number * SPOOL_ROUTE_VERSIONS +
                             (version < SPOOL_ROUTE_VERSIONS ? version : SPOOL_ROUTE_VERSIONS - 1);
}

static bool routes_are_in_force(const struct spool *sp)
{
    return engine_member_routes_are_in_force(((const struct cluster_spool *)sp)->member);
}

static int stale_routes(struct spool *sp, uint64_t own, const struct spool_routed *after,
                        size_t max, struct spool_routed *ret, size_t *ret_count)
{
    struct cluster_spool *s = cluster_of(sp);
    int err = cluster_search_stale(engine_search_of(s->search), s->finder.is_mine, own, after, max,
                                   ret, ret_count);

    if (err == 0) {
        loader_bring(s->loader, ret, *ret_count);
    }
    return err;
}

static const struct spool_routes_part routes = {.route_by = route_by,
                                                .generation = route_generation,
                                                .are_in_force = routes_are_in_force,
                                                .stale = stale_routes};

static bool shared_is_there(const struct spool *sp)
{
    return shared_texts_is_there(((const struct cluster_spool *)sp)->shared);
}

static int shared_put(struct spool *sp, uint32_t token, bool reroutes, struct slice text)
{
    struct cluster_spool *s = cluster_of(sp);

    shared_texts_put(s->shared, s->extra, token, reroutes, text);
    s->shares = true;
    return 0;
}

static int shared_remove(struct spool *sp, uint64_t number, bool reroutes)
{
    struct cluster_spool *s = cluster_of(sp);

    shared_texts_remove(s->extra, number, reroutes);
    s->shares = true;
    return 0;
}

static uint64_t shared_look(struct spool *sp)
{
    return shared_texts_look(cluster_of(sp)->shared);
}

static uint64_t shared_looks(const struct spool *sp)
{
    return shared_texts_looks(((const struct cluster_spool *)sp)->shared);
}

static uint64_t shared_changes(const struct spool *sp)
{
    return shared_texts_changes(((const struct cluster_spool *)sp)->shared);
}

static void shared_go_by(struct spool *sp, uint64_t changes)
{
    engine_member_go_by(cluster_of(sp), changes);
}

static uint64_t shared_watch(struct spool *sp)
{
    return engine_member_watch(cluster_of(sp)->member);
}

static bool shared_behind(struct spool *sp, uint64_t watch, uint64_t changes, uint64_t *ret_nodes)
{
    return engine_member_find_behind(cluster_of(sp)->member, watch, changes, ret_nodes);
}

static uint64_t shared_reroutes(const struct spool *sp)
{
    return shared_texts_reroutes(((const struct cluster_spool *)sp)->shared);
}

static bool shared_next(const struct spool *sp, uint64_t after, struct spool_shared *ret)
{
    return shared_texts_next(((const struct cluster_spool *)sp)->shared, after, ret);
}

static bool shared_is_cut(const struct spool *sp)
{
    return shared_texts_is_cut(((const struct cluster_spool *)sp)->shared);
}

static const struct spool_shared_part shared = {.is_there = shared_is_there,
                                                .put = shared_put,
                                                .remove = shared_remove,
                                                .look = shared_look,
                                                .looks = shared_looks,
                                                .changes = shared_changes,
                                                .go_by = shared_go_by,
                                                .watch = shared_watch,
                                                .behind = shared_behind,
                                                .reroutes = shared_reroutes,
                                                .next = shared_next,
                                                .is_cut = shared_is_cut};

/* Open connections stay: their links read the target at each new connection. */
static void set_secret(struct spool *sp, struct slice secret)
{
    cluster_url_set_password(&cluster_of(sp)->url, secret);
}

static const struct spool_engine cluster_engine = {
    .close = close_spool,
    .set_secret = set_secret,
    .begin = begin,
    .rollback = rollback,
    .tidy = tidy,
    .next_id = next_id,
    .submit = submit,
    .settle = settle,
    .set_route = set_route,
    .reported = reported,
    .finish = finish,
    .finish_all_done = finish_all_done,
    .change = change,
    .remove = remove_message,
    .quarantine = quarantine,
    .unclaim = unclaim,
    .claim = claim,
    .claim_parked = claim_parked,
    .parked_keys = parked_keys,
    .next_due = next_due,
    .is_claimed = is_claimed,
    .claimed = claimed,
    .read = read_message,
    .read_rcpts = read_rcpts,
    .read_content = read_content,
    .totals = totals,
    .free_bytes = free_bytes,
    .next_event = next_event,
    .search = &search,
    .commits = &commits,
    .parts = &parts,
    .lease = &lease,
    .others = &others,
    .handover = &handover,
    .shared = &shared,
    .routes = &routes,
};

/* Sends new mail in passage to this fresh table from now on. */
static void on_fresh(void *arg, unsigned now)
{
    struct cluster_spool *s = arg;

    s->desk.fresh_now = now;
}

static struct committer_batch *ask_recount(void *arg)
{
    struct cluster_spool *s = arg;
    int no = s->member == NULL ? SPOOL_NOBODY : engine_member_number(s->member);

    if (no == SPOOL_NOBODY || loader_is_counting(s->loader) || loader_is_deleting(s->loader)) {
        return NULL; /* mail of new partitions is not on the desk yet */
    }
    return recount_ask(&s->recount, no, committer_last(s->committer), boot_now().us);
}

static void on_recounted(void *arg, const PGresult *r)
{
    struct cluster_spool *s = arg;
    uint64_t drift = recount_answer(&s->recount, r);

    if (drift > 0) {
        engine_member_tell_drift(s->member, drift);
    }
}

static const struct housekeeper_owner housekeeper_owner = {
    .fresh = on_fresh, .recount = ask_recount, .counted = on_recounted};

static void notify_ask(void *arg, int node)
{
    struct cluster_spool *s = arg;

    engine_member_notify_ask(s->member, node);
}

static int open_cluster(const char *where, enum spool_open_mode mode,
                        const struct spool_options *options, struct buf *ret_error,
                        struct spool **ret_spool)
{
    struct cluster_spool *s;
    PGconn *conn = NULL;
    int err = -EINVAL;

    if (mode == SPOOL_OPEN_READ) {
        return cluster_view_open(where, options, ret_error, ret_spool);
    }
    s = mem_new(sizeof *s);
    s->base.engine = &cluster_engine;
    s->base.mode = mode;
    s->base.ring_of = options->ring_of;
    s->base.ring_arg = options->ring_arg;
    s->epoll_fd = -1;
    finder_init(&s->finder);
    desk_init(&s->desk, &s->base, &s->finder);
    arrivals_init(&s->arrivals);
    handover_init(&s->handover, &s->base, &s->finder);
    recount_init(&s->recount, &s->desk, &s->arrivals);
    if (!cluster_url_parse(&s->url, where, CLUSTER_URL_QUEUE, ret_error)) {
        goto out;
    }
    cluster_url_set_password(&s->url, options->secret);
    err = -EIO;
    if (!cluster_url_resolve(&s->url, ret_error)) {
        goto out;
    }
    conn = cluster_tables_open(&s->url, &err, ret_error);
    if (conn == NULL) {
        goto out;
    }
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    CHECK(s->epoll_fd >= 0);
    s->url.target.timeline = &s->timeline;
    s->housekeeper = housekeeper_new(s->epoll_fd, &s->url.target, &housekeeper_owner, s);
    s->loader =
        loader_new(s->epoll_fd, &s->url.target, &s->desk, &s->finder, &s->arrivals, &s->handover);
    fresh_mover_init(&s->mover, &s->desk, s->loader, boot_now().us);
    s->search = engine_search_new(s->epoll_fd, &s->url.target, &s->base);
    loader_set_lists(s->loader, engine_search_of(s->search));
    s->asks = asks_new(s->epoll_fd, &s->url.target, notify_ask, s);
    s->shared = shared_texts_new(s->epoll_fd, &s->url.target);
    s->member = engine_member_new(s, options->conf, options->id_floor);
    err = engine_member_wait(s, options, ret_error);
    if (err == 0) {
        committer_hold(s->committer, true);
        *ret_spool = &s->base;
    }
out:
    PQfinish(conn);
    if (err != 0) {
        close_spool(&s->base);
    }
    return err;
}

bool cluster_spool_is_idle(const struct spool *sp)
{
    const struct cluster_spool *s = (const struct cluster_spool *)sp;

    return loader_is_idle(s->loader);
}

void cluster_spool_move_at_once(struct spool *sp)
{
    cluster_of(sp)->mover.passing_us = 0;
}

void cluster_spool_register(void)
{
    static const struct spool_scheme scheme = {
        .prefix = "postgresql:", .form = CLUSTER_URL_FORM, .reads = true, .open = open_cluster};

    spool_register(&scheme);
}
