/*
 * The queue process: spool and scheduler wired together. It holds the database and has no network.
 *
 *   WIRE_SUBMIT --> spool_submit --+                        +--> WIRE_SUBMIT_DONE, sched_open
 *   WIRE_RESULT --> settle, -------+--> one spool_commit ---+
 *                   sched_finished |        per turn        +--> (next turn)
 *   sched_next  --> defer, end ----+
 *          +------> WIRE_DELIVER (of committed messages only)
 *
 * What changes the spool goes through a list of steps (struct step): each is applied to the open
 * batch when it arises, and the list is what is done again if the commit fails. Submissions are not
 * done again, their clients are refused for now; results are, until they are stored, because the
 * mail has been delivered. While results wait like that nothing new is accepted or delivered, so
 * their number is bounded by what was in flight.
 *
 * A submission is committed in the turn it comes in, because somebody waits for the answer. Results
 * alone wait QUEUE_COMMIT_WAIT_US for a submission whose sync they can share: nobody waits for
 * them, and a crash in that time repeats what a crash in the sync would have repeated.
 *
 * This header is shared by queue.c (turns: what comes in from the spool, decisions, commits),
 * queue_step.c (steps), queue_client.c (those who bring mail), queue_agent.c (deliveries go out),
 * queue_result.c (what came of them), queue_thread.c (when they go again), queue_route.c (where
 * recipients go), queue_news.c (what others do to the spool), queue_pass.c (a message's pass: load,
 * end), queue_report.c (reports), queue_park.c (mail that waits on disk for its destination's
 * share), queue_ask.c (questions and commands of operators), queue_gate.c and queue_why.c (why mail
 * waits).
 */
#ifndef DAEMON_QUEUE_H
#define DAEMON_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "active.h"
#include "agent_table.h"
#include "auditor.h"
#include "busiest.h"
#include "channel.h"
#include "class_count.h"
#include "conf.h"
#include "expiry.h"
#include "hash.h"
#include "history.h"
#include "outlet.h"
#include "retry.h"
#include "rng.h"
#include "role.h"
#include "route.h"
#include "scheduler.h"
#include "spool.h"
#include "statistics.h"
#include "thread.h"
#include "tuning.h"
#include "wire.h"

struct event;

/* How many messages are imported from the spool in one turn, at most. */
#define QUEUE_IMPORTS_PER_TURN 64
/* Content on its way to agents; beyond it they ask for it when they need it. */
#define QUEUE_INLINE_MAX (64u << 20)
/* Unclaimed new mail at which clients are slowed down. */
#define QUEUE_BEHIND 200
/* Threads that are looked at in one turn, at most. */
#define THREADS_PER_TURN 100
/* Destinations that are remembered, beside those that have mail in the scheduler. */
#define QUEUE_SITES_MAX 50000
/* Messages remembered as asked for; of more, defer_transports holds for the rest. */
#define QUEUE_WANTED_MAX 100000
/* A message that could not be read for a damaged page is tried again after that. */
#define QUEUE_UNREADABLE_US (600 * US_PER_S)
/* How long results wait for a submission to be committed with. */
#define QUEUE_COMMIT_WAIT_US (2 * US_PER_MS)
/* How long a process that died may take to come back before its mail is deferred. */
#define QUEUE_AGENT_WAIT_US (10 * US_PER_S)

/* How a message leaves the active queue. */
enum pass_how {
    PASS_TRIED,   /* all that is pending was tried, or its destination is dead */
    PASS_UNTRIED, /* some of it was not: it goes on at once */
    PASS_DROPPED, /* an operator ended its claim; results came all the same */
    PASS_PARKED,  /* all that is pending waits for one destination, step.parked */
    PASS_REPORT,  /* nothing is pending: all that is left is to report */
};

enum step_type {
    STEP_SUBMIT,    /* not done again */
    STEP_SETTLE,    /* a recipient's result */
    STEP_PUT_OFF,   /* recipients wait by themselves: parked, again_at */
    STEP_ALL_DONE,  /* every recipient went through: delete the message */
    STEP_END_PASS,  /* reports, expiry, then delete, park or defer the message */
    STEP_SET_ASIDE, /* its rows make no sense */
};

