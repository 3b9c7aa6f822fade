/*
 * What our processes say to each other: the types of frames and their fields.
 *
 *      parent ---- every other process     configuration, listeners, channels, stop
 *      receive, pickup --- queue           submit
 *      receive --- auth                    auth, auth_answer
 *      auth --- parent                     connect
 *      queue  ---- deliver, local          deliver, content, result
 *      queue  ---- filter                  the same, and submit
 *      queue  ---- agents                  deliver (without content), result, agent
 *      queue  ---- deliver, local, agents, filter      lease, before all other frames
 *      queue  ---- deliver                 policy_ask, policy_answer, tls_look, tls_seen
 *      queue  ---- deliver, receive        watches, dialogue
 *      queue  ---- fetch                   fetch, fetched
 *      queue  ---- hook                    hook_ask, hook_events, hook_done, hook_failing
 *      control --- queue                   ask, answer, dialogue
 *      control --- parent                  reload, stop
 *      control --- whatif                  ask, answer (a page of events), events_more; answer
 *
 * Each struct has wire_put_x, which sends it, and wire_get_x, which decodes a frame's body and is
 * false for anything that wire_put_x could not have written; the struct is undefined then, and
 * there is no array to free. Both are made of the table of fields and limits in wire_fields.h.
 * Slices of decoded structs point into the body and last as long as it does. Arrays of decoded
 * structs are allocated from what the body really holds, never from a number alone; free them with
 * mem_free.
 */
#ifndef PROCESS_WIRE_H
#define PROCESS_WIRE_H

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
    WIRE_STOP,     /* graceful shutdown, then exit with 0. u64 enum wire_stop */
    WIRE_CLOCK,    /* i64: microseconds to add to both clocks (tests only) */
    WIRE_LOG,      /* a new descriptor for log lines, after a rotation. No body */
    WIRE_LOOK,     /* to the queue: look at what may be pending, now. No body */
    WIRE_CHILD,    /* to control: u64 pid of a process that talks to the network */
    WIRE_CHILD_ENDED, /* and when it has ended */
    WIRE_LOG_SINK,    /* to the queue: u64 enum log_sink_id and the descriptor its lines go to */

    /* child to parent */
    WIRE_STARTED,        /* confined and working. No body */
    WIRE_RELOAD,         /* control: please reload. u64 token; answered with WIRE_RELOADED */
    WIRE_RELOADED,       /* parent to control: struct wire_reloaded */
    WIRE_PROCESSES,      /* control: what do the processes use? u64 token */
    WIRE_PROCESSES_TOLD, /* parent to control: struct wire_processes_told */
    WIRE_STOP_ALL,       /* control, queue: please stop everything. No body */
    WIRE_SET_CLOCK,      /* control: i64; the parent passes it on with WIRE_CLOCK */
    WIRE_SERVICE,        /* control, and parent to control: struct wire_service */
    WIRE_CONNECT,        /* receive, pickup: connect me to a filter. struct wire_connect */
    WIRE_CONNECTED,      /* parent: the answer to each, struct wire_connected, and the socket */

    /* receive and pickup to queue, and back */
    WIRE_SUBMIT,         /* struct wire_submit, content inside or in the descriptor */
    WIRE_SUBMIT_DONE,    /* struct wire_submit_done */
    WIRE_ETRN,           /* struct wire_etrn */
    WIRE_ETRN_DONE,      /* struct wire_etrn_done */
    WIRE_FLOW,           /* queue to receive and pickup: struct wire_flow */
    WIRE_SEND_ROOM,      /* struct wire_send_room: how much may this client or user send now? */
    WIRE_SEND_ROOM_DONE, /* struct wire_send_room_done */
    WIRE_SEND_REFUSED,   /* struct wire_send_refused: less than it wanted. No answer */

    /* receive to auth, and back */
    WIRE_AUTH,            /* struct wire_auth: a message of a client that logs in */
    WIRE_AUTH_ANSWER,     /* struct wire_auth_answer; one for each message */
    WIRE_AUTH_END,        /* u64: the client has given this login up */
    WIRE_AUTH_MECHANISMS, /* auth to receive: u64 of enum sasl_mechanism, what to offer */

    /* auth to parent, and back */
    WIRE_AUTH_CONNECT,   /* connect to auth_dovecot, please. No body */
    WIRE_AUTH_CONNECTED, /* struct wire_auth_connected and the connection, or neither */

    /* queue to deliver or local, and back */
    WIRE_DELIVER,      /* struct wire_deliver, content inside, in the descriptor, or on demand */
    WIRE_NEED_CONTENT, /* u64 entry: send its content */
    WIRE_CONTENT,      /* struct wire_content */
    WIRE_RESULT,       /* struct wire_result */
    WIRE_FORGET,       /* queue: drop cached connections to this destination (flush, reload, another
                          node gets it). struct wire_forget */
    WIRE_BREAK_OFF,    /* queue to deliver or local: u64 entry. End it untried, unless the message
                          may be delivered already: another node waits for it */
    WIRE_LEASE,        /* queue: deliver only while this lease holds. The descriptor of its page
                          (lease_page.h), no body; the first frame, where there is a lease */
    WIRE_AGENT,        /* agents to queue: of an agent; the body is its kind's (agent_kind.h) */

    /* deliver to queue, and back */
    WIRE_POLICY_ASK,    /* struct wire_policy_ask: what does this domain say of MTA-STS? */
    WIRE_POLICY_ANSWER, /* struct wire_policy_answer; one for each question */

    /* queue to deliver, and back: what TLS a destination would get, for operators */
    WIRE_TLS_LOOK, /* struct wire_tls_look */
    WIRE_TLS_SEEN, /* struct wire_tls_seen; one for each */

    /* queue to deliver and receive, and back: what is said on connections, for operators */
    WIRE_WATCHES,  /* struct wire_watches: all that are wanted, each time that changes */
    WIRE_DIALOGUE, /* struct wire_dialogue; the queue gives it on to control */

    /* queue to fetch, and back */
    WIRE_FETCH,   /* struct wire_fetch: look a domain's policy up */
    WIRE_FETCHED, /* struct wire_fetched; one for each */

    /* hook to queue, and back */
    WIRE_HOOK_ASK,     /* struct wire_hook_ask: what is next for this web hook? */
    WIRE_HOOK_EVENTS,  /* struct wire_hook_events: the answer, once there is something */
    WIRE_HOOK_DONE,    /* struct wire_hook_done: it has taken them, or never will */
    WIRE_HOOK_FAILING, /* struct wire_hook_failing: it does not take them */

    /* control to queue, and back */
    WIRE_ASK,         /* struct wire_ask */
    WIRE_ANSWER,      /* struct wire_answer */
    WIRE_EVENTS_MORE, /* queue to control: u64, the number of the last event. Once for each answer
                         to `events` that had none. whatif to control: u64 token, the next page
                         of events, please; an answer without bytes was the last */
};

