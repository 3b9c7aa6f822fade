/*
 * What our processes say to each other: the types of frames and their fields.
 *
 *      parent ---- every other process     configuration, listeners, channels, stop
 *      receive --- queue                   submit
 *      parent ---- queue                   submit (what pickup found in maildrop)
 *      queue  ---- deliver, local          deliver, content, result
 *      queue  ---- agents                  deliver (without content), result, agent
 *      control --- queue                   ask, answer
 *      control --- parent                  reload, stop
 *
 * Each struct has wire_put_x, which sends it, and wire_get_x, which decodes a frame's body and is
 * false for anything that wire_put_x could not have written. Slices of decoded structs point into
 * the body and last as long as it does. Arrays of decoded structs are allocated from what the body
 * really holds, never from a number alone; free them with mem_free.
 */
#ifndef DAEMON_WIRE_H
#define DAEMON_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "class_name.h"
#include "envelope.h"
#include "slice.h"
#include "times.h"

enum wire_type {
    /* parent to a child, in this order at the start; CONF again at a reload */
    WIRE_CONF = 1, /* struct wire_conf */
    WIRE_LISTENER, /* struct wire_listener and the listening socket; repeated */
    WIRE_PEER,     /* struct wire_peer and a socket to that process; again when it was restarted */
    WIRE_START,    /* all has been sent: confine yourself and begin. No body */
    WIRE_STOP,     /* finish in good order, then exit with 0. u64 enum wire_stop */
    WIRE_CLOCK,    /* i64: microseconds to add to both clocks (tests only) */
    WIRE_LOG,      /* a new descriptor for log lines, after a rotation. No body */
    WIRE_LOOK,     /* to the queue: look at what may be pending, now. No body */
    WIRE_MAILQ,    /* to control: a socket that wants the answer of mailq protocol 1. No body */
    WIRE_CHILD,    /* to control: u64 pid of a process that talks to the network */
    WIRE_CHILD_ENDED, /* and when it has ended */
    WIRE_OUTLET,      /* to the queue: u64 enum outlet_id and the descriptor its lines go to */

    /* child to parent */
    WIRE_STARTED,       /* confined and working. No body */
    WIRE_RELOAD,        /* control: please reload. u64 token; answered with WIRE_RELOADED */
    WIRE_RELOADED,      /* parent to control: struct wire_reloaded */
    WIRE_STOP_ALL,      /* control, queue: please stop everything. No body */
    WIRE_SET_CLOCK,     /* control: i64; the parent passes it on with WIRE_CLOCK */
    WIRE_NEED_AUTHFILE, /* control: the authfile as it is now. No body */
    WIRE_AUTHFILE,      /* and the answer: struct wire_authfile */

    /* receive (or the parent's pickup) to queue, and back */
    WIRE_SUBMIT,      /* struct wire_submit, content inside or in the descriptor */
    WIRE_SUBMIT_DONE, /* struct wire_submit_done */
    WIRE_ETRN,        /* struct wire_etrn */
    WIRE_ETRN_DONE,   /* struct wire_etrn_done */
    WIRE_FLOW,        /* queue to receive: struct wire_flow */

    /* queue to deliver or local, and back */
    WIRE_DELIVER,      /* struct wire_deliver, content inside, in the descriptor, or on demand */
    WIRE_NEED_CONTENT, /* u64 entry: send its content */
    WIRE_CONTENT,      /* struct wire_content */
    WIRE_RESULT,       /* struct wire_result */
    WIRE_FORGET,       /* queue: drop cached connections to this destination (flush, reload).
                          struct wire_forget */
    WIRE_AGENT,        /* agents to queue: struct wire_agent */

    /* control to queue, and back */
    WIRE_ASK,    /* struct wire_ask */
    WIRE_ANSWER, /* struct wire_answer */
};

/* Who can be at the other end of a channel. */
enum wire_role {
    ROLE_PARENT,
    ROLE_RECEIVE,
    ROLE_QUEUE,
    ROLE_DELIVER,
    ROLE_LOCAL,
    ROLE_CONTROL,
    ROLE_AGENTS, /* runs transport agents of ZMailer's */
    ROLE_COUNT,
};