struct step {
    STAILQ_ENTRY(step) next;
    enum step_type type;
    struct msg_id id;
    /* STEP_SUBMIT */
    struct channel *from; /* NULL: gone, or a report of ours */
    uint64_t token;
    struct active_msg *msg; /* to be opened after the commit; NULL: stays on disk */
    /* STEP_SETTLE */
    uint32_t n;
    struct spool_verdict verdict;
    char *strings; /* owned: what the verdict's slices point to; of STEP_SET_ASIDE, the reason; of
                       STEP_ALL_DONE, the message's name */
    /* STEP_PUT_OFF */
    uint32_t *ns; /* owned */
    size_t ns_count;
    /* STEP_END_PASS */
    enum pass_how how;
    char *parked;         /* owned: of PASS_PARKED and STEP_PUT_OFF, the key */
    struct wall again_at; /* not after this time; us 0: none was found */
    bool again_else;      /* nor after the message's own back-off */
    bool own_expiry;      /* what waits has an age limit of its own */
};

/* The clock was set, and the times of messages with after < id <= last are stored as they were. */
struct clock_walk {
    int64_t by_us;
    bool is_clamp; /* only times in the future are wrong */
    struct msg_id after, last;
    uint64_t moved;
};
#define QUEUE_WALKS_MAX 8

struct flush;
struct resync;
struct admission;

/* What a destination is to us. */
struct site {
    char *key;               /* owned: "transport-index/destination" */
    char *nexthop;           /* owned: as written, for the agent */
    const char *destination; /* in the key */
    uint32_t transport;
    enum conf_agent agent;
    bool has_clause;
    bool has_command; /* a transport agent can be started for it */
    struct tuning_dest tuning;
    struct thread_rules rules;
    struct expiry_rules expiry;
    struct mono next_clog_warning;
    UT_hash_handle hh;
};

/* A message that was asked for: defer_transports does not hold for its next pass. */
struct wanted {
    struct msg_id id;
    UT_hash_handle hh;
};

struct agent {
    struct channel *channel; /* NULL: being restarted */
    enum wire_role role;
    unsigned index;
    struct queue *queue;
    struct mono lost; /* when the channel went away */
};

#define QUEUE_AGENTS_MAX  128
#define QUEUE_CLIENTS_MAX 128

struct queue {
    struct role *role;
    const struct conf *conf;
    struct spool *spool;
    struct sched *sched;
    struct active active;
    struct history history;
    struct auditor auditor;
    struct busiest busiest;
    struct agent_table agent_table; /* for those who ask */
    struct outlet outlets[OUTLET_COUNT];
    struct rng rng;
    STAILQ_HEAD(, step) batch; /* applied, not committed */
    STAILQ_HEAD(, step) redo;  /* results whose commit failed */
    struct site *sites;
    struct threads threads;
    struct wall started;                      /* mail that is older wakes nothing */
    int64_t clock_offset_us;                  /* wall less mono, when they were last compared */
    struct clock_walk walks[QUEUE_WALKS_MAX]; /* one after the other */
    unsigned walk_count;
    struct mono next_walk;
    struct wanted *wanted;
    struct unreadable *unreadable; /* see queue_damage.c */
    size_t sites_trim_at;          /* so many: forget those without mail */
    char **transports;             /* scheduler index -> name, owned */
    enum conf_agent *transport_agents;
    uint32_t transport_count;
    struct agent agents[QUEUE_AGENTS_MAX];
    unsigned agent_count;
    unsigned deliver_count;
    struct channel *clients[QUEUE_CLIENTS_MAX]; /* receive processes and the parent */
    struct channel *control;
    struct event *timer;
    struct event *news; /* NULL: the spool has none */
    bool looked;        /* all of the spool has been looked through once */
    bool pass_ended;    /* postoffice_files: the parent has been told */
    struct wall poll_at;
    STAILQ_HEAD(, resync) resyncs;
    char *spool_strings[4]; /* owned: options that the spool borrows */
    struct wire_flow flow;
    bool flow_sent;
    struct wall next_due;   /* a lower bound of the earliest unclaimed message's due time */
    struct mono commit_by;  /* results in the batch wait no longer; us 0: none wait */
    struct mono next_check; /* of free space, and of a failed storage */
    struct mono next_full_warning;
    struct mono stop_at;  /* when stopping: give up on what is in flight */
    bool import_deferred; /* whose turn it is: new or deferred mail */
    bool incoming_waits;  /* unclaimed new mail is on disk: newer mail must not overtake it */
    uint64_t commits, submitted, delivered, deferred, bounced, expired, reports; /* since start */
    struct class_counts class_counts;
    uint64_t completed; /* control files that came to their end */
    uint64_t decided, imported;
    STAILQ_HEAD(, admission) admissions; /* queue_park.c: what the scheduler asks for */
    char *parked_told;            /* owned: keys up to this one were told to the scheduler, which
                                     knows nothing after a start; NULL: all were */
    struct mono next_tell;        /* of more of them, though there is other work */
    STAILQ_HEAD(, flush) flushes; /* queue_ask.c: domains whose mail is being made due */
    size_t flush_count;
};

