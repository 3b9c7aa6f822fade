/*
 * The list of jobs of a class queue, and a tree over it. The tree answers the questions for which
 * Postfix walks the list: the best candidate for preemption, and the place of a job of a given age.
 *
 * The tree has the order of the list. Each node summarises the jobs below it
 *
 *   best      the candidate with the highest score, the first in the list among equals; of all, and
 *             of those in class_queue.fresh
 *   summary   the fewest entries that a candidate still needs
 *   oldest_s  when the oldest job without stack parent was queued
 *
 * and has a time until which the summary holds, expires_s. A score is age / total entries, so it
 * grows along a straight line, the steeper the smaller the job. The time when another job overtakes
 * the best is thus known beforehand (a kinetic tournament; Basch, Guibas and Hershberger, "Data
 * structures for mobile data", 1999). A pair of jobs changes places once at most, so all of them
 * together cost O(log^2 n) for each job that is added or removed, and nothing while nothing
 * overtakes.
 *
 * A change is not computed at once. Nodes are marked stale, upwards until a stale one is met, and
 * computed when a summary is needed: a stream of small jobs, which never needs one, pays next to
 * nothing. Whenever STALE_MAX nodes are stale all are computed, so that no query must wait for
 * more.
 *
 * The best candidate among those that need at most N entries is searched as follows. If the best of
 * a subtree needs more, both halves are searched, unless none in it needs so few or the best is no
 * better than one found elsewhere. So the cost is O(log n) for each subtree that has both a small
 * enough candidate and a larger one with a better score than any small one in the whole list. The
 * list is in order of age except for the preempting jobs, and a larger job with a better score must
 * be older by the ratio of the sizes. So such subtrees span a range of ages whose ends are in that
 * ratio. At each depth there are no more of them than the logarithm of the oldest age to that base.
 *
 * Scores are compared as doubles, as in Postfix. Expiry is computed in integers: both agree as long
 * as age times entries stays below 2^52 (a job of a million entries that is a century old).
 */
#include "check.h"
#include "sched_private.h"

#define STALE_MAX 10000
#define STALE     INT64_MIN

#define LISTED(n) CONTAINER_OF(n, struct job, node)

static struct job *listed(struct tree_node *n)
{
    return n != NULL ? LISTED(n) : NULL;
}

static bool place_less(const struct tree_node *a, const struct tree_node *b)
{
    return job_before(LISTED(a), LISTED(b));
}

static bool make_stale(struct tree_node *n)
{
    struct job *j = LISTED(n);

    if (j->expires_s == STALE) {
        return false;
    }
    j->expires_s = STALE;
    j->queue->stale++;
    return true;
}

static const struct tree_type list_type = {.less = place_less, .update = make_stale};

static double score(const struct job *j, int64_t now_s)
{
    return (double)(now_s - j->queued_s + 1) / (double)j->scored_total;
}

static bool is_candidate(const struct job *j, enum candidates of)
{
    return j->scored_needed > 0 && (of == OF_ALL || heap_has(&j->fresh));
}

/* ---- summaries ------------------------------------------------------------------------------ */

/* Returns the first second in which `loser` may score as high as `winner`, or the second before. */
static int64_t overtakes_s(const struct job *winner, const struct job *loser, int64_t now_s)
{
    int64_t won = (int64_t)winner->scored_total, lost = (int64_t)loser->scored_total;
    int64_t ahead, behind, after;

    if (lost >= won) {
        return INT64_MAX;
    }
    if (__builtin_mul_overflow(now_s - winner->queued_s + 1, lost, &ahead) ||
        __builtin_mul_overflow(now_s - loser->queued_s + 1, won, &behind)) {
        return now_s + 1;
    }
    after = (ahead - behind) / (won - lost);
    return now_s + (after > 1 ? after : 1);
}

/* Returns the job with the better score and lowers *expires_s to the time until which it stays the
 * better one. `challenger` is after `best` in the list. */
