/*
 * The frames between our processes: their types and fields.
 *
 *      parent ---- every other process     configuration, listeners, channels, stop
 *      receive, pickup --- queue           submit
 *      receive --- auth                    auth, auth_answer
 *      auth --- parent                     connect
 *      queue  ---- deliver, local          deliver, content, result
 *      queue  ---- filter                  as deliver, and submit
 *      queue  ---- agents                  deliver (without content), result, agent
 *      queue  ---- deliver, local, agents, filter      lease, before all other frames
 *      queue  ---- deliver                 policy_ask, policy_answer, tls_look, tls_seen
 *      queue  ---- deliver, receive        watches, dialogue
 *      queue  ---- fetch                   fetch, fetched
 *      resolve --- deliver, fetch, hook    dns_query, dns_answer
 *      queue  ---- hook                    hook_ask, hook_events, hook_done, hook_failing
 *      control --- queue                   ask, answer, dialogue
 *      control --- parent                  reload, stop
 *      control --- whatif                  ask, answer (a page of events), events_more; answer
 *
 * Each struct has a function wire_put_x, which sends it, and wire_get_x, which decodes a frame's
 * body. wire_get_x returns false for each body that wire_put_x could not have written; then the
 * struct is undefined, and there is no array to free. Both are generated from the table of fields
 * and limits in wire_fields.h. Slices of decoded structs point into the body and last as long as it
 * does. The size of an array is checked against the body before its allocation; free arrays with
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
    /* parent to child, in this order at the start; CONF again at a reload */
    WIRE_CONF = 1,    /* struct wire_conf */
    WIRE_LISTENER,    /* struct wire_listener and the listening socket; repeated */
    WIRE_PEER,        /* struct wire_peer and a socket to that process; again after its restart */
    WIRE_START,       /* end of the first frames: confine yourself and begin. No body */
    WIRE_STOP,        /* graceful shutdown, then exit with 0. u64 enum wire_stop */
    WIRE_CLOCK,       /* i64: microseconds to add to both clocks (tests only) */
    WIRE_LOG,         /* a new descriptor for log lines, after a rotation. No body */
    WIRE_LOOK,        /* to queue: check now for pending work. No body */
    WIRE_CHILD,       /* to control: u64 pid of a process that talks to the network */
    WIRE_CHILD_ENDED, /* to control: u64 pid, when that process has ended */
    WIRE_LOG_SINK,    /* to queue: u64 enum log_sink_id and the descriptor for its lines */

    /* child to parent */
    WIRE_STARTED,   /* confined and working. No body */
    WIRE_RELOAD,    /* control: reload the configuration. u64 token; answered with WIRE_RELOADED */
    WIRE_RELOADED,  /* parent to control: struct wire_reloaded */
    WIRE_PROCESSES, /* control: list the processes and their use of resources. u64 token */
    WIRE_PROCESSES_TOLD, /* parent to control: struct wire_processes_told */
    WIRE_STOP_ALL,       /* control, queue: stop all processes. No body */
    WIRE_SET_CLOCK,      /* control: i64 for WIRE_CLOCK to all processes */
    WIRE_SERVICE,        /* control to parent, and back: struct wire_service */
    WIRE_CONNECT,        /* receive, pickup: connect to a filter. struct wire_connect */
    WIRE_CONNECTED,      /* parent: answer to WIRE_CONNECT. struct wire_connected and the socket */

    /* receive and pickup to queue, and back */
    WIRE_SUBMIT,         /* struct wire_submit, content in the frame or the descriptor */
    WIRE_SUBMIT_DONE,    /* struct wire_submit_done */
    WIRE_ETRN,           /* struct wire_etrn */
    WIRE_ETRN_DONE,      /* struct wire_etrn_done */
    WIRE_FLOW,           /* queue to receive and pickup: struct wire_flow */
    WIRE_SEND_ROOM,      /* struct wire_send_room: how much may this client or user send? */
    WIRE_SEND_ROOM_DONE, /* struct wire_send_room_done */
    WIRE_SEND_REFUSED,   /* struct wire_send_refused: the limit was too low. No answer */

    /* receive to auth, and back */
    WIRE_AUTH,        /* struct wire_auth: a client's message of a login */
    WIRE_AUTH_ANSWER, /* struct wire_auth_answer; one per message */
    WIRE_AUTH_END,    /* u64 login, which the client has cancelled */
    /* auth to receive: u64, a set of enum sasl_mechanism to offer. Again after each reload; then
     * receive sends a WIRE_AUTH_CHECK for each login */
    WIRE_AUTH_MECHANISMS,
    WIRE_AUTH_CHECK, /* struct wire_auth_check: is this login still valid? */
    /* auth to receive: u64 login that is no longer valid; without it the login is valid */
    WIRE_AUTH_OVER,

    /* auth to parent, and back */
    WIRE_AUTH_CONNECT,   /* connect to auth_dovecot. No body */
    WIRE_AUTH_CONNECTED, /* struct wire_auth_connected, with the connection or a reason */
    WIRE_AUTH_KEY,       /* struct wire_auth_key, before WIRE_START */

    /* queue to deliver or local, and back */
    WIRE_DELIVER, /* struct wire_deliver; content in the frame, in the descriptor, or on demand */
    WIRE_NEED_CONTENT, /* u64 entry whose content is needed */
    WIRE_CONTENT,      /* struct wire_content */
    WIRE_RESULT,       /* struct wire_result */
    /* queue: close kept connections to this destination (flush, reload, another node gets it).
     * struct wire_forget */
    WIRE_FORGET,
    /* queue to deliver or local: u64 entry that another node waits for. End it untried, unless the
     * message may be delivered already */
    WIRE_BREAK_OFF,
    /* queue: deliver only while this lease is valid. The descriptor of its page (lease_page.h), no
     * body; the first frame if there is a lease */
    WIRE_LEASE,
    /* queue to agents: u64 entry whose result with thread_stops was processed. The deliveries after
     * this frame were sent by a queue process that knows of the stop */
    WIRE_GO_ON,
    /* agents to queue: event of an agent; the body depends on its kind (agent_kind.h) */
    WIRE_AGENT,

    /* deliver to queue, and back */
    WIRE_POLICY_ASK,    /* struct wire_policy_ask: request for a domain's MTA-STS policy */
    WIRE_POLICY_ANSWER, /* struct wire_policy_answer; one per request */

    /* queue to deliver, and back: TLS of a destination, for operators */
    WIRE_TLS_LOOK, /* struct wire_tls_look */
    WIRE_TLS_SEEN, /* struct wire_tls_seen; one per request */

    /* queue to deliver and receive, and back: dialogues of connections, for operators */
    WIRE_WATCHES,  /* struct wire_watches: all watches, after each change */
    WIRE_DIALOGUE, /* struct wire_dialogue; the queue process passes it to control */

    /* queue to fetch, and back */
    WIRE_FETCH,   /* struct wire_fetch: request to look up a domain's policy */
    WIRE_FETCHED, /* struct wire_fetched; one per request */

    /* hook to queue, and back */
    WIRE_HOOK_ASK,     /* struct wire_hook_ask: request for the next events of a web hook */
    WIRE_HOOK_EVENTS,  /* struct wire_hook_events: answer, as soon as there are events */
    WIRE_HOOK_DONE,    /* struct wire_hook_done: events are accepted, or are dead letters */
    WIRE_HOOK_FAILING, /* struct wire_hook_failing: the web hook does not accept events */

    /* deliver, fetch and hook to resolve, and back */
    WIRE_DNS_QUERY,  /* struct wire_dns_query */
    WIRE_DNS_ANSWER, /* struct wire_dns_answer; one per query */

    /* control to queue, and back */
    WIRE_ASK,    /* struct wire_ask */
    WIRE_ANSWER, /* struct wire_answer */
    /* queue to control: u64, the number of the last event; once for each answer to `events` without
     * events. whatif to control: u64 token, request for the next page of events; an empty answer is
     * the last */
    WIRE_EVENTS_MORE,
};

