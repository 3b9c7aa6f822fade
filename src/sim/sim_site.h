/*
 * A simulated destination: its hosts, and what a client that wants to deliver there goes through.
 *
 *   attempt --> a host, at random among those not yet tried
 *                 |-- down, or too busy: refused, timed out or turned away --> next host, or failed
 *                 |-- all slots busy, room in the listen queue: waits there for a slot
 *                 |        `-- not greeted within the client's patience --> next host, or failed
 *                 `-- a slot: setup, then the delivery itself --> reached
 *
 * The hosts stand for the MX hosts of one preference. A connection that the client keeps (the
 * scheduler's hint, the configuration's times) goes on holding its slot, and the next delivery over
 * it needs no setup. An outage meets those who connect; what is under way ends as usual.
 *
 * Times are those of a struct sim_events; the only randomness is the site's own generator, so sites
 * do not disturb each other's numbers.
 */
#ifndef SIM_SITE_H
#define SIM_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "distribution.h"
#include "rng.h"
#include "sim_events.h"

#define SIM_HOSTS_MAX   64
#define SIM_OUTAGES_MAX 100

/* How a host fails those who connect. */
enum sim_down {
    SIM_DOWN_REFUSE, /* connection refused, at once */
    SIM_DOWN_HANG,   /* no answer: the client's connect_timeout */
    SIM_DOWN_MUTE,   /* connected but never greeted: the client's helo_timeout */
    SIM_DOWN_BUSY,   /* 421 instead of a greeting */
};
#define SIM_DOWN_WORDS "refuse|hang|mute|busy"

struct sim_outage {
    int64_t from_us, until_us;
    enum sim_down down;
};

/* What a site is like. */
struct sim_site_model {
    uint32_t hosts, bad;    /* 1..SIM_HOSTS_MAX, of which `bad` are down for good */
    enum sim_down bad_down; /* in this way */
    uint32_t slots;         /* sessions that one host serves at once; 0: no limit */
    uint32_t backlog;       /* connections beyond that wait for a slot, unseen; further ones ... */
    enum sim_down full;     /* ... meet this */
    struct distribution setup;     /* connecting, greeting, EHLO, TLS; also how long a refusal or
                                      a 421 takes */
    struct distribution latency;   /* of the transaction */
    struct distribution recipient; /* more of it, for each recipient */
    int64_t bandwidth;             /* bytes per second; 0: content takes no time */
    int64_t greylist_us;           /* a recipient is accepted so long after its first attempt */
    double fail, defer;            /* probabilities of 5xx and 4xx for a recipient */
    double limit;     /* recipients taken within limit_us, the rest gets 4xx; 0: no limit */
    int64_t limit_us; /* > 0 with a limit */
    struct sim_outage outages[SIM_OUTAGES_MAX];
    size_t outage_count;
};

/* 1 host, no limit, 100 ms. */
struct sim_site_model sim_site_model_default(void);
struct sim_site_model sim_site_model_copy(const struct sim_site_model *model);
void sim_site_model_fini(struct sim_site_model *model);

/* What the client's configuration says of the destination. */
struct sim_client {
    int64_t connect_timeout_us, greeting_timeout_us;
    uint32_t address_limit; /* hosts tried in one attempt */
    bool cache;             /* connections may be kept */
    int64_t cache_time_us, reuse_time_us;
    uint64_t reuse_count; /* 0: no limit */
};

enum sim_try {
    SIM_TRY_REACHED,
    SIM_TRY_REFUSED,
    SIM_TRY_CONNECT_TIMEOUT,
    SIM_TRY_GREETING_TIMEOUT,
    SIM_TRY_TURNED_AWAY, /* 421 */
    SIM_TRY_KINDS,
};

/* "connection refused" and so on, as a reason of the scheduler. */
const char *sim_try_text(enum sim_try result);

struct sim_connection;

/* One delivery of one entry; embed it in what knows the rest. */
struct sim_attempt {
    /* by the caller: */
    uint32_t rcpt_count;
    int64_t size_bytes;
    bool cache_load, cache_store;              /* the scheduler's hints */
    void (*done)(struct sim_attempt *attempt); /* called when `result` stands; may free it */
    /* by the site: */
    enum sim_try result; /* of the last host tried; SIM_TRY_REACHED: recipients get verdicts */
    struct sim_site *site;
    struct sim_event event;
    uint64_t tried; /* a bit per host */
    uint32_t tries, host;
    struct sim_connection *connection; /* while it is served */
    TAILQ_ENTRY(sim_attempt) waiting;
};

struct sim_host {
    uint32_t busy; /* slots taken */
    uint32_t waiting_count;
    bool bad;
    TAILQ_HEAD(, sim_attempt) waiting;
};

struct sim_site {
    const struct sim_site_model *model; /* borrowed */
    struct sim_client client;
    struct sim_events *events; /* borrowed */
    struct rng rng;
    struct sim_host *hosts;            /* owned; model->hosts of them */
    TAILQ_HEAD(, sim_connection) idle; /* kept connections, the latest first */
    uint64_t tries[SIM_TRY_KINDS];     /* of hosts, how they ended */
    uint64_t sessions;                 /* connections that were greeted */
    double spent;                      /* of model->limit; flows back with time */
    int64_t spent_us;                  /* when `spent` held */
};

/* `model` and `events` must outlive the site. */
void sim_site_init(struct sim_site *site, const struct sim_site_model *model,
                   const struct sim_client *client, struct sim_events *events, uint64_t seed);

/* No attempt may be under way, or its event must have been forgotten with its queue. */
void sim_site_fini(struct sim_site *site);

/* Begin; attempt->done comes later, never from here. */
void sim_site_start(struct sim_site *site, struct sim_attempt *attempt);

/* Give up an attempt that is under way, without `done`, when the world ends. */
void sim_site_abandon(struct sim_attempt *attempt);

enum sim_verdict { SIM_SENT, SIM_DEFERRED, SIM_BOUNCED };

/* What a site that was reached says to one recipient. `*first_us` is when it was first asked to
 * take this recipient (negative: never) and is set then. */
enum sim_verdict sim_site_verdict(struct sim_site *site, int64_t *first_us);

#endif