static struct job *duel(struct job *best, struct job *challenger, int64_t now_s, int64_t *expires_s)
{
    struct job *winner, *loser;
    int64_t until_s;

    if (best == NULL || challenger == NULL) {
        return best != NULL ? best : challenger;
    }
    winner = score(challenger, now_s) > score(best, now_s) ? challenger : best;
    loser = winner == best ? challenger : best;
    until_s = overtakes_s(winner, loser, now_s);
    if (until_s < *expires_s) {
        *expires_s = until_s;
    }
    return winner;
}

static void include(struct job *j, const struct job *child)
{
    if (child != NULL) {
        if (child->oldest_s < j->oldest_s) {
            j->oldest_s = child->oldest_s;
        }
        if (child->node.summary < j->node.summary) {
            j->node.summary = child->node.summary;
        }
        if (child->expires_s < j->expires_s) {
            j->expires_s = child->expires_s;
        }
    }
}

static void compute(struct job *j, int64_t now_s)
{
    const struct job *left = listed(j->node.left), *right = listed(j->node.right);

    j->oldest_s = j->parent == NULL ? j->queued_s : INT64_MAX;
    j->node.summary = is_candidate(j, OF_ALL) ? j->scored_needed : UINT32_MAX;
    j->expires_s = INT64_MAX;
    include(j, left);
    include(j, right);
    for (enum candidates of = OF_ALL; of <= OF_FRESH; of++) {
        struct job *self = is_candidate(j, of) ? j : NULL;

        j->best[of] = duel(left != NULL ? left->best[of] : NULL, self, now_s, &j->expires_s);
        j->best[of] =
            duel(j->best[of], right != NULL ? right->best[of] : NULL, now_s, &j->expires_s);
    }
}

static void refresh(struct job *j, int64_t now_s)
{
    if (j == NULL || j->expires_s > now_s) {
        return;
    }
    j->queue->stale -= j->expires_s == STALE;
    refresh(listed(j->node.left), now_s);
    refresh(listed(j->node.right), now_s);
    compute(j, now_s);
}

/* Returns the root of the tree with summaries that are valid now. */
static struct job *fresh_root(struct class_queue *q)
{
    struct job *root = listed(q->list);

    refresh(root, us_seconds(q->transport->sched->now.us));
    return root;
}

static void bound_stale(struct class_queue *q)
{
    if (q->stale >= STALE_MAX) {
        (void)fresh_root(q);
    }
}

/* ---- the list ------------------------------------------------------------------------------- */

void list_add_after(struct class_queue *q, struct job *prev, struct job *j)
{
    order_add_after(&q->jobs, prev != NULL ? &prev->place : NULL, &j->place);
    tree_add_after(&list_type, &q->list, prev != NULL ? &prev->node : NULL, &j->node,
                   (uint32_t)rng_next(&q->transport->sched->rng));
    bound_stale(q);
}

void list_remove(struct job *j)
{
    struct class_queue *q = j->queue;

    order_remove(&q->jobs, &j->place);
    tree_remove(&list_type, &q->list, &j->node);
    q->stale -= j->expires_s == STALE;
    j->expires_s = 0;
    bound_stale(q);
}

void list_numbers_changed(struct job *j)
{
    uint64_t total = job_total(j), needed = total - j->selected;

    if (!LIST_EMPTY(&j->children) || j->message->dropped) {
        needed = 0;
    } else if (needed >= UINT32_MAX) {
        needed = UINT32_MAX - 1; /* more than any number of slots */
    }
    if (total != j->scored_total || needed != j->scored_needed) {
        j->scored_total = total;
        j->scored_needed = (uint32_t)needed;
        tree_changed(&list_type, &j->node);
    }
}

void list_changed(struct job *j)
{
    tree_changed(&list_type, &j->node);
}

struct job *list_last_as_old(struct class_queue *q, int64_t queued_s)
{
    struct job *j = fresh_root(q);

    while (j != NULL && j->oldest_s <= queued_s) {
        struct job *right = listed(j->node.right);

        if (right != NULL && right->oldest_s <= queued_s) {
            j = right;
        } else if (j->parent == NULL && j->queued_s <= queued_s) {
            return j;
        } else {
            j = listed(j->node.left);
        }
    }
    return NULL;
}