const char *wire_role_name(enum wire_role role);

#define WIRE_FILES_MAX   4096        /* files of a configuration */
#define WIRE_FILE_MAX    (16u << 20) /* bytes of one */
#define WIRE_URL_MAX     512
#define WIRE_TEXT_MAX    2048        /* a reply, a reason */
#define WIRE_TRACE_MAX   4096        /* a Received: header */
#define WIRE_HOST_MAX    1024        /* a next hop, a relay "host[ip]:port" */
#define WIRE_CONTENT_MAX (24u << 20) /* content inside a frame; more goes in a descriptor */
#define WIRE_PATH_MAX    272         /* a control file: hash directories and its name */
#define WIRE_NOTARY_MAX  16384       /* what an agent says for the report */
#define WIRE_RCPTS_MAX   500000u     /* recipients in one frame */
#define WIRE_JSON_MAX    (16u << 20)

/* How to stop. */
enum wire_stop {
    STOP_FINISH, /* let what runs end, up to shutdown_timeout */
    STOP_QUIT,   /* the same, and transport agents are told by SIGQUIT as well */
    STOP_COUNT,
};

/* The configuration as read by the parent: the main file first, then every file it names (included
 * files, tables, certificates), so that confined processes need no file. */
struct wire_file {
    struct slice path;
    struct slice bytes;
};
struct wire_conf {
    uint64_t generation; /* grows with every reload */
    const struct wire_file *files;
    uint32_t file_count;
};
void wire_put_conf(struct channel *ch, const struct wire_conf *m);
bool wire_get_conf(struct slice body, struct wire_conf *ret, struct wire_file **ret_files);

struct wire_listener {
    struct slice url; /* "smtp://127.0.0.1:2525" as configured */
};
void wire_put_listener(struct channel *ch, const struct wire_listener *m, int fd);
bool wire_get_listener(struct slice body, struct wire_listener *ret);

struct wire_peer {
    enum wire_role role;
    uint32_t index; /* among the processes of that role */
    uint32_t count; /* how many there are of that role */
};
void wire_put_peer(struct channel *ch, const struct wire_peer *m, int fd);
bool wire_get_peer(struct slice body, struct wire_peer *ret);

struct wire_reloaded {
    uint64_t token;
    bool ok;
    struct slice text; /* the errors, a line each, when not */
};
void wire_put_reloaded(struct channel *ch, const struct wire_reloaded *m);
bool wire_get_reloaded(struct slice body, struct wire_reloaded *ret);

/* What is in the authfile of the mailq protocol; nothing when it can't be read, or must not be
 * trusted. */
struct wire_authfile {
    struct slice text;
};
void wire_put_authfile(struct channel *ch, const struct wire_authfile *m);
bool wire_get_authfile(struct slice body, struct wire_authfile *ret);

/* A message to commit. */
struct wire_rcpt {
    struct slice address;
    struct slice orcpt;
    uint32_t notify;
};
struct wire_submit {
    uint64_t token; /* the sender's name for this submission */
    struct slice sender;
    struct slice envid;
    uint32_t flags; /* enum envelope_flag, without ENVELOPE_REPORT */
    struct wall arrived;
    struct slice client;     /* "name[ip]" or "userid N", for listing and log */
    uint32_t pid;            /* of the process that took it in, for the log */
    struct slice origin;     /* listener URL or "pickup": for the log */
    struct slice class_name; /* that the header or the listener gives it; empty: neither does */
    uint32_t class_source;   /* enum class_source: which of them; without a name, the field that
                                marks bulk mail, if there is one */
    struct slice trace;      /* header to put in front; "\1" in it becomes the queue id */
    const struct wire_rcpt *rcpts;
    uint32_t rcpt_count;
    struct slice content; /* all of it, or what comes before the descriptor's bytes */
    uint64_t fd_size;     /* bytes in the descriptor (a sealed memfd, offset 0), 0 = none came */
};
/* Is this memory of exactly `size` bytes that no process can change any more? */
bool wire_fd_is_sealed(int fd, uint64_t size);
void wire_put_submit(struct channel *ch, const struct wire_submit *m, int fd);
bool wire_get_submit(struct slice body, struct wire_submit *ret, struct wire_rcpt **ret_rcpts);