/* Roles: kinds of processes at the ends of channels. */
enum wire_role {
    ROLE_PARENT,
    ROLE_RECEIVE,
    ROLE_QUEUE,
    ROLE_DELIVER,
    ROLE_LOCAL,
    ROLE_CONTROL,
    ROLE_AGENTS,  /* runs transport agents of another system */
    ROLE_PICKUP,  /* takes files from maildrop */
    ROLE_AUTH,    /* checks logins */
    ROLE_FETCH,   /* gets policies by HTTPS */
    ROLE_HOOK,    /* sends events to web hooks */
    ROLE_FILTER,  /* shows our own bounces and notices to filters */
    ROLE_WHATIF,  /* runs recorded mail again with a changed parameter */
    ROLE_RESOLVE, /* queries name servers */
    ROLE_COUNT,
};

const char *wire_role_name(enum wire_role role);

/* Limits of fields, in bytes or numbers of elements; wire_fields.h assigns them to fields. */
#define WIRE_FILES_MAX     4096        /* files of a configuration */
#define WIRE_FILE_MAX      (16u << 20) /* one such file */
#define WIRE_FILE_PATH_MAX 4096
#define WIRE_URL_MAX       512
#define WIRE_SERVICE_MAX   32   /* name of a service */
#define WIRE_TLS_MAX       64   /* TLS version or cipher */
#define WIRE_TEXT_MAX      2048 /* a reply, a reason */
#define WIRE_STATUS_MAX    16   /* "2.0.0" */
#define WIRE_ID_MAX        64   /* a queue id */
#define WIRE_ENVID_MAX     (DSN_ENVID_MAX * 3)
#define WIRE_TRACE_MAX     16384       /* a Received: header, and fields that rules add before it */
#define WIRE_HOST_MAX      1024        /* a next hop, a relay "host[ip]:port" */
#define WIRE_CONTENT_MAX   (24u << 20) /* content in a frame; the rest is in a descriptor */
#define WIRE_PATH_MAX      272         /* a control file: hash directories and its name */
#define WIRE_DETAILS_MAX   16384       /* an agent's details for the bounce */
#define WIRE_TLSA_MAX      16384       /* TLSA records of a host, as text */
#define WIRE_RCPTS_MAX     500000u     /* recipients in one frame */
#define WIRE_LOGIN_MAX     9216        /* a client's message in a login */
#define WIRE_CHALLENGE_MAX 1000        /* the challenge that follows */
#define WIRE_KEY_MAX       256         /* key of a call, and its sum */
#define WIRE_KEY_SUM       16
#define WIRE_USER_MAX      255         /* name of a user */
#define WIRE_SENDERS_MAX   4096        /* list of senders that a user may use */
#define WIRE_DOMAIN_MAX    253         /* a domain */
#define WIRE_POLICY_ID_MAX 32          /* id of a policy (STS_ID_MAX) */
#define WIRE_POLICY_MAX    (64u << 10) /* a policy (STS_POLICY_MAX) */
#define WIRE_PACKET_MAX    65535       /* a DNS packet */
#define WIRE_JSON_MAX      (16u << 20)