/* The process at the other end of a channel. */
enum wire_role {
    ROLE_PARENT,
    ROLE_RECEIVE,
    ROLE_QUEUE,
    ROLE_DELIVER,
    ROLE_LOCAL,
    ROLE_CONTROL,
    ROLE_AGENTS, /* runs transport agents of another system */
    ROLE_PICKUP, /* takes files from maildrop */
    ROLE_AUTH,   /* knows who may log in */
    ROLE_FETCH,  /* gets policies by HTTPS */
    ROLE_HOOK,   /* tells web hooks of events */
    ROLE_FILTER, /* shows our own reports to filters */
    ROLE_WHATIF, /* runs recorded mail again with a changed parameter */
    ROLE_COUNT,
};

const char *wire_role_name(enum wire_role role);

/* Limits of fields; wire_fields.h says which field has which. Bytes, but for those that count. */
#define WIRE_FILES_MAX     4096        /* files of a configuration */
#define WIRE_FILE_MAX      (16u << 20) /* one of them */
#define WIRE_FILE_PATH_MAX 4096
#define WIRE_URL_MAX       512
#define WIRE_SERVICE_MAX   32   /* the name of a service */
#define WIRE_TLS_MAX       64   /* a version or cipher of TLS */
#define WIRE_TEXT_MAX      2048 /* a reply, a reason */
#define WIRE_STATUS_MAX    16   /* "2.0.0" */
#define WIRE_ID_MAX        64   /* a queue id */
#define WIRE_ENVID_MAX     (DSN_ENVID_MAX * 3)
#define WIRE_TRACE_MAX     16384       /* a Received: header, and what rules put before it */
#define WIRE_HOST_MAX      1024        /* a next hop, a relay "host[ip]:port" */
#define WIRE_CONTENT_MAX   (24u << 20) /* content inside a frame; more goes in a descriptor */
#define WIRE_PATH_MAX      272         /* a control file: hash directories and its name */
#define WIRE_DETAILS_MAX   16384       /* what an agent has noted for the report */
#define WIRE_TLSA_MAX      16384       /* the TLSA records of a host, as text */
#define WIRE_RCPTS_MAX     500000u     /* recipients in one frame */
#define WIRE_LOGIN_MAX     9216        /* a message of a login */
#define WIRE_CHALLENGE_MAX 1000        /* and the challenge for the next */
#define WIRE_KEY_MAX       256         /* the key of a call, and its sum */
#define WIRE_KEY_SUM       16
#define WIRE_USER_MAX      255         /* the name of a user */
#define WIRE_SENDERS_MAX   4096        /* the senders that a user may use */
#define WIRE_DOMAIN_MAX    253         /* a domain */
#define WIRE_POLICY_ID_MAX 32          /* the id of a policy (STS_ID_MAX) */
#define WIRE_POLICY_MAX    (64u << 10) /* a policy (STS_POLICY_MAX) */
#define WIRE_JSON_MAX      (16u << 20)

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
/* `fd`, or -1: the image of the tables of rules (rules/table.h), for the processes that take mail
 * in. */