struct wire_submit_done {
    uint64_t token;
    uint32_t code;       /* 250, or the 4xx/5xx to answer with */
    struct slice status; /* "2.0.0" */
    struct slice text;   /* "Ok: queued as ..." or the reason */
    struct slice id;     /* queue id when committed */
};
void wire_put_submit_done(struct channel *ch, const struct wire_submit_done *m);
bool wire_get_submit_done(struct slice body, struct wire_submit_done *ret);

struct wire_etrn {
    uint64_t token;
    struct slice domain;
};
void wire_put_etrn(struct channel *ch, const struct wire_etrn *m);
bool wire_get_etrn(struct slice body, struct wire_etrn *ret);

struct wire_etrn_done {
    uint64_t token;
    uint32_t code;
    struct slice text;
};
void wire_put_etrn_done(struct channel *ch, const struct wire_etrn_done *m);
bool wire_get_etrn_done(struct slice body, struct wire_etrn_done *ret);

/* How the queue is doing, for those who accept mail. Sent when it changes. */
struct wire_flow {
    bool storage_ok; /* false: the last commit failed; answer 451 */
    bool space_ok;   /* false: less than queue_minfree; answer 452 */
    uint64_t free_bytes;
    bool behind; /* mail comes faster than it is taken in: delay clients by in_flow_delay */
};
void wire_put_flow(struct channel *ch, const struct wire_flow *m);
bool wire_get_flow(struct slice body, struct wire_flow *ret);

/* One entry to deliver. The deliverer knows transport policies from the configuration. */
struct wire_deliver_rcpt {
    uint32_t n;
    struct slice address;
    struct slice orcpt;
    uint32_t notify;
};
enum wire_content_place {
    CONTENT_INSIDE,    /* in the frame */
    CONTENT_FD,        /* in the descriptor that came with it */
    CONTENT_ON_DEMAND, /* ask with WIRE_NEED_CONTENT */
    CONTENT_NONE,      /* the agent finds it by itself, from `path` */
};
struct wire_deliver {
    uint64_t entry;
    struct slice transport;
    struct slice nexthop;
    struct slice id;   /* queue id */
    struct slice path; /* control file relative to transport/, "A/90417"; empty: there is none */
    struct slice sender;
    struct slice envid;
    uint32_t flags;
    struct wall arrived;
    bool cache_load, cache_store; /* look for, keep a cached connection */
    const struct wire_deliver_rcpt *rcpts;
    uint32_t rcpt_count;
    uint64_t size;
    enum wire_content_place place;
    struct slice content; /* all of it, or what comes before the descriptor's bytes */
};
void wire_put_deliver(struct channel *ch, const struct wire_deliver *m, int fd);
bool wire_get_deliver(struct slice body, struct wire_deliver *ret,
                      struct wire_deliver_rcpt **ret_rcpts);

void wire_put_need_content(struct channel *ch, uint64_t entry);
bool wire_get_need_content(struct slice body, uint64_t *ret_entry);

struct wire_content {
    uint64_t entry;
    bool ok;              /* false: it can't be read; give up the delivery as deferred */
    struct slice content; /* all of it, or what comes before the descriptor's bytes */
};
void wire_put_content(struct channel *ch, const struct wire_content *m, int fd);
bool wire_get_content(struct slice body, struct wire_content *ret);

