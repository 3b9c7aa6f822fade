#include "fetch.h"

#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "dialect.h"
#include "dns_answer.h"
#include "dns_link.h"
#include "host_addresses.h"
#include "https_call.h"
#include "log.h"
#include "mem.h"
#include "printable.h"
#include "resolver.h"
#include "sts.h"
#include "tls.h"
#include "worker.h"

_Static_assert(WIRE_POLICY_MAX == STS_POLICY_MAX && WIRE_POLICY_ID_MAX == STS_ID_MAX, "as long");

/* Number of TXT records of a name that are read, and size of each, in bytes. */
#define RECORDS_MAX 32u
#define RECORD_MAX  4096u

enum job_state {
    JOB_RECORD,    /* waiting for the TXT record */
    JOB_LINE,      /* waiting until fewer than FETCH_AT_ONCE jobs call hosts */
    JOB_ADDRESSES, /* waiting for the host's addresses */
    JOB_GET,       /* calling the host */
};

/* Look-up of a policy. */
struct job {
    TAILQ_ENTRY(job) next;
    struct fetch *fetch;
    enum job_state state;
    char domain[WIRE_DOMAIN_MAX + 1];
    char known[STS_ID_MAX + 1], id[STS_ID_MAX + 1];
    bool always;
    struct resolver_query *query; /* in JOB_RECORD */
    struct host_addresses *addresses;
    struct https_call *get;
    struct event *timer; /* ends JOB_ADDRESSES and JOB_GET */
    struct mono until;
};
TAILQ_HEAD(job_list, job);

struct fetch {
    struct worker worker;
    struct role *role;
    struct dns_link *dns;
    struct resolver *resolver;
    struct buf system; /* certificates of the system's authorities */
    struct job_list jobs;
    size_t job_count;
    size_t talking; /* number of jobs in JOB_ADDRESSES or JOB_GET */
};

/* ---- jobs ----------------------------------------------------------------------------------- */

static bool talks(const struct job *job)
{
    return job->state == JOB_ADDRESSES || job->state == JOB_GET;
}

static void job_free(struct job *job)
{
    struct fetch *f = job->fetch;

    f->talking -= talks(job);
    f->job_count--;
    TAILQ_REMOVE(&f->jobs, job, next);
    resolver_cancel(job->query);
    host_addresses_free(job->addresses);
    https_call_free(job->get);
    if (job->timer != NULL) {
        event_free(job->timer);
    }
    mem_free(job);
}

/* Sends the answer and frees the job. */
static void answer(struct job *job, enum wire_fetch_outcome outcome, struct slice policy,
                   const char *why)
{
    struct wire_fetched m = {.domain = slice_string(job->domain),
                             .outcome = outcome,
                             .id = slice_string(job->id),
                             .policy = policy,
                             .why = slice_string(why)};

    if (job->fetch->worker.queue != NULL) {
        wire_put_fetched(job->fetch->worker.queue, &m);
    }
    job_free(job);
}

static void fail(struct job *job, enum wire_fetch_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct job *job, enum wire_fetch_outcome outcome, const char *format, ...)
{
    char why[WIRE_TEXT_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args); /* may be cut */
    va_end(args);
    printable_fix(why, strlen(why)); /* may contain text of hosts */
    answer(job, outcome, slice_of("", 0), why);
}

/* ---- the policy ----------------------------------------------------------------------------- */

static void on_get(void *arg, struct https_call *get)
{
    struct job *job = arg;
    struct sts_policy policy;
    const char *why = https_call_error(get);
    struct buf text;

    if (why != NULL) {
        fail(job, FETCH_FAILED, "%s%s%s: %s", STS_HOST_PREFIX, job->domain, STS_POLICY_PATH, why);
        return;
    }
    if (!sts_policy_parse(https_call_body(get), &policy, &why)) {
        fail(job, FETCH_FAILED, "%s%s%s is no policy: %s", STS_HOST_PREFIX, job->domain,
             STS_POLICY_PATH, why);
        return;
    }
    buf_init(&text, STS_POLICY_MAX);
    CHECK(sts_policy_put(&policy, &text));
    answer(job, FETCH_POLICY, buf_slice(&text), "");
    buf_fini(&text);
}

static struct slice authorities(const struct fetch *f)
{
    const char *path = f->role->conf->mta_sts_CAfile;

    return path[0] == '\0' ? buf_slice(&f->system) : role_file(f->role, slice_string(path));
}

