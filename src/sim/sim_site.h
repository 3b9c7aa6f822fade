/*
 * A simulated destination: its hosts, and the course of a client's attempt to deliver there.
 *
 *   attempt --> a host, at random among those not yet tried
 *                 |-- down, or too busy: refused, timed out or turned away --> next host, or failed
 *                 |-- all slots busy, room in the listen queue: waits there for a slot
 *                 |        `-- not greeted within the client's patience --> next host, or failed
 *                 `-- a slot: setup, then the delivery itself --> reached
 *
 * The hosts stand for the MX hosts of one preference. A connection that the client keeps (by the
 * scheduler's hint and the configuration's times) keeps its slot, and the next delivery over it
 * needs no setup. An outage affects new connections; deliveries in flight end as usual.
 *
 * Times are those of a struct sim_events. The only randomness is the site's own generator, so sites
 * do not change each other's numbers.
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

/* How a host that is down fails new connections. */
enum sim_down {
    SIM_DOWN_REFUSE, /* connection refused, at once */
    SIM_DOWN_HANG,   /* no answer: the client's connect_timeout passes */
    SIM_DOWN_MUTE,   /* connected but never greeted: the client's helo_timeout passes */
    SIM_DOWN_BUSY,   /* 421 instead of a greeting */
};
#define SIM_DOWN_WORDS "refuse|hang|mute|busy"

struct sim_outage {
    int64_t from_us, until_us;
    enum sim_down down;
};

/* Properties of a site. */
struct sim_site_model {
    uint32_t hosts, bad;         /* number of hosts, 1..SIM_HOSTS_MAX, and of hosts that are always
                             * down */
    enum sim_down bad_down;      /* how bad hosts fail */
    uint32_t slots;              /* sessions that one host serves at once; 0: no limit */
    uint32_t backlog;            /* further connections that wait unanswered for a slot */
    enum sim_down full;          /* how connections beyond the backlog fail */
    struct distribution setup;   /* for connecting, greeting, EHLO, TLS; also the time of a
                                    * refusal or a 421 */
    struct distribution latency; /* of the transaction */
    struct distribution recipient; /* additional, for each recipient */
    int64_t bandwidth;             /* bytes per second; 0: content takes no time */
    int64_t greylist_us;           /* time from the first attempt until a recipient is accepted */
    double fail, defer;            /* probabilities of 5xx and 4xx for a recipient */
    double limit;     /* recipients accepted within limit_us, the others get 4xx; 0: no limit */
    int64_t limit_us; /* > 0 with a limit */
    struct sim_outage outages[SIM_OUTAGES_MAX];
    size_t outage_count;
};

/* Returns the default model: 1 host, no limit, 100 ms. */
struct sim_site_model sim_site_model_default(void);
struct sim_site_model sim_site_model_copy(const struct sim_site_model *model);
void sim_site_model_fini(struct sim_site_model *model);

/* Configuration of the client for the destination. */
struct sim_client {
    int64_t connect_timeout_us, greeting_timeout_us;
    uint32_t address_limit; /* maximum of hosts tried in one attempt */
    bool cache;             /* whether connections may be kept */
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

/* Returns "connection refused" and so on, as a reason for the scheduler. */
const char *sim_try_text(enum sim_try result);

struct sim_connection;

/* One delivery of one entry; embedded in the caller's own struct. */
struct sim_attempt {
    /* Set by the caller: */
    uint32_t rcpt_count;
    int64_t size_bytes;
    bool cache_load, cache_store;              /* hints of the scheduler */
    void (*done)(struct sim_attempt *attempt); /* called when `result` is final; may free the
                                                * attempt */
    /* Set by the site: */
    enum sim_try result; /* of the last host tried; SIM_TRY_REACHED: recipients get verdicts */
    struct sim_site *site;
    struct sim_event event;
    uint64_t tried; /* one bit per host */
    uint32_t tries, host;
    struct sim_connection *connection; /* while the attempt is served */
    TAILQ_ENTRY(sim_attempt) waiting;
};

struct sim_host {
    uint32_t busy; /* number of used slots */
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
    uint64_t tries[SIM_TRY_KINDS];     /* tries of hosts, by result */
    uint64_t sessions;                 /* number of connections that were greeted */
    double spent;                      /* used part of model->limit; decreases with time */
    int64_t spent_us;                  /* time at which `spent` was computed */
};

/* Initializes a site; `model` and `events` must outlive it. */
void sim_site_init(struct sim_site *site, const struct sim_site_model *model,
                   const struct sim_client *client, struct sim_events *events, uint64_t seed);

/* Frees the site. No attempt may run; otherwise the event queue must already be gone. */
void sim_site_fini(struct sim_site *site);

/* Starts an attempt; attempt->done is called later, never from here. */
void sim_site_start(struct sim_site *site, struct sim_attempt *attempt);

/* Ends a running attempt without `done`, when the world ends. */
void sim_site_abandon(struct sim_attempt *attempt);

enum sim_verdict { SIM_SENT, SIM_DEFERRED, SIM_BOUNCED };

/* Returns the reply of a site that was reached for one recipient. `*first_us` is the time of the
 * first attempt for this recipient (negative: none yet), which is then set. */
enum sim_verdict sim_site_verdict(struct sim_site *site, int64_t *first_us);

#endif