/* What came of an entry: each recipient exactly once. */
enum wire_verdict_kind {
    VERDICT_SENT,
    VERDICT_RELAYED, /* sent to a site that does not do DSN; success was asked for */
    VERDICT_DEFERRED,
    VERDICT_BOUNCED,
    VERDICT_NONE, /* a transport agent has answered the job without a word about this one */
};
struct wire_verdict {
    uint32_t n;
    enum wire_verdict_kind kind;
    struct slice status; /* "2.0.0" */
    struct slice text;   /* as it stands in the log: "250 2.0.0 Ok", "host x[y] said: ..." */
    struct slice relay;  /* "mx.example[192.0.2.1]:25", "maildir", "none" */
    uint32_t word;       /* what a transport agent said: 1 + enum ta_status; 0: none spoke */
    struct slice notary; /* its record for the report, as it came (^A between fields), or empty */
};
enum wire_outcome {
    OUTCOME_OK,        /* the site was reached, whatever it said */
    OUTCOME_SITE_FAIL, /* site class failure: feeds the window */
    OUTCOME_CRASH, /* a transport agent has died, or could not be started: `reason`. Verdicts are
                      what it said before, VERDICT_NONE for the rest */
    OUTCOME_GIVEN_BACK /* not tried: the recipients go back unchanged; no verdicts. With
                          `thread_stops` they wait for their thread, else (shutdown) for nothing */
};
struct wire_result {
    uint64_t entry;
    enum wire_outcome outcome;
    struct slice reason;  /* of OUTCOME_SITE_FAIL: "4.4.1 connect to ...: Connection refused"; of
                             OUTCOME_CRASH: "transport agent /x/smtp ended with exit status 75" */
    int64_t setup_us;     /* hand-off to end of connection set-up (delays=.../c/) */
    int64_t transmit_us;  /* the rest (delays=.../d) */
    uint32_t conn_use;    /* n-th use of the connection; 0, 1 = first or none */
    struct slice tls;     /* description, or empty */
    bool maybe_duplicate; /* the connection was lost between the final dot and the reply */
    /* Of transport agents; else false and 0. */
    bool resync;              /* the control file is to be read again */
    bool thread_stops;        /* nothing more of this transport and next hop now */
    struct wall thread_until; /* not before this time; us 0: no time was given */
    uint32_t pid;             /* of the agent, for the log */
    const struct wire_verdict *verdicts;
    uint32_t verdict_count;
};
void wire_put_result(struct channel *ch, const struct wire_result *m);
bool wire_get_result(struct slice body, struct wire_result *ret,
                     struct wire_verdict **ret_verdicts);

/* How a transport agent is, for those who ask. Sent when it has changed, the last time with
 * `ended`.
 */
struct wire_agent {
    uint32_t pid;
    struct slice transport;
    struct slice host; /* next hop of the thread it works for, or has worked for; empty: none yet */
    uint32_t ring;     /* clause, as policy->ring */
    uint32_t state;    /* enum ta_state */
    uint32_t owed;     /* lines it has not answered */
    struct wall hungry, fed; /* when it asked last, when it was given a job; us 0: never */
    bool ended;
};
void wire_put_agent(struct channel *ch, const struct wire_agent *m);
bool wire_get_agent(struct slice body, struct wire_agent *ret);

struct wire_forget {
    struct slice transport; /* empty = all */
    struct slice nexthop;
};
void wire_put_forget(struct channel *ch, const struct wire_forget *m);
bool wire_get_forget(struct slice body, struct wire_forget *ret);

/* A question to the queue and its answer, both JSON texts; docs/api.md has the operations. Content
 * of a message (operation "cat") comes as a descriptor or as bytes. */
struct wire_ask {
    uint64_t token;
    struct slice json;
};
void wire_put_ask(struct channel *ch, const struct wire_ask *m);
bool wire_get_ask(struct slice body, struct wire_ask *ret);

struct wire_answer {
    uint64_t token;
    uint32_t status;    /* as HTTP: 200, 400, 404, 409, 503 */
    struct slice json;  /* result, or {"error": "..."} */
    struct slice bytes; /* content, when the question was for it and no descriptor came */
};
void wire_put_answer(struct channel *ch, const struct wire_answer *m, int fd);
bool wire_get_answer(struct slice body, struct wire_answer *ret);

/* Types whose body is a single number, or nothing. */
void wire_put_number(struct channel *ch, enum wire_type type, uint64_t number);
bool wire_get_number(struct slice body, uint64_t *ret_number);
void wire_put_empty(struct channel *ch, enum wire_type type);
bool wire_get_empty(struct slice body);

#endif