static void get_policy(struct job *job)
{
    char host[sizeof STS_HOST_PREFIX + WIRE_DOMAIN_MAX];
    struct https_request request = {.host = host,
                                    .port = (unsigned)job->fetch->role->conf->mta_sts_port,
                                    .path = STS_POLICY_PATH,
                                    .addresses = host_addresses_text(job->addresses),
                                    .authorities = authorities(job->fetch),
                                    .size_max = STS_POLICY_MAX};

    (void)snprintf(host, sizeof host, "%s%s", STS_HOST_PREFIX, job->domain); /* fits */
    job->state = JOB_GET;
    job->get = https_call_new(job->fetch->role->base, &request, on_get, job);
    if (job->get == NULL) {
        fail(job, FETCH_FAILED, "%s: libcurl does not take the request", host);
    }
}

/* ---- the host's addresses ------------------------------------------------------------------- */

static void on_addresses(void *arg, struct host_addresses *addresses)
{
    struct job *job = arg;

    if (host_addresses_text(addresses)[0] != '\0') {
        get_policy(job);
    } else {
        fail(job, FETCH_FAILED, "%s%s: %s", STS_HOST_PREFIX, job->domain,
             host_addresses_why(addresses));
    }
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct job *job = arg;

    (void)fd;
    (void)what;
    fail(job, FETCH_FAILED, "%s%s: no policy within %lld s", STS_HOST_PREFIX, job->domain,
         (long long)(FETCH_TIMEOUT_US / US_PER_S));
}

static void talk(struct job *job)
{
    const struct timeval limit = {.tv_sec = FETCH_TIMEOUT_US / US_PER_S};
    const struct conf *conf = job->fetch->role->conf;
    char host[sizeof STS_HOST_PREFIX + WIRE_DOMAIN_MAX];

    (void)snprintf(host, sizeof host, "%s%s", STS_HOST_PREFIX, job->domain); /* fits */
    job->state = JOB_ADDRESSES;
    job->fetch->talking++;
    job->timer = evtimer_new(job->fetch->role->base, on_deadline, job);
    CHECK(job->timer != NULL);
    CHECK(event_add(job->timer, &limit) == 0);
    job->until = mono_after(clock_mono(), FETCH_TIMEOUT_US);
    job->addresses = host_addresses_new(job->fetch->resolver, conf, slice_string(host),
                                        !conf->mta_sts_private_addresses, on_addresses, job);
}

static void talk_next(struct fetch *f)
{
    struct job *job = TAILQ_FIRST(&f->jobs), *next;

    while (job != NULL && f->talking < FETCH_AT_ONCE) {
        next = TAILQ_NEXT(job, next);
        if (job->state == JOB_LINE) {
            talk(job);
        }
        job = next;
    }
}

/* ---- the record ----------------------------------------------------------------------------- */

/* Does the domain announce a policy? If so, sets job->id. */
static bool find_record(struct job *job, struct slice packet)
{
    struct slice data[RECORDS_MAX], texts[RECORDS_MAX], id;
    struct buf room[RECORDS_MAX];
    size_t count = 0, used = 0;
    bool found = false;

    /* More records are an error, as 64 KiB have room for many. */
    if (!dns_answer_records(packet, RESOLVER_TXT, data, RECORDS_MAX, &count) ||
        count > RECORDS_MAX) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        buf_init(&room[used], RECORD_MAX);
        if (dns_answer_text(data[i], &room[used])) {
            texts[used] = buf_slice(&room[used]);
            used++;
        } else {
            buf_fini(&room[used]);
        }
    }
    found = sts_record_find(texts, used, &id);
    if (found) {
        memcpy(job->id, id.ptr, id.len);
        job->id[id.len] = '\0';
    }
    for (size_t i = 0; i < used; i++) {
        buf_fini(&room[i]);
    }
    return found;
}

static void on_record(void *arg, const struct resolver_answer *said)
{
    struct job *job = arg;

    job->query = NULL;
    if (said->outcome == RESOLVER_AGAIN) {
        fail(job, FETCH_NO_DNS, "%s%s: no name server has an answer", STS_RECORD_PREFIX,
             job->domain);
    } else if (said->outcome == RESOLVER_NO_NAME || !find_record(job, said->packet)) {
        answer(job, FETCH_NO_RECORD, slice_of("", 0), "");
    } else if (strcmp(job->id, job->known) == 0 && !job->always) {
        answer(job, FETCH_SAME, slice_of("", 0), "");
    } else {
        job->state = JOB_LINE; /* fetch_turn calls the host */
    }
}