void wire_put_conf(struct channel *ch, const struct wire_conf *m, int fd);
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

/* A line for each process: "ROLE INDEX PID STARTS CPU_US RESIDENT_BYTES\n". A PID of 0: it does
 * not run. */
struct wire_processes_told {
    uint64_t token;
    struct slice text;
};
void wire_put_processes_told(struct channel *ch, const struct wire_processes_told *m);
bool wire_get_processes_told(struct slice body, struct wire_processes_told *ret);

/* Between a service of the control process (service.h) and its extension in the parent
 * (extension.h). The parent may send a descriptor. */
struct wire_service {
    struct slice name; /* of both */
    uint32_t what;     /* its own words */
    struct slice text;
};
void wire_put_service(struct channel *ch, const struct wire_service *m, int fd);
bool wire_get_service(struct slice body, struct wire_service *ret);

/* A socket to a filter that the configuration names: what is confined can make none. */
struct wire_connect {
    uint64_t token;
    struct slice address; /* as in smtpd_milters (milter_list.h) */
    uint32_t attempt;     /* from 0: a name may have several addresses, each attempt takes the
                             next */
};
void wire_put_connect(struct channel *ch, const struct wire_connect *m);
bool wire_get_connect(struct slice body, struct wire_connect *ret);

struct wire_connected {
    uint64_t token;
    uint32_t addresses; /* of that name */
    struct slice error; /* empty: the socket is with it, and may be connecting still */
};
void wire_put_connected(struct channel *ch, const struct wire_connected *m, int fd);
bool wire_get_connected(struct slice body, struct wire_connected *ret);