/* ---- queue.c ---- */

/* Take a message out of memory, whatever is under way of it: results still count, its pass has no
 * end of its own any more. */
void queue_drop(struct queue *q, struct msg_id id);

/* Take it out of the scheduler but leave it to the spool as it is, to be claimed again. */
void queue_leave(struct queue *q, struct msg_id id);

/* The scheduler's index of a transport; the error transport's when nothing declares it. */
uint32_t queue_transport(struct queue *q, const char *name);

/* The same of a channel that a store names, made when missing; false: there are too many. */
bool queue_transport_need(struct queue *q, const char *name, uint32_t *ret_index);

/* ---- queue_step.c ---- */

/* How often free space and a failed storage are looked at. */
#define QUEUE_CHECK_PERIOD_US (1 * US_PER_S)

/* Apply a step to the open batch and remember it. Takes ownership. */
void queue_step(struct queue *q, struct step *step);
void queue_step_free(struct step *step);

/* Its commit failed: refuse a submission, keep a result for another time. Takes ownership. */
void queue_step_undone(struct queue *q, struct step *step, int rc);

/* Did the spool refuse this call alone, leaving the batch as it was? */
bool queue_refused(int rc);

/* Commit now what is in the batch, in the middle of a turn, for an answer that waits for it. 0, or
 * the negative errno with which all of it was undone. */
int commit_now(struct queue *q);

/* Store results whose commit failed, each in a batch of its own, so that one that can't be stored
 * does not hold up the others. */
void queue_redo(struct queue *q);

/* Set a message aside as corrupt. */
void queue_set_aside(struct queue *q, struct msg_id id, const char *reason);

/* ---- queue_client.c ---- */

/* A channel_event function; `arg` is the queue. */
void queue_on_client(void *arg, struct channel *ch);

/* Do what a client's frame asks for; its descriptor stays the caller's. False: it must not be. */
bool queue_client_frame(struct queue *q, struct channel *ch, const struct frame *frame);

/* Find out how the queue is doing, and tell the clients when that has changed. */
void queue_flow_update(struct queue *q);
void queue_flow_send(struct queue *q);

/* ---- queue_agent.c ---- */

/* SCHED_DELIVER. */
void queue_deliver(struct queue *q, const struct sched_action *action);

/* A channel_event function; `arg` is the struct agent. */
void queue_on_agent(void *arg, struct channel *ch);

/* An agent's process is gone. What it had is deferred; what waits for it goes on waiting. */
void queue_agent_lost(struct queue *q, struct agent *agent);

/* Give the agent what waits for it, or defer that when it has been away for too long. */
void queue_serve_waiting(struct queue *q, struct agent *agent);

/* ---- queue_result.c ---- */