/* ---- candidates ----------------------------------------------------------------------------- */

struct search {
    enum candidates of;
    const struct job *from;
    uint64_t needed_max;
    int64_t now_s;
    struct job *found;
    double score;
};

static void consider(struct search *search, struct job *j)
{
    double s = score(j, search->now_s);

    if (search->found == NULL || s > search->score ||
        (s == search->score && job_before(j, search->found))) {
        search->found = j;
        search->score = s;
    }
}

static bool fits(const struct search *search, const struct job *j)
{
    return j->scored_needed <= search->needed_max && !job_before(j, search->from);
}

static void search_tree(struct search *search, struct job *j)
{
    struct job *best = j != NULL ? j->best[search->of] : NULL, *left, *right;

    if (best == NULL || j->node.summary > search->needed_max ||
        (search->found != NULL && score(best, search->now_s) < search->score)) {
        return;
    }
    if (fits(search, best)) {
        consider(search, best);
        return;
    }
    left = job_before(j, search->from) ? NULL : listed(j->node.left);
    right = listed(j->node.right);
    if (is_candidate(j, search->of) && fits(search, j)) {
        consider(search, j);
    }
    /* The half with the best is searched first: a candidate found there rules out most of the other
     * half. */
    search_tree(search, job_before(best, j) ? left : right);
    search_tree(search, job_before(best, j) ? right : left);
}

struct job *list_best_candidate(struct class_queue *q, const struct job *current,
                                uint64_t needed_max)
{
    struct job *root = fresh_root(q), *next = job_next(current);
    struct search search = {.of = OF_FRESH,
                            .from = next,
                            .needed_max = needed_max,
                            .now_s = us_seconds(q->transport->sched->now.us)};

    if (next != NULL) {
        search_tree(&search, root);
        if (q->frontier != NULL) {
            search.of = OF_ALL;
            search.from = job_before(next, q->frontier) ? q->frontier : next;
            search_tree(&search, root);
        }
    }
    return search.found;
}

/* ---- audit ---------------------------------------------------------------------------------- */

/* Checks that a summary that is not stale equals the one that would be computed now. Returns the
 * number of stale nodes. */
static uint64_t summary_audit(const struct tree_node *n, int64_t now_s)
{
    const struct job *j;
    struct job copy;
    uint64_t stale;

    if (n == NULL) {
        return 0;
    }
    stale = summary_audit(n->left, now_s) + summary_audit(n->right, now_s);
    j = CONTAINER_OF(n, const struct job, node);
    CHECK(j->scored_total == job_total(j));
    CHECK(j->scored_needed ==
          (LIST_EMPTY(&j->children) && !j->message->dropped ? job_total(j) - j->selected : 0));
    if (j->expires_s == STALE) {
        CHECK(n->parent == NULL || LISTED(n->parent)->expires_s == STALE);
        return stale + 1;
    }
    if (j->expires_s > now_s) {
        copy = *j;
        compute(&copy, now_s);
        CHECK(j->node.summary == copy.node.summary);
        CHECK(j->oldest_s == copy.oldest_s);
        CHECK(j->expires_s <= copy.expires_s);
        CHECK(j->best[OF_ALL] == (copy.best[OF_ALL] == &copy ? j : copy.best[OF_ALL]));
        CHECK(j->best[OF_FRESH] == (copy.best[OF_FRESH] == &copy ? j : copy.best[OF_FRESH]));
    }
    return stale;
}

void list_audit(const struct class_queue *q)
{
    uint64_t jobs = 0;

    order_audit(&q->jobs);
    for (const struct order_node *n = q->jobs.first; n != NULL; n = n->next) {
        jobs++;
    }
    CHECK(tree_audit(&list_type, q->list) == jobs);
    CHECK(summary_audit(q->list, us_seconds(q->transport->sched->now.us)) == q->stale);
}