/* A message to commit. */
struct wire_rcpt {
    struct slice address;
    struct slice orcpt;
    uint32_t notify;
    struct slice target; /* "transport:nexthop" of a rule (route_forced); empty: as routed */
};
struct wire_submit {
    uint64_t token; /* the sender's name for this submission */
    struct slice sender;
    struct slice envid;
    uint32_t flags; /* enum envelope_flag, without ENVELOPE_REPORT */
    struct wall arrived;
    struct slice client;      /* "name[ip]" or "userid N", for listing and log */
    uint32_t pid;             /* of the process that took it in, for the log */
    struct slice origin;      /* listener URL or "pickup": for the log */
    struct slice class_name;  /* that the header or the listener gives it; empty: neither does */
    uint32_t class_source;    /* enum class_source: which of them; without a name, the field that
                                marks bulk mail, if there is one */
    struct slice key;         /* of the call, by which the client may make it again (spool_keys.h);
                                empty: none */
    struct slice key_sum;     /* WIRE_KEY_SUM bytes over what it asks for; empty without a key */
    uint32_t key_part;        /* which message of the call it is, from 1; 0: the only one */
    struct slice trace;       /* header to put in front; "\1" in it becomes the queue id */
    struct slice login;       /* "sasl_method=PLAIN, sasl_username=app" for the log, or empty */
    struct slice send_client; /* what it counts for (send_limit.h): the client's address, */
    struct slice send_login;  /* and the user that has logged in; empty: nothing is limited */
    uint32_t send_rcpts;      /* and so many recipients, without the copies that rules add */
    struct slice hold;        /* why it is put on hold at once; empty: it is not */
    struct slice rules;       /* what rules have done to it, for operators; may be empty */
    const struct wire_rcpt *rcpts;
    uint32_t rcpt_count;
    struct slice content; /* all of it, or what comes before the descriptor's bytes */
    uint64_t fd_size;     /* bytes in the descriptor (a sealed memfd, offset 0), 0 = none came */
};
/* Is this memory of exactly `size` bytes that no process can change any more? */
bool wire_fd_is_sealed(int fd, uint64_t size);
void wire_put_submit(struct channel *ch, const struct wire_submit *m, int fd);
bool wire_get_submit(struct slice body, struct wire_submit *ret, struct wire_rcpt **ret_rcpts);

/* The status of a key that was that of another call. */
#define WIRE_KEY_REFUSED SLICE("5.5.4")

struct wire_submit_done {
    uint64_t token;
    uint32_t code;       /* 250, or the 4xx/5xx to answer with */
    struct slice status; /* "2.0.0" */
    struct slice text;   /* "Ok: queued as ..." or the reason */
    struct slice id;     /* queue id when committed */
    bool repeated;       /* an earlier submission of this key was: `id` is its */
    uint32_t retry_s;    /* of a 4xx: it may be accepted in so many seconds; 0: not known */
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

/* Whether the queue can take mail. Sent to the processes that submit when it changes. */
struct wire_flow {
    bool storage_ok; /* false: the last commit failed, or none may be made; answer 451 */
    bool space_ok;   /* false: less than queue_minfree; answer 452 */
    uint64_t free_bytes;
    bool behind; /* mail comes faster than it is taken in: delay clients by in_flow_delay */
};
void wire_put_flow(struct channel *ch, const struct wire_flow *m);
bool wire_get_flow(struct slice body, struct wire_flow *ret);

/* Where mail would come from: as in struct wire_submit. */
struct wire_send_room {
    uint64_t token;
    struct slice client, login;
};
void wire_put_send_room(struct channel *ch, const struct wire_send_room *m);
bool wire_get_send_room(struct slice body, struct wire_send_room *ret);

struct wire_send_room_done {
    uint64_t token;
    uint32_t rcpts;    /* that a message may have; 0: there may be none */
    uint32_t limit;    /* enum send_limit: the one that says so */
    struct slice text; /* for a client that wants more; empty: there is no limit */
};
void wire_put_send_room_done(struct channel *ch, const struct wire_send_room_done *m);
bool wire_get_send_room_done(struct slice body, struct wire_send_room_done *ret);

struct wire_send_refused {
    struct slice client, login;
    uint32_t limit;
};
void wire_put_send_refused(struct channel *ch, const struct wire_send_refused *m);
bool wire_get_send_refused(struct slice body, struct wire_send_refused *ret);

/* A login of a client (sasl.h), or the token of one that sends by HTTP (token_list.h): its first
 * and only message. */
#define WIRE_AUTH_TOKEN (1u << 31)
struct wire_auth {
    uint64_t login;     /* receive's name for it; the same for all of its messages */
    uint32_t mechanism; /* one of enum sasl_mechanism, or WIRE_AUTH_TOKEN */
    bool first;         /* a login begins */
    bool has_message;   /* else the client waits for a challenge */
    struct slice message;
    struct slice client; /* its address */
    struct slice local;  /* ours that it connected to; empty: not known */
};
void wire_put_auth(struct channel *ch, const struct wire_auth *m);
bool wire_get_auth(struct slice body, struct wire_auth *ret);

enum wire_auth_result {
    WIRE_AUTH_CHALLENGE, /* the client is to answer `challenge`; else the login is over */
    WIRE_AUTH_ACCEPTED,
    WIRE_AUTH_REFUSED,
    WIRE_AUTH_MALFORMED,   /* no message of this mechanism */
    WIRE_AUTH_BUSY,        /* not now */
    WIRE_AUTH_UNAVAILABLE, /* it could not be judged; `challenge` has the reason, for the log */
    WIRE_AUTH_RESULTS
};
struct wire_auth_answer {
    uint64_t login;
    enum wire_auth_result result;
    struct slice challenge;
    struct slice user; /* once it is known; in the log, too, where the login is refused */
    /* with WIRE_AUTH_ACCEPTED */
    struct slice class_name; /* that the user's mail is of, or empty */
    struct slice senders;    /* verifier_list.h: that the user may use, or empty: every one */
    uint32_t rights;         /* of a token: a set of enum token_right */
};
void wire_put_auth_answer(struct channel *ch, const struct wire_auth_answer *m);
bool wire_get_auth_answer(struct slice body, struct wire_auth_answer *ret);

struct wire_auth_connected {
    struct slice why; /* empty, or why there is no connection */
};
void wire_put_auth_connected(struct channel *ch, const struct wire_auth_connected *m, int fd);
bool wire_get_auth_connected(struct slice body, struct wire_auth_connected *ret);

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

void wire_put_lease(struct channel *ch, int fd);
void wire_put_break_off(struct channel *ch, uint64_t entry);
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
    VERDICT_NONE, /* the agent has answered without a word about this one */
};
/* Which process reports what became of the recipient. */
enum wire_report {
    WIRE_REPORT_DUE,     /* the queue, in its own words */
    WIRE_REPORT_WRITTEN, /* the queue, in those that the agent has put into the message's file; of
                            VERDICT_SENT and VERDICT_BOUNCED */
    WIRE_REPORT_NONE,    /* none is to be made; of VERDICT_SENT */
    WIRE_REPORT_COUNT,
};
struct wire_verdict {
    uint32_t n;
    enum wire_verdict_kind kind;
    struct slice status; /* "2.0.0" */
    struct slice reply;  /* what the remote site said: "550 5.1.1 no"; empty: nothing */
    struct slice text;   /* our account, as it stands in the log: "host x[y] said: REPLY (in ..)";
                            empty: the reply says it all, see wire_verdict_text */
    struct slice relay;  /* "mx.example[192.0.2.1]:25", "maildir", "none" */
    enum wire_report report;
    bool stops_thread; /* its text says why thread_stops is set */
    struct slice
        details; /* what its agent has noted for the report (delivery_details.h), or empty */
};
static inline struct slice wire_verdict_text(const struct wire_verdict *v)
{
    return v->text.len > 0 ? v->text : v->reply;
}