/* Log and store what came of one recipient. `program` is the tag of the log line. */
struct queue_verdict {
    enum wire_verdict_kind kind;
    struct slice status, text, relay;
    bool attempted;
    bool sweep;          /* STEP_ALL_DONE follows: store nothing */
    bool suspended;      /* deferred without an attempt: its destination is dead */
    bool final_site;     /* the agent is the last stop: success is ours to report */
    bool again;          /* deferred: again_judge has seen to when it goes again */
    bool own_expiry;     /* deferred: its clause has an age limit */
    bool expired;        /* given up for its age */
    bool quiet;          /* no line in the log: another has settled it, or nothing is known yet */
    uint32_t word;       /* what a transport agent said: 1 + enum ta_status; 0: none spoke */
    struct slice notary; /* as agents/notary.h has it, or empty */
    const char *program;
    uint32_t pid; /* of a transport agent; 0: ours */
    int64_t setup_us, transmit_us;
    uint32_t conn_use;
    struct mono handed; /* for delays=; us 0: never handed to an agent */
};
void queue_settle(struct queue *q, struct active_msg *m, uint32_t n, const struct queue_verdict *v);

/* A line in the statistics log. Of *line, spoolid (empty: the id is the message's name), channel,
 * host and times are the caller's to set; `path` as of struct spool_message. */
void queue_statistics(struct queue *q, struct msg_id id, const char *word, struct slice path,
                      struct statistics_line *line);

/* The result of a flight. False: the agent broke the rules. */
bool queue_take_result(struct queue *q, struct agent *agent, const struct wire_result *m);

/* A flight ended without a word from its agent. The recipients are deferred, not tried at once: a
 * message that makes an agent crash must not do so again and again. */
void queue_flight_crashed(struct queue *q, struct flight *f, const char *why);

/* What was handed out comes back as it was: it is not settled, so the next pass finds it. */
void queue_flight_untried(struct queue *q, struct flight *f);

/* The same, as its thread was stopped meanwhile: it waits for the thread's time. */
void queue_flight_put_off(struct queue *q, struct flight *f);

/* The kind of agent that has it: a clause may name another than its transport's. */
enum conf_agent queue_flight_agent(const struct queue *q, const struct flight *f);

/* The tag of log lines of this kind of agent. */
const char *queue_agent_program(enum conf_agent agent);

/* ---- queue_thread.c ---- */

/* Recipients of one message, for one destination, that are not delivered now: when they go again,
 * and whether they go at all. */
struct again {
    struct active_msg *msg;
    const struct site *site; /* NULL: nothing is known of it */
    struct wall at;          /* W of the thread; us 0: it has none */
    struct wall limit;       /* the first of them is given up then */
    bool stopped;            /* an agent has said that nothing of the thread goes now */
    uint32_t *ns;            /* owned */
    size_t count, size;
    struct buf words;
};

void again_begin(struct again *a, struct active_msg *m, const struct site *site);
/* They were handed out, and this came of it; as thread_ran. */
void again_ran(struct queue *q, struct again *a, enum thread_end end, struct wall not_before);
/* They were not. */
void again_waits(struct queue *q, struct again *a);
/* Before the verdict (deferred) is settled: true, they go again; or false: it is too old for that,
 * and the verdict now is one of failure, its words lasting until the next call. */
bool again_judge(struct queue *q, struct again *a, uint32_t n, struct queue_verdict *v);
/* After that: those that go again are put off, or their message is. Ends `a`. */
void again_end(struct queue *q, struct again *a);

/* May mail of this message go to its destination now? May wake what waits for it, as new mail
 * does. */
bool queue_thread_lets_go(struct queue *q, const struct active_msg *m, const struct site *site);
/* Does the recipient stay behind, because its thread does not let it go, or for its age? It is then
 * put off, or given up. */
bool queue_thread_keeps(struct queue *q, struct active_msg *m, struct active_rcpt *r,
                        const struct site *site);

/* An agent has said that nothing of the thread goes now: what is in memory is put off, too. */
void queue_thread_suspend(struct queue *q, const struct site *site, struct wall until,
                          struct slice reason);

/* SCHED_DEFER for a destination whose thread says when it goes again; false: it has none. */
bool queue_thread_defers(struct queue *q, struct active_msg *m, const struct sched_action *action);

/* So many recipients were tried, and the scheduler knows. `site` may be NULL. */
void queue_thread_note(struct queue *q, const struct site *site, size_t tried);

/* Forget threads of which nothing is left. */
void queue_thread_turn(struct queue *q);