/* Ways to stop. */
enum wire_stop {
    STOP_FINISH, /* wait for active work, up to shutdown_timeout */
    STOP_QUIT,   /* as STOP_FINISH; transport agents also get SIGQUIT */
    STOP_COUNT,
};

/* The configuration as read by the parent: first the main file, then each file that it names
 * (included files, tables, certificates), so that confined processes need no files. */
struct wire_file {
    struct slice path;
    struct slice bytes;
};
struct wire_conf {
    uint64_t generation; /* number that grows with each reload */
    const struct wire_file *files;
    uint32_t file_count;
};
/* Sends a configuration. `fd`: image of the tables of rules (rules/table.h) for processes that
 * accept mail, or -1. */
void wire_put_conf(struct channel *ch, const struct wire_conf *m, int fd);
bool wire_get_conf(struct slice body, struct wire_conf *ret, struct wire_file **ret_files);

struct wire_listener {
    struct slice url; /* "smtp://127.0.0.1:2525" as configured */
};
void wire_put_listener(struct channel *ch, const struct wire_listener *m, int fd);
bool wire_get_listener(struct slice body, struct wire_listener *ret);

struct wire_peer {
    enum wire_role role;
    uint32_t index; /* index among the processes of that role */
    uint32_t count; /* number of processes of that role */
};
void wire_put_peer(struct channel *ch, const struct wire_peer *m, int fd);
bool wire_get_peer(struct slice body, struct wire_peer *ret);

struct wire_reloaded {
    uint64_t token;
    bool ok;
    struct slice text; /* if not `ok`: the errors, one per line */
};
void wire_put_reloaded(struct channel *ch, const struct wire_reloaded *m);
bool wire_get_reloaded(struct slice body, struct wire_reloaded *ret);

/* The processes, one per line: "ROLE INDEX PID STARTS CPU_US RESIDENT_BYTES\n". PID 0: not
 * running. */
struct wire_processes_told {
    uint64_t token;
    struct slice text;
};
void wire_put_processes_told(struct channel *ch, const struct wire_processes_told *m);
bool wire_get_processes_told(struct slice body, struct wire_processes_told *ret);

/* A message between a service of the control process (service.h) and its extension in the parent
 * (extension.h). The parent may add a descriptor. */
struct wire_service {
    struct slice name; /* common name of service and extension */
    uint32_t what;     /* defined by the service */
    struct slice text;
};
void wire_put_service(struct channel *ch, const struct wire_service *m, int fd);
bool wire_get_service(struct slice body, struct wire_service *ret);

/* A request for a socket to a configured filter: a confined process can't open one. */
struct wire_connect {
    uint64_t token;
    struct slice address; /* as in smtpd_milters (milter_list.h) */
    uint32_t attempt;     /* number from 0; each attempt uses the next address of the name */
};
void wire_put_connect(struct channel *ch, const struct wire_connect *m);
bool wire_get_connect(struct slice body, struct wire_connect *ret);

struct wire_connected {
    uint64_t token;
    uint32_t addresses; /* number of addresses of the name */
    struct slice error; /* empty: there is a socket, which may still be connecting */
};
void wire_put_connected(struct channel *ch, const struct wire_connected *m, int fd);
bool wire_get_connected(struct slice body, struct wire_connected *ret);