/* ---- the queue process ---------------------------------------------------------------------- */

static bool on_fetch(struct fetch *f, struct slice body)
{
    char name[sizeof STS_RECORD_PREFIX + WIRE_DOMAIN_MAX];
    struct wire_fetch m;
    struct job *job;

    if (!wire_get_fetch(body, &m) || f->job_count == WIRE_FETCHES_MAX ||
        !sts_domain_valid(m.domain) || (m.id.len > 0 && !sts_id_valid(m.id))) {
        return false;
    }
    job = mem_new(sizeof *job);
    job->fetch = f;
    job->always = m.always;
    memcpy(job->domain, m.domain.ptr, m.domain.len);
    memcpy(job->known, m.id.ptr, m.id.len);
    TAILQ_INSERT_TAIL(&f->jobs, job, next);
    f->job_count++;
    (void)snprintf(name, sizeof name, "%s%s", STS_RECORD_PREFIX, job->domain); /* fits */
    job->query = resolver_ask(f->resolver, slice_string(name), RESOLVER_TXT, on_record, job);
    return true;
}

static void drop_jobs(struct fetch *f)
{
    struct job *job;

    while ((job = TAILQ_FIRST(&f->jobs)) != NULL) {
        job_free(job);
    }
}

static bool on_frame(void *arg, const struct frame *frame)
{
    if (frame->fd >= 0) {
        (void)close(frame->fd); /* frames to this process have no descriptor */
        return false;
    }
    return frame->type == WIRE_FETCH && on_fetch(arg, frame->body);
}

static void on_lost(void *arg)
{
    drop_jobs(arg); /* the queue process sends its requests again */
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

/* ---- the role ------------------------------------------------------------------------------- */

static int fetch_start(struct role *role)
{
    struct fetch *f = mem_new(sizeof *f);

    role->state = f;
    f->role = role;
    TAILQ_INIT(&f->jobs);
    f->dns = dns_link_new(role->base);
    f->resolver = resolver_over(role->base, f->dns, false);
    tls_read_system_authorities(&f->system);
    https_begin();
    worker_init(&f->worker, role, &queue_ops, f);
    return EX_OK;
}

static void fetch_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct fetch *f = role->state;

    if (peer->role == ROLE_RESOLVE) {
        dns_link_peer(f->dns, fd);
    } else {
        worker_peer(&f->worker, peer, fd);
    }
}

/* Keeps jobs in flight unchanged. If mta_sts_port has changed, ends the process, as only a new one
 * may connect to another port (confine.h). The queue process repeats its requests to the new
 * one. */
static void fetch_reload(struct role *role, const struct conf *old)
{
    if (conf_differs(old, role->conf, "mta_sts_port")) {
        log_info("mta_sts_port has changed: starting over");
        role_exit(role, 0);
    }
}

/* Jobs in flight are dropped, as no mail depends on them: the queue process stops, too. */
static void fetch_stop(struct role *role)
{
    role_exit(role, 0);
}

static void fetch_clock_moved(struct role *role)
{
    struct fetch *f = role->state;
    struct job *job, *next;

    for (job = TAILQ_FIRST(&f->jobs); job != NULL; job = next) {
        next = TAILQ_NEXT(job, next);
        if (talks(job) && mono_reached(job->until, clock_mono())) {
            on_deadline(-1, EV_TIMEOUT, job);
        }
    }
}

static void fetch_turn(struct role *role)
{
    struct fetch *f = role->state;

    talk_next(f);
    worker_tick(&f->worker, false);
}

static void fetch_end(struct role *role)
{
    struct fetch *f = role->state;

    worker_fini(&f->worker);
    drop_jobs(f);
    resolver_free(f->resolver);
    dns_link_free(f->dns);
    buf_fini(&f->system);
    mem_free(f);
}

static unsigned fetch_count(const struct conf *conf)
{
    return policy_wants_sts(conf) ? 1 : 0;
}

const struct role_ops fetch_role = {
    .role = ROLE_FETCH,
    .program = "fetch",
    .kind = ROLE_WORKS,
    .is_exposed = true,
    .count = fetch_count,
    .start = fetch_start,
    .peer = fetch_peer,
    .reload = fetch_reload,
    .stop = fetch_stop,
    .clock_moved = fetch_clock_moved,
    .turn = fetch_turn,
    .end = fetch_end,
};