/* Mail for this destination ("nexthop" or "transport/nexthop") was asked for: its wait is over. */
void queue_thread_ask_for(struct queue *q, struct slice wanted);

/* Mail that has a route to nowhere is kept, and is looked at again after a reload. Settles it. */
void queue_stuck(struct queue *q, struct active_msg *m, uint32_t n, const struct route *route,
                 const char *why);
void queue_try_stuck(struct queue *q);

/* ---- queue_route.c ---- */

/* Where a recipient goes; its route is stored if that has changed. `m` says if it was asked for.
 * NULL when it goes nowhere: *ret_why then says why, which happens to routes that the store has
 * fixed; *ret_route is set all the same, its transport then lasting as long as the recipient. */
struct site *queue_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                         struct route *ret_route, const char **ret_why);

/* What queue_route does with a route that was found by the table: mail of defer_transports is
 * deferred until it is asked for. */
void queue_route_hold_back(const struct conf *conf, struct route *route);

/* ---- queue_news.c ---- */

/* Look at what others have written to the spool, if it is time; outside a batch. */
void queue_news_begin(struct queue *q);
void queue_news_end(struct queue *q);
/* What the spool is to know; lasts as long as the queue. */
void queue_news_options(struct queue *q, struct spool_postoffice_options *ret_options);
void queue_news_options_free(struct queue *q);
void queue_news_turn(struct queue *q);
/* Look in the next turn, whenever it would be time. */
void queue_news_look(struct queue *q);
/* Say what has happened. */
void queue_news_tell(struct queue *q);

/* Read this control file again, as soon as there is no batch. */
void queue_news_resync(struct queue *q, struct slice path);

/* ---- queue_pass.c ---- */

/* A message was claimed: read it into memory and open it in the scheduler, or park it. `admitted`:
 * the scheduler has asked for it and has a place for it. True when it was opened. */
bool pass_load(struct queue *q, struct msg_id id, bool admitted);

/* Answer SCHED_READ. */
void pass_read(struct queue *q, struct active_msg *m, uint32_t max);

/* Apply STEP_END_PASS. 0 or negative errno of the spool. */
int pass_end(struct queue *q, const struct step *step);
/* Apply STEP_PUT_OFF, likewise. */
int pass_put_off(struct queue *q, const struct step *step);

/* Open a message that was submitted with its claim, after its commit, or was loaded. When it can't
 * be opened any more it goes back to disk: false. */
bool pass_open(struct queue *q, struct active_msg *m, bool admitted);

/* Is there a place in memory for any message? Others may be reserved. */
bool pass_has_place(const struct queue *q);

/* Take over a submission. 0, or a negative errno. *ret_msg is set when it is to be opened. */
int pass_submit(struct queue *q, const struct wire_submit *m, int fd, struct msg_id *ret_id,
                struct active_msg **ret_msg);

/* Remember that somebody asked for a message on disk (flush, ETRN). */
void pass_want(struct queue *q, struct msg_id id);
void pass_wanted_free(struct queue *q);

/* What is known of the destination of a route; made when missing. */
struct site *pass_site(struct queue *q, uint32_t transport, const char *destination,
                       const char *nexthop);
struct site *pass_site_find(struct queue *q, uint32_t transport, struct slice destination);
void pass_sites_free(struct queue *q);
/* Give all of them the policies of a new configuration. */
void pass_sites_reload(struct queue *q);
/* Give the classes of mail in memory their weights of a new configuration. */
void pass_classes_reload(struct queue *q);

/* ---- queue_report.c ---- */

/* What people call the message: its store's name for it, or its queue id. */
#define QUEUE_NAME_MAX 128
const char *queue_message_name(const struct spool_message *m, char room[QUEUE_NAME_MAX]);

/* Tell the sender, in the open batch, of the recipients that are to be reported, and note that it
 * was told. In a batch that is lost both are. 0 or negative errno of the spool. */
int report_results(struct queue *q, const struct spool_message *m);

/* Tell the sender of the delay of mail that is `age_us` old, if it is time for that and was not
 * done; `until` is when it will be given up. */
int report_delay(struct queue *q, const struct spool_message *m, int64_t age_us, struct wall until);