/* A message to store. */
struct wire_rcpt {
    struct slice address;
    struct slice orcpt;
    uint32_t notify;
    struct slice target; /* "transport:nexthop" from a rule (route_forced); empty: normal routing */
};
struct wire_submit {
    uint64_t token; /* number that the submitting process gives to this submission */
    struct slice sender;
    struct slice envid;
    uint32_t flags; /* set of enum envelope_flag, without ENVELOPE_REPORT */
    struct wall arrived;
    struct slice client;     /* "name[ip]" or "userid N", for listing and log */
    uint32_t pid;            /* pid of the process that received it, for the log */
    struct slice origin;     /* listener URL or "pickup", for the log */
    struct slice class_name; /* class from header or listener; empty: none */
    /* enum class_source: source of the class; without a class, the field that marks bulk mail, if
     * any */
    uint32_t class_source;
    /* key of the call by HTTP, so that the client may repeat it (spool_keys.h); empty: none */
    struct slice key;
    struct slice key_sum;     /* checksum of the request, WIRE_KEY_SUM bytes; empty without a key */
    uint32_t key_part;        /* number of the message within the call, from 1; 0: the only one */
    struct slice trace;       /* header to add in front; "\1" in it becomes the queue id */
    struct slice login;       /* "sasl_method=PLAIN, sasl_username=app" for the log, or empty */
    struct slice send_client; /* client's address for limits (send_limit.h); empty: no limit */
    struct slice send_login;  /* logged-in user for limits; empty: no limit */
    uint32_t send_rcpts;      /* number of recipients for limits, without copies that rules add */
    struct slice hold;        /* reason to put it on hold at once; empty: none */
    struct slice rules;       /* actions of rules, for operators; may be empty */
    /* entry of a WIRE_DELIVER, or 0. Its recipients are removed from their message in the same
     * commit that stores this message */
    uint64_t replaces;
    const struct wire_rcpt *rcpts;
    uint32_t rcpt_count;
    struct slice content; /* all content, or the part before the descriptor's bytes */
    uint64_t fd_size;     /* bytes in the descriptor (a sealed memfd, offset 0); 0: no descriptor */
};
/* Is this a memory file of exactly `size` bytes that no process can change? */
bool wire_fd_is_sealed(int fd, uint64_t size);
void wire_put_submit(struct channel *ch, const struct wire_submit *m, int fd);
bool wire_get_submit(struct slice body, struct wire_submit *ret, struct wire_rcpt **ret_rcpts);

/* Status of a submission with the key of a different call. */
#define WIRE_KEY_REFUSED SLICE("5.5.4")

/* Reply code for a submission with `replaces`: return the recipients, because their message has
 * changed meanwhile. After 250 there is no WIRE_RESULT of their entry. */
#define WIRE_SUBMIT_GIVE_BACK 421

/* Next hops of the transport `milter`: bounces and notices that filters have not seen, and mail
 * that an operator has requeued. */
#define WIRE_MILTER_REPORTS SLICE("reports")
#define WIRE_MILTER_REQUEUE SLICE("requeue")