/* What the last connection of an attempt has shown of its peer, in ascending order. */
enum wire_proof {
    WIRE_PROOF_NONE,      /* there was no connection, or one that TLS is not for */
    WIRE_PROOF_CLEAR,     /* no TLS */
    WIRE_PROOF_ANONYMOUS, /* TLS without a certificate */
    WIRE_PROOF_UNTRUSTED, /* a certificate that no authority vouches for */
    WIRE_PROOF_TRUSTED,   /* one vouched for, but for another name */
    WIRE_PROOF_VERIFIED,  /* one vouched for, for a name that was expected */
    WIRE_PROOF_DANE_TA,   /* the same, the authority being that of a TLSA record */
    WIRE_PROOF_DANE_EE,   /* the certificate of a TLSA record */
    WIRE_PROOF_COUNT,
};
/* "clear", "verified", "dane-ee" ..; empty for WIRE_PROOF_NONE. */
const char *wire_proof_name(enum wire_proof proof);

enum wire_outcome {
    OUTCOME_OK,        /* the site was reached, whatever it said */
    OUTCOME_SITE_FAIL, /* site class failure: feeds the window */
    OUTCOME_CRASH, /* a transport agent has died, or could not be started: `reason`. Verdicts are
                      what it said before, VERDICT_NONE for the rest */
    OUTCOME_GIVEN_BACK, /* not tried: the recipients go back unchanged; no verdicts. With
                           `thread_stops` they wait for their thread, else (shutdown) for nothing */
    OUTCOME_BROKEN_OFF  /* the lease was over: nothing came of it for the recipients whose verdict
                          is VERDICT_NONE, or for all when there are no verdicts */
};
struct wire_result {
    uint64_t entry;
    enum wire_outcome outcome;
    struct slice reason; /* of OUTCOME_SITE_FAIL: "4.4.1 connect to ...: Connection refused"; of
                             OUTCOME_CRASH: "transport agent /x/smtp ended with exit status 75" */
    int64_t setup_us;    /* hand-off to end of connection set-up (delays=.../c/) */
    int64_t transmit_us; /* the rest (delays=.../d) */
    uint32_t conn_use;   /* n-th use of the connection; 0, 1 = first or none */
    enum wire_proof proof;
    struct slice tls_version; /* "TLSv1.3"; empty without TLS */
    struct slice tls_cipher;  /* "TLS_AES_256_GCM_SHA384"; empty likewise */
    bool maybe_duplicate;     /* the connection was lost between the final dot and the reply */
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

struct wire_forget {
    struct slice transport; /* empty = all */
    struct slice nexthop;
};
void wire_put_forget(struct channel *ch, const struct wire_forget *m);
bool wire_get_forget(struct slice body, struct wire_forget *ret);

/* Policies that are looked up at the same time. */
#define WIRE_FETCHES_MAX 1000u

/* What the MTA-STS policy of a domain is (sts.h). */
struct wire_policy_ask {
    uint64_t token;
    struct slice domain;
};
void wire_put_policy_ask(struct channel *ch, const struct wire_policy_ask *m);
bool wire_get_policy_ask(struct slice body, struct wire_policy_ask *ret);

struct wire_policy_answer {
    uint64_t token;
    struct slice policy; /* as sts_policy_put writes it; empty: there is none */
};
void wire_put_policy_answer(struct channel *ch, const struct wire_policy_answer *m);
bool wire_get_policy_answer(struct slice body, struct wire_policy_answer *ret);

/* What TLS would a delivery get? */
struct wire_tls_look {
    uint64_t token;
    struct slice transport;
    struct slice nexthop;
    bool connect; /* to each host that is used, up to what comes before mail */
};
void wire_put_tls_look(struct channel *ch, const struct wire_tls_look *m);
bool wire_get_tls_look(struct slice body, struct wire_tls_look *ret);

enum wire_dnssec { DNSSEC_UNKNOWN, DNSSEC_INSECURE, DNSSEC_SECURE, DNSSEC_BOGUS, DNSSEC_STATES };
struct wire_tls_host {
    struct slice name;
    uint32_t preference;
    struct slice addresses; /* with blanks between them */
    enum wire_dnssec dnssec;
    struct slice records; /* TLSA, usable: "3 1 1 9F..", a line each */
    bool used;
    struct slice text; /* what is demanded of it, or why it is not used */
    /* When it was connected to. */
    bool tried;
    bool met;                 /* it has shown what is demanded */
    struct slice relay;       /* "mx1.example.org[192.0.2.1]:25" */
    struct slice protection;  /* as a log line has it: "verified/TLSv1.3/TLS_AES_256_GCM_SHA384" */
    struct slice certificate; /* what it says of itself (tls.h) */
    struct slice trouble;     /* why not `met`, or why mail would go in clear */
};
#define WIRE_TLS_HOSTS_MAX 16 /* MXLIST_HOSTS_MAX */
struct wire_tls_seen {
    uint64_t token;
    bool found; /* else `text` says what mail would be told */
    bool later; /* not `found`: mail waits; else it fails */
    struct slice text;
    enum wire_dnssec dnssec; /* of the MX answer */
    const struct wire_tls_host *hosts;
    uint32_t host_count;
};
void wire_put_tls_seen(struct channel *ch, const struct wire_tls_seen *m);
bool wire_get_tls_seen(struct slice body, struct wire_tls_seen *ret,
                       struct wire_tls_host **ret_hosts);

/* Whose dialogues operators want to see. */
#define WIRE_WATCHES_MAX 8u
enum wire_watch_kind {
    WATCH_DESTINATION, /* a pattern for "transport/nexthop", a next hop, a host or its address */
    WATCH_CLIENT,      /* a network, or a pattern for a client's name or address */
    WATCH_MESSAGE,     /* a queue id */
    WATCH_KINDS
};
struct wire_watch {
    uint64_t number;
    enum wire_watch_kind kind;
    struct slice what;
};
struct wire_watches {
    const struct wire_watch *watches;
    uint32_t watch_count;
};
void wire_put_watches(struct channel *ch, const struct wire_watches *m);
bool wire_get_watches(struct slice body, struct wire_watches *ret, struct wire_watch **ret_watches);

/* What has happened on a connection. */
enum wire_said {
    SAID_OPENED,
    SAID_LINE,    /* `text`, of `bytes` bytes with its end */
    SAID_LOGIN,   /* `bytes` of a login are not shown; `text`: what may be shown before them */
    SAID_UNKNOWN, /* `bytes` that are no command are not shown: they may belong to a login */
    SAID_CONTENT, /* `bytes` of a message are not shown */
    SAID_SECURED, /* `text`: version and cipher */
    SAID_CLOSED,  /* `text`: why, if there is more to say */
    SAID_KINDS
};
struct wire_dialogue {
    uint64_t watch;
    uint64_t dropped;     /* that came before it and were too many */
    struct slice process; /* "deliver/0"; the queue process puts it in */
    uint64_t connection;  /* counted by the process */
    struct wall at;
    enum wire_said said;
    bool ours; /* by us, else by the peer */
    uint64_t bytes;
    struct slice text; /* printable ASCII: the rest as \xNN */
    struct slice peer, source, tls;
    struct slice destination, id; /* of deliver; may be empty */
};
void wire_put_dialogue(struct channel *ch, const struct wire_dialogue *m);
bool wire_get_dialogue(struct slice body, struct wire_dialogue *ret);

/* Look it up. */
struct wire_fetch {
    struct slice domain;
    struct slice id; /* of the policy that is known, or empty */
    bool always;     /* get the policy also when its id is the same */
};
void wire_put_fetch(struct channel *ch, const struct wire_fetch *m);
bool wire_get_fetch(struct slice body, struct wire_fetch *ret);

enum wire_fetch_outcome {
    FETCH_POLICY,    /* `id` and `policy` */
    FETCH_SAME,      /* the id is still the one that is known */
    FETCH_NO_RECORD, /* the domain's TXT records name no policy */
    FETCH_NO_DNS,    /* whether they do can't be known now: `why` */
    FETCH_FAILED,    /* they name one, `id`, that can't be had: `why` */
    FETCH_OUTCOMES
};
struct wire_fetched {
    struct slice domain;
    enum wire_fetch_outcome outcome;
    struct slice id;
    struct slice policy; /* as sts_policy_put writes it */
    struct slice why;
};
void wire_put_fetched(struct channel *ch, const struct wire_fetched *m);
bool wire_get_fetched(struct slice body, struct wire_fetched *ret);

/* Web hooks (conf/hook_list.h), which the queue process knows by their names alone. */
#define WIRE_HOOK_NAME_MAX 32
#define WIRE_HOOK_PAGE     (256u << 10) /* bytes of events at once; with less there are no more */
#define WIRE_HOOK_PAGE_MAX (2u << 20)   /* with the longest line behind them */
struct wire_hook_ask {
    struct slice name;
};
void wire_put_hook_ask(struct channel *ch, const struct wire_hook_ask *m);
bool wire_get_hook_ask(struct slice body, struct wire_hook_ask *ret);

struct wire_hook_events {
    struct slice name;
    uint64_t after, last;        /* their numbers are above the one, up to the other */
    uint64_t lost_from, lost_to; /* these are kept no more; 0: none */
    struct slice lines;
};
void wire_put_hook_events(struct channel *ch, const struct wire_hook_events *m);
bool wire_get_hook_events(struct slice body, struct wire_hook_events *ret);

struct wire_hook_done {
    struct slice name;
    uint64_t last;        /* all up to this one */
    bool given_up;        /* they were not taken: `letters` are dead letters */
    struct slice letters; /* lines of the events */
};
void wire_put_hook_done(struct channel *ch, const struct wire_hook_done *m);
bool wire_get_hook_done(struct slice body, struct wire_hook_done *ret);

struct wire_hook_failing {
    struct slice name;
    struct slice why; /* empty: no more */
};
void wire_put_hook_failing(struct channel *ch, const struct wire_hook_failing *m);
bool wire_get_hook_failing(struct slice body, struct wire_hook_failing *ret);

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