/* A line about a message as a whole, to our log and, with scheduler_syslog, to syslog. */
void report_line(struct queue *q, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line for the file in which a message's sender follows what becomes of it (spool_verbose). */
void report_verbose(struct queue *q, struct msg_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- queue_clock.c ---- */

void queue_clock_begin(struct queue *q);
/* Was the wall clock set since the last time? Called first at each event that comes from the loop.
 */
void queue_clock_look(struct queue *q);
/* What is to be added to the times of this message, as the spool has them. */
int64_t queue_clock_pending(const struct queue *q, struct msg_id id);
bool queue_clock_is_walking(const struct queue *q);
/* Move the times of some messages in the spool; true when there are more. */
bool queue_clock_walk(struct queue *q);

/* ---- queue_park.c ---- */

/* The longest key: a transport's name, a slash, a destination, a tab and a class. */
#define PARK_KEY_MAX (SPOOL_ROUTE_MAX + 1 + SCHED_DEST_NAME_MAX + 1 + SCHED_CLASS_NAME_MAX)

/* The one destination of all routes that were looked at, if there is one. Zeroed at first. */
struct park_target {
    uint64_t routes;
    bool several; /* destinations: the message is not to be parked */
    uint32_t transport;
    char dest[ROUTE_DESTINATION_MAX + 1];
};
void park_target_add(struct queue *q, struct park_target *t, const struct route *route);
/* The key to park the message under, to be freed; NULL when it is to be opened. */
char *park_target_full(const struct queue *q, const struct park_target *t, struct slice class_name);

/* As park_key.h has it; to be freed. */
char *park_key(const struct queue *q, uint32_t transport, struct slice dest,
               struct slice class_name);
/* Is mail with this key to stay on disk? */
bool park_is_full(const struct queue *q, struct slice key);
/* Does the scheduler know that mail is parked under it? True for a key that means nothing to it. */
bool park_is_known(const struct queue *q, struct slice key);
/* Something was parked under this key. */
void park_tell(struct queue *q, struct slice key);

/* SCHED_ADMIT: answered by park_admit_some, after a commit: what is opened must be durable. */
void park_admit(struct queue *q, const struct sched_action *action);
/* Answer some; true when there are more. */
bool park_admit_some(struct queue *q);

/* After a start: tell the scheduler what is parked, bit by bit; true while there is more. */
void park_begin(struct queue *q);
bool park_tell_some(struct queue *q);
void park_end(struct queue *q);

/* ---- queue_damage.c ---- */

/* The message is on pages that can't be read or written, and is claimed: it stays so, until it is
 * tried again, or until the next start. */
void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again);
bool damage_is_hidden(const struct queue *q, struct msg_id id);
/* Those whose time has come; to be called now and then. */
void damage_try_again(struct queue *q);
void damage_end(struct queue *q);

/* ---- queue_why.c ---- */

/* The busiest destinations, as "sites" has them. */
json_t *why_busiest(struct queue *q);

/* Answer "why" (of a message), "sites" (all in memory, by pages) and "site" (one, with all that is
 * known of it). As listing_ask. */
unsigned why_message(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned why_sites(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned why_site(struct queue *q, const json_t *question, json_t **ret_answer);

/* ---- queue_ask.c ---- */

/* Answer one question of the control process. */
void ask_answer(struct queue *q, struct channel *control, const struct wire_ask *ask);

/* Make the mail of a domain due (ETRN), as far as one turn allows; true when there is more. */
bool ask_flush_some(struct queue *q);
void ask_flush_domain(struct queue *q, struct slice domain);

/* queue_threads.c: the threads of the mailq protocols, one page. */
unsigned ask_threads(struct queue *q, const json_t *question, json_t **ret_answer);
/* And messages as "list" and "show" have them, with the threads of their recipients. */
unsigned ask_vertices(struct queue *q, const json_t *question, json_t **ret_answer);

/* queue_dismiss.c: recipients of a thread leave, one page. */
enum dismiss_how { DISMISS_KILL, DISMISS_REROUTE };
unsigned ask_dismiss(struct queue *q, enum dismiss_how how, const json_t *question,
                     json_t **ret_answer);

/* Forget the flushes under way. */
void ask_end(struct queue *q);

#endif