struct wire_submit_done {
    uint64_t token;
    uint32_t code;       /* 250, or a 4xx or 5xx code for the client */
    struct slice status; /* "2.0.0" */
    struct slice text;   /* "Ok: queued as ..." or the reason */
    struct slice id;     /* queue id after a commit */
    bool repeated;       /* an earlier submission had this key; `id` is that message */
    uint32_t retry_s;    /* after a 4xx: seconds until a retry may succeed; 0: unknown */
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

/* Readiness of the queue process for new mail; sent to the processes that submit, after each
 * change. */
struct wire_flow {
    bool storage_ok; /* false: the last commit failed or commits are forbidden; reply 451 */
    bool space_ok;   /* false: less space than queue_minfree; reply 452 */
    uint64_t free_bytes;
    bool behind; /* mail arrives faster than it is read from disk: delay clients by in_flow_delay */
};
void wire_put_flow(struct channel *ch, const struct wire_flow *m);
bool wire_get_flow(struct slice body, struct wire_flow *ret);

/* Origin of mail, as in struct wire_submit. */
struct wire_send_room {
    uint64_t token;
    struct slice client, login;
};
void wire_put_send_room(struct channel *ch, const struct wire_send_room *m);
bool wire_get_send_room(struct slice body, struct wire_send_room *ret);

struct wire_send_room_done {
    uint64_t token;
    uint32_t rcpts;    /* largest number of recipients of a message; 0: no message */
    uint32_t limit;    /* enum send_limit: the limit in force */
    struct slice text; /* text for a client above the limit; empty: no limit */
};
void wire_put_send_room_done(struct channel *ch, const struct wire_send_room_done *m);
bool wire_get_send_room_done(struct slice body, struct wire_send_room_done *ret);

struct wire_send_refused {
    struct slice client, login;
    uint32_t limit;
};
void wire_put_send_refused(struct channel *ch, const struct wire_send_refused *m);
bool wire_get_send_refused(struct slice body, struct wire_send_refused *ret);

/* A client's message of a login (sasl.h). Also the token of a client that sends by HTTP
 * (token_list.h), as the only message of a login. */
#define WIRE_AUTH_TOKEN (1u << 31)
struct wire_auth {
    uint64_t login;     /* receive's number of the login, the same for all its messages */
    uint32_t mechanism; /* one of enum sasl_mechanism, or WIRE_AUTH_TOKEN */
    bool first;         /* first message of the login */
    bool has_message;   /* false: the client waits for a challenge */
    struct slice message;
    struct slice client; /* client's address */
    struct slice local;  /* our address on that connection; empty: unknown */
};
void wire_put_auth(struct channel *ch, const struct wire_auth *m);
bool wire_get_auth(struct slice body, struct wire_auth *ret);

enum wire_auth_result {
    WIRE_AUTH_CHALLENGE, /* the client must answer `challenge`; all others end the login */
    WIRE_AUTH_ACCEPTED,
    WIRE_AUTH_REFUSED,
    WIRE_AUTH_MALFORMED,   /* not a message of this mechanism */
    WIRE_AUTH_BUSY,        /* too busy now */
    WIRE_AUTH_UNAVAILABLE, /* no decision; `challenge` has the reason, for the log */
    WIRE_AUTH_RESULTS
};
struct wire_auth_answer {
    uint64_t login;
    enum wire_auth_result result;
    struct slice challenge;
    /* name of the user as soon as it is known; also logged for a refused login */
    struct slice user;
    /* Only for WIRE_AUTH_ACCEPTED: */
    struct slice class_name; /* class of the user's mail, or empty */
    struct slice senders;    /* senders that the user may use (verifier_list.h); empty: all */
    uint32_t rights;         /* rights of a token: a set of enum token_right */
    uint64_t stamp;          /* for a login: changes with its line in the list of users */
};
void wire_put_auth_answer(struct channel *ch, const struct wire_auth_answer *m);
bool wire_get_auth_answer(struct slice body, struct wire_auth_answer *ret);

struct wire_auth_check {
    uint64_t login; /* receive's number of the login */
    struct slice user;
    uint64_t stamp; /* stamp of the answer that accepted it */
};
void wire_put_auth_check(struct channel *ch, const struct wire_auth_check *m);
bool wire_get_auth_check(struct slice body, struct wire_auth_check *ret);

/* Size of the permanent secret (auth_key.h). */
#define WIRE_AUTH_KEY_SIZE 32u
struct wire_auth_key {
    struct slice bytes; /* WIRE_AUTH_KEY_SIZE bytes */
};
void wire_put_auth_key(struct channel *ch, const struct wire_auth_key *m);
bool wire_get_auth_key(struct slice body, struct wire_auth_key *ret);

struct wire_auth_connected {
    struct slice why; /* reason for a missing connection; empty: there is one */
};
void wire_put_auth_connected(struct channel *ch, const struct wire_auth_connected *m, int fd);
bool wire_get_auth_connected(struct slice body, struct wire_auth_connected *ret);

/* One entry to deliver. Transport policies are not in the frame: the delivering process has the
 * configuration. */
struct wire_deliver_rcpt {
    uint32_t n;
    struct slice address;
    struct slice orcpt;
    uint32_t notify;
};
enum wire_content_place {
    CONTENT_INSIDE,    /* in the frame */
    CONTENT_FD,        /* in the descriptor of the frame */
    CONTENT_ON_DEMAND, /* request it with WIRE_NEED_CONTENT */
    CONTENT_NONE,      /* the agent finds it through `path` */
};
struct wire_deliver {
    uint64_t entry;
    struct slice transport;
    struct slice nexthop;
    struct slice id;   /* queue id */
    struct slice path; /* control file relative to transport/, "A/90417"; empty: none */
    struct slice sender;
    struct slice envid;
    uint32_t flags;
    struct wall arrived;
    bool cache_load, cache_store; /* look for a kept connection; keep the connection */
    const struct wire_deliver_rcpt *rcpts;
    uint32_t rcpt_count;
    uint64_t size;
    enum wire_content_place place;
    struct slice content; /* all content, or the part before the descriptor's bytes */
};
void wire_put_deliver(struct channel *ch, const struct wire_deliver *m, int fd);
bool wire_get_deliver(struct slice body, struct wire_deliver *ret,
                      struct wire_deliver_rcpt **ret_rcpts);

void wire_put_lease(struct channel *ch, int fd);
void wire_put_break_off(struct channel *ch, uint64_t entry);
void wire_put_go_on(struct channel *ch, uint64_t entry);
void wire_put_need_content(struct channel *ch, uint64_t entry);
bool wire_get_need_content(struct slice body, uint64_t *ret_entry);

struct wire_content {
    uint64_t entry;
    bool ok;              /* false: it can't be read; defer the delivery */
    struct slice content; /* all content, or the part before the descriptor's bytes */
};
void wire_put_content(struct channel *ch, const struct wire_content *m, int fd);
bool wire_get_content(struct slice body, struct wire_content *ret);

/* Verdicts of recipients: exactly one for each recipient of an entry. */
enum wire_verdict_kind {
    VERDICT_SENT,
    VERDICT_RELAYED, /* sent to a site without DSN; success notices were requested */
    VERDICT_DEFERRED,
    VERDICT_BOUNCED,
    VERDICT_NONE, /* the agent's answer has no verdict for this recipient */
};
/* The process that writes the bounce or notice about a recipient. */
enum wire_report {
    WIRE_REPORT_DUE, /* the queue process, with its own text */
    /* the queue process, with the agent's text in the message's file; for VERDICT_SENT and
     * VERDICT_BOUNCED */
    WIRE_REPORT_WRITTEN,
    WIRE_REPORT_NONE, /* no process; for VERDICT_SENT */
    WIRE_REPORT_COUNT,
};
struct wire_verdict {
    uint32_t n;
    enum wire_verdict_kind kind;
    struct slice status; /* "2.0.0" */
    struct slice reply;  /* reply of the remote site: "550 5.1.1 no"; empty: none */
    /* account for the log: `host x[y] said: REPLY (in ..)`; empty: same as the reply, see
     * wire_verdict_text */
    struct slice text;
    struct slice relay; /* "mx.example[192.0.2.1]:25", "maildir", "none" */
    enum wire_report report;
    bool stops_thread;    /* its text is the reason of thread_stops */
    struct slice details; /* agent's details for the bounce (delivery_details.h), or empty */
};
static inline struct slice wire_verdict_text(const struct wire_verdict *v)
{
    return v->text.len > 0 ? v->text : v->reply;
}

/* The peer's proof on the last connection of an attempt, in ascending order. */
enum wire_proof {
    WIRE_PROOF_NONE,      /* no connection, or one that does not use TLS */
    WIRE_PROOF_CLEAR,     /* no TLS */
    WIRE_PROOF_ANONYMOUS, /* TLS without a certificate */
    WIRE_PROOF_UNTRUSTED, /* a certificate without a trusted authority */
    WIRE_PROOF_TRUSTED,   /* a certificate of a trusted authority for another name */
    WIRE_PROOF_VERIFIED,  /* a certificate of a trusted authority for an expected name */
    /* a certificate for an expected name, from the authority of a TLSA record */
    WIRE_PROOF_DANE_TA,
    WIRE_PROOF_DANE_EE, /* the certificate of a TLSA record */
    WIRE_PROOF_COUNT,
};
/* Returns "clear", "verified", "dane-ee" ..; empty for WIRE_PROOF_NONE. */
const char *wire_proof_name(enum wire_proof proof);

enum wire_outcome {
    OUTCOME_OK,        /* the site was reached, whatever its replies */
    OUTCOME_SITE_FAIL, /* site class failure: changes the window */
    /* a transport agent has died or could not be started: `reason`. Earlier verdicts count;
     * VERDICT_NONE for the rest */
    OUTCOME_CRASH,
    /* untried: the recipients return unchanged, without verdicts. With `thread_stops` they wait for
     * their thread, otherwise (shutdown) not */
    OUTCOME_GIVEN_BACK,
    /* broken off: no result for recipients with VERDICT_NONE, or for all if there are no
     * verdicts */
    OUTCOME_BROKEN_OFF
};
/* The setting that the result shows to be wrong (conf/failure.h). */
enum wire_fault {
    WIRE_FAULT_NONE,
    WIRE_FAULT_ROUTE,          /* the setting that named the next hop */
    WIRE_FAULT_FALLBACK_RELAY, /* smtp_fallback_relay */
    WIRE_FAULT_BIND_ADDRESS,   /* smtp_bind_address */
    WIRE_FAULT_BIND_ADDRESS6,  /* smtp_bind_address6 */
    WIRE_FAULT_COUNT,
};
struct wire_result {
    uint64_t entry;
    enum wire_outcome outcome;
    enum wire_fault fault; /* a recipient waits because of it */
    uint32_t fault_rcpt;   /* number of that recipient */
    /* for OUTCOME_SITE_FAIL: "4.4.1 connect to ...: Connection refused"; for OUTCOME_CRASH:
     * "transport agent /x/smtp ended with exit status 75" */
    struct slice reason;
    int64_t setup_us;    /* time from start to end of connection set-up (delays=.../c/) */
    int64_t transmit_us; /* remaining time (delays=.../d) */
    uint32_t conn_use;   /* number of transactions on the connection; 0, 1: first or none */
    enum wire_proof proof;
    struct slice tls_version; /* "TLSv1.3"; empty without TLS */
    struct slice tls_cipher;  /* "TLS_AES_256_GCM_SHA384"; empty without TLS */
    bool maybe_duplicate;     /* the connection was lost between the final dot and the reply */
    /* Only for transport agents; otherwise false and 0: */
    bool resync;              /* the control file must be read again */
    bool thread_stops;        /* deliver no more mail of this transport and next hop now */
    struct wall thread_until; /* time before which delivery must not continue; us 0: not given */
    uint32_t pid;             /* pid of the agent, for the log */
    const struct wire_verdict *verdicts;
    uint32_t verdict_count;
};
void wire_put_result(struct channel *ch, const struct wire_result *m);
bool wire_get_result(struct slice body, struct wire_result *ret,
                     struct wire_verdict **ret_verdicts);

struct wire_forget {
    struct slice transport; /* empty: all */
    struct slice nexthop;
};
void wire_put_forget(struct channel *ch, const struct wire_forget *m);
bool wire_get_forget(struct slice body, struct wire_forget *ret);

/* Largest number of policy lookups at the same time. */
#define WIRE_FETCHES_MAX 1000u

/* A request for the MTA-STS policy of a domain (sts.h). */
struct wire_policy_ask {
    uint64_t token;
    struct slice domain;
};
void wire_put_policy_ask(struct channel *ch, const struct wire_policy_ask *m);
bool wire_get_policy_ask(struct slice body, struct wire_policy_ask *ret);

struct wire_policy_answer {
    uint64_t token;
    struct slice policy; /* written by sts_policy_put; empty: no policy */
};
void wire_put_policy_answer(struct channel *ch, const struct wire_policy_answer *m);
bool wire_get_policy_answer(struct slice body, struct wire_policy_answer *ret);

/* A request about the TLS of a delivery. */
struct wire_tls_look {
    uint64_t token;
    struct slice transport;
    struct slice nexthop;
    bool connect; /* connect to each usable host, up to the step before mail */
};
void wire_put_tls_look(struct channel *ch, const struct wire_tls_look *m);
bool wire_get_tls_look(struct slice body, struct wire_tls_look *ret);

enum wire_dnssec { DNSSEC_UNKNOWN, DNSSEC_INSECURE, DNSSEC_SECURE, DNSSEC_BOGUS, DNSSEC_STATES };
struct wire_tls_host {
    struct slice name;
    uint32_t preference;
    struct slice addresses; /* separated by blanks */
    enum wire_dnssec dnssec;
    struct slice records; /* usable TLSA records: "3 1 1 9F..", one per line */
    bool used;
    struct slice text; /* the demand, or the reason why it is not used */
    /* Only after a connection: */
    bool tried;
    bool met;                 /* its proof meets the demand */
    struct slice relay;       /* "mx1.example.org[192.0.2.1]:25" */
    struct slice protection;  /* text as in the log: "verified/TLSv1.3/TLS_AES_256_GCM_SHA384" */
    struct slice certificate; /* description of the certificate (tls.h) */
    struct slice trouble;     /* reason why not `met`, or why mail would go in clear */
};
#define WIRE_TLS_HOSTS_MAX 16 /* equals MXLIST_HOSTS_MAX */
struct wire_tls_seen {
    uint64_t token;
    bool found; /* false: `text` is the reason for mail */
    bool later; /* if not `found`: mail is deferred; false: it bounces */
    struct slice text;
    enum wire_dnssec dnssec; /* state of the MX answer */
    const struct wire_tls_host *hosts;
    uint32_t host_count;
};
void wire_put_tls_seen(struct channel *ch, const struct wire_tls_seen *m);
bool wire_get_tls_seen(struct slice body, struct wire_tls_seen *ret,
                       struct wire_tls_host **ret_hosts);

/* Watches: dialogues that operators want to see. */
#define WIRE_WATCHES_MAX 8u
enum wire_watch_kind {
    WATCH_DESTINATION, /* a pattern for "transport/nexthop", next hop, host or its address */
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

/* Events of a connection. */
enum wire_said {
    SAID_OPENED,
    SAID_LINE,    /* `text`: a line; `bytes`: its length with line end */
    SAID_LOGIN,   /* `bytes` of a login are hidden; `text`: the part before them */
    SAID_UNKNOWN, /* `bytes` that are not a command are hidden: they may belong to a login */
    SAID_CONTENT, /* `bytes` of a message are hidden */
    SAID_SECURED, /* `text`: version and cipher */
    SAID_CLOSED,  /* `text`: reason, if there is one */
    SAID_KINDS
};
struct wire_dialogue {
    uint64_t watch;
    uint64_t dropped;     /* number of events before it that were above the limit */
    struct slice process; /* "deliver/0"; added by the queue process */
    uint64_t connection;  /* number of the connection in that process */
    struct wall at;
    enum wire_said said;
    bool ours; /* our event; false: the peer's */
    uint64_t bytes;
    struct slice text; /* printable ASCII; other bytes as \xNN */
    struct slice peer, source, tls;
    struct slice destination, id; /* only from deliver; may be empty */
};
void wire_put_dialogue(struct channel *ch, const struct wire_dialogue *m);
bool wire_get_dialogue(struct slice body, struct wire_dialogue *ret);

/* A request to look up a policy. */
struct wire_fetch {
    struct slice domain;
    struct slice id; /* id of the known policy, or empty */
    bool always;     /* fetch the policy even if its id is the same */
};
void wire_put_fetch(struct channel *ch, const struct wire_fetch *m);
bool wire_get_fetch(struct slice body, struct wire_fetch *ret);

enum wire_fetch_outcome {
    FETCH_POLICY,    /* result in `id` and `policy` */
    FETCH_SAME,      /* the id equals the known one */
    FETCH_NO_RECORD, /* the domain's TXT records name no policy */
    FETCH_NO_DNS,    /* temporary failure of the DNS: `why` */
    FETCH_FAILED,    /* the records name policy `id`, but fetching failed: `why` */
    FETCH_OUTCOMES
};
struct wire_fetched {
    struct slice domain;
    enum wire_fetch_outcome outcome;
    struct slice id;
    struct slice policy; /* written by sts_policy_put */
    struct slice why;
};
void wire_put_fetched(struct channel *ch, const struct wire_fetched *m);
bool wire_get_fetched(struct slice body, struct wire_fetched *ret);

/* A DNS query (net/resolver.h). */
struct wire_dns_query {
    uint64_t token; /* number that the asking process gives to this query */
    struct slice name;
    uint32_t type; /* enum resolver_type */
    bool prove;    /* validate the answer */
};
void wire_put_dns_query(struct channel *ch, const struct wire_dns_query *m);
bool wire_get_dns_query(struct slice body, struct wire_dns_query *ret);

struct wire_dns_answer {
    uint64_t token;
    uint32_t outcome; /* enum resolver_outcome */
    bool secure;
    struct slice packet; /* may be empty */
    struct slice bogus;  /* fault of wrong signatures; may be empty */
};
void wire_put_dns_answer(struct channel *ch, const struct wire_dns_answer *m);
bool wire_get_dns_answer(struct slice body, struct wire_dns_answer *ret);

/* Web hooks (conf/hook_list.h); the queue process uses only their names. */
#define WIRE_HOOK_NAME_MAX 32
/* bytes of events after which a page ends; a shorter page is the last */
#define WIRE_HOOK_PAGE     (256u << 10)
#define WIRE_HOOK_PAGE_MAX (2u << 20) /* bytes of a page with the longest line at its end */
struct wire_hook_ask {
    struct slice name;
};
void wire_put_hook_ask(struct channel *ch, const struct wire_hook_ask *m);
bool wire_get_hook_ask(struct slice body, struct wire_hook_ask *ret);

struct wire_hook_events {
    struct slice name;
    uint64_t after, last;        /* event numbers: above `after`, up to `last` */
    uint64_t lost_from, lost_to; /* events that are no longer stored; 0: none */
    struct slice lines;
};
void wire_put_hook_events(struct channel *ch, const struct wire_hook_events *m);
bool wire_get_hook_events(struct slice body, struct wire_hook_events *ret);

struct wire_hook_done {
    struct slice name;
    uint64_t last;        /* number of the last event that is done */
    bool given_up;        /* the events were not accepted: `letters` are dead letters */
    struct slice letters; /* lines of the dead letters */
};
void wire_put_hook_done(struct channel *ch, const struct wire_hook_done *m);
bool wire_get_hook_done(struct slice body, struct wire_hook_done *ret);

struct wire_hook_failing {
    struct slice name;
    struct slice why; /* empty: no longer failing */
};
void wire_put_hook_failing(struct channel *ch, const struct wire_hook_failing *m);
bool wire_get_hook_failing(struct slice body, struct wire_hook_failing *ret);

/* A request to the queue process and its answer, both in JSON; docs/api.md has the operations. The
 * content of a message (operation "cat") is in a descriptor or in `bytes`. */
struct wire_ask {
    uint64_t token;
    struct slice json;
};
void wire_put_ask(struct channel *ch, const struct wire_ask *m);
bool wire_get_ask(struct slice body, struct wire_ask *ret);

struct wire_answer {
    uint64_t token;
    uint32_t status;    /* status of HTTP: 200, 400, 404, 409, 503 */
    struct slice json;  /* result, or {"error": "..."} */
    struct slice bytes; /* content, if it was requested and there is no descriptor */
};
void wire_put_answer(struct channel *ch, const struct wire_answer *m, int fd);
bool wire_get_answer(struct slice body, struct wire_answer *ret);

/* Sends or decodes types whose body is a single number, or empty. */
void wire_put_number(struct channel *ch, enum wire_type type, uint64_t number);
bool wire_get_number(struct slice body, uint64_t *ret_number);
void wire_put_empty(struct channel *ch, enum wire_type type);
bool wire_get_empty(struct slice body);

#endif
