#include "engine_search.h"

#include <errno.h>
#include <string.h>
#include <sys/queue.h>

#include "boot_clock.h"
#include "check.h"
#include "mem.h"
#include "reader.h"

struct search {
    TAILQ_ENTRY(search) next;
    char *sql;        /* owned */
    struct buf key;   /* statement and parameters */
    PGresult *answer; /* owned; NULL until it has arrived */
    bool is_given;
    int64_t answered; /* time of the answer in microseconds */
};

struct engine_search {
    struct cluster_search base;
    struct reader *reader;         /* owned */
    TAILQ_HEAD(, search) searches; /* the latest last */
    unsigned count;
    bool has_come;
};

static void search_free(struct engine_search *e, struct search *s)
{
    TAILQ_REMOVE(&e->searches, s, next);
    e->count--;
    PQclear(s->answer);
    buf_fini(&s->key);
    mem_free(s->sql);
    mem_free(s);
}

/* Frees answers after their time, and others if there are too many. */
static void forget_some(struct engine_search *e)
{
    struct search *s, *next;

    for (s = TAILQ_FIRST(&e->searches); s != NULL; s = next) {
        next = TAILQ_NEXT(s, next);
        if (s->answer != NULL &&
            (e->count >= ENGINE_SEARCHES_MAX ||
             (s->is_given && boot_now().us - s->answered > ENGINE_SEARCH_US))) {
            search_free(e, s);
        }
    }
}

static struct search *find(struct engine_search *e, struct slice key)
{
    struct search *s;

    TAILQ_FOREACH(s, &e->searches, next)
    {
        if (slice_equal(buf_slice(&s->key), key)) {
            return s;
        }
    }
    return NULL;
}

static void key_of(struct cluster_query *q, struct buf *key)
{
    buf_init(key, CLUSTER_QUERY_SQL_MAX * 4);
    (void)buf_add(key, buf_slice(&q->sql));
    for (int i = 0; i < q->count; i++) {
        (void)buf_addf(key, "/%d/", q->lengths[i]);
        (void)buf_add(key, slice_of(q->values[i], (size_t)q->lengths[i]));
    }
}

/* Fails with -EAGAIN, and with the connection's error if it has one. */
static int not_yet(struct engine_search *e)
{
    const char *words = reader_error(e->reader);

    return spool_fail(e->base.sp, -EAGAIN, "the database has not answered%s%s",
                      words[0] != '\0' ? ": " : "", words);
}

static int send(struct engine_search *e, struct cluster_query *q, struct buf *key)
{
    struct link_param params[CLUSTER_QUERY_PARAMS_MAX];
    struct committer_batch *b = committer_batch_new();
    struct search *s = mem_new(sizeof *s);

    s->sql = mem_string(buf_cstr(&q->sql));
    s->key = *key;
    for (int i = 0; i < q->count; i++) {
        params[i] = (struct link_param){
            .bytes = q->values[i], .len = (size_t)q->lengths[i], .is_binary = true};
    }
    committer_batch_add(b, s->sql, params, q->count);
    TAILQ_INSERT_TAIL(&e->searches, s, next);
    e->count++;
    reader_ask(e->reader, b, s);
    return not_yet(e);
}

static int ask(struct cluster_search *base, struct cluster_query *q)
{
    struct engine_search *e = (struct engine_search *)base;
    struct search *s;
    struct buf key;
    int err = 0;

    CHECK(!q->sql.failed);
    key_of(q, &key);
    forget_some(e);
    s = key.failed ? NULL : find(e, buf_slice(&key));
    if (s != NULL && s->answer != NULL) {
        s->is_given = true;
        base->last = s->answer;
    } else if (s != NULL) {
        err = not_yet(e);
    } else if (key.failed || e->count >= ENGINE_SEARCHES_MAX) {
        err = spool_fail(base->sp, -EBUSY, "too much is asked at once");
    } else {
        err = send(e, q, &key);
        buf_init(&key, 0);
    }
    buf_fini(&key);
    cluster_query_fini(q);
    return err;
}

static void on_answer(void *arg, void *question, unsigned n, const PGresult *result)
{
    struct search *s = question;

    (void)arg;
    (void)n;
    PQclear(s->answer);
    s->answer = PQcopyResult(result, PG_COPYRES_ATTRS | PG_COPYRES_TUPLES);
    s->answered = boot_now().us;
    CHECK(s->answer != NULL); /* out of memory */
}

static void on_end(void *arg, void *question, bool answered)
{
    (void)question;
    ((struct engine_search *)arg)->has_come = answered;
}

struct engine_search *engine_search_new(int epoll_fd, const struct link_target *target,
                                        struct spool *sp)
{
    static const struct reader_owner owner = {.answer = on_answer, .end = on_end};
    struct engine_search *e = mem_new(sizeof *e);

    e->base.sp = sp;
    e->base.ask = ask;
    TAILQ_INIT(&e->searches);
    e->reader = reader_new(epoll_fd, target, &owner, e);
    return e;
}

void engine_search_free(struct engine_search *e)
{
    struct search *s;

    if (e == NULL) {
        return;
    }
    reader_free(e->reader);
    while ((s = TAILQ_FIRST(&e->searches)) != NULL) {
        search_free(e, s);
    }
    cluster_search_fini(&e->base);
    mem_free(e);
}

struct cluster_search *engine_search_of(struct engine_search *e)
{
    return &e->base;
}

void engine_search_turn(struct engine_search *e)
{
    reader_turn(e->reader);
}

bool engine_search_has_come(struct engine_search *e)
{
    bool has_come = e->has_come;

    e->has_come = false;
    return has_come;
}
