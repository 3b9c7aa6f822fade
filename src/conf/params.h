/*
 * The table of parameters. It generates the members of `struct conf` and `struct policy`, parsing,
 * `config show`, `config explain`, the manual page and the error texts.
 *
 * Columns of CONF_PARAMS, the global parameters:
 *
 *   X(type, name, unit, default, min, max, meaning)
 *
 * Columns of POLICY_PARAMS, the values that may differ by transport and destination:
 *
 *   X(type, name, default_name, unit, default, min, max, meaning)
 *
 * In a clause such a value is called `name`; for one transport it is the parameter TRANSPORT_name;
 * for all transports it is `default_name`. With an empty default_name it exists only in clauses.
 *
 *   type     member            unit                           min, max
 *   STRING   const char *      "path": made absolute;         not used
 *                              "raw": $ is not expanded
 *   LIST     struct conf_list  the kind of an element         not used
 *   BOOL     bool              ""                             not used
 *   INT      int64_t           the kind of thing counted      in these
 *   SIZE     int64_t           "bytes"                        bytes
 *   TIME     int64_t _us       unit of a bare number          microseconds
 *   CHOICE   int               the words: index = value       not used
 *   FEEDBACK struct            ""                             not used
 *
 * Parameters of other mail systems are rows of this table, too. Those that only the directory of
 * such a system reads are in a section with a comment about that, and a test checks it.
 *
 * PARAM_NO_MAX as the maximum means that of the type. The default is text in the file's syntax, so
 * `$name` in it expands.
 */
#ifndef CONF_PARAMS_H
#define CONF_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "times.h"
#include "value.h"

/* Kind of an element of `listen` (nexthop.h). */
#define LISTEN_UNIT                                                                                \
    "smtp://HOST:PORT, lmtp://HOST:PORT, lmtp:unix:PATH, submission://HOST, submissions://HOST, "  \
    "http://HOST:PORT or https://HOST:PORT, each perhaps with class=NAME, auth=yes, "              \
    "filtered=yes and proxy=yes"

/* Kind of an element of local_recipient_maps (callout_target.h). */
#define RECIPIENTS_UNIT  "file, unix:passwd.byname, lmtp:, lmtp:NEXTHOP, smtp: or smtp:NEXTHOP"
#define RECIPIENTS_USERS "unix:passwd.byname" /* users of this machine, as Postfix names them */

struct conf_list {
    const char *const *items;
    size_t count;
};

/* Users that the installation makes (etc/sluice.sysusers). */
#define CONF_MAIL_OWNER   "sluice"
#define CONF_RECEIVE_USER "sluice-receive"
#define CONF_DELIVER_USER "sluice-deliver"

/* Maximum rows of CONF_PARAMS and POLICY_PARAMS, for arrays by parameter. */
#define PARAM_COUNT_MAX 320

/* Prefix of the meaning of a parameter that is accepted in files of Postfix and ZMailer, but has no
 * effect. A file that sets it causes a warning. */
#define NO_EFFECT "no effect: "

/* Each enum has the order of the words in the table. */
enum conf_tls {
    CONF_TLS_NONE,
    CONF_TLS_MAY,
    CONF_TLS_ENCRYPT,
    CONF_TLS_VERIFY,
    CONF_TLS_SECURE,
    CONF_TLS_DANE,
    CONF_TLS_DANE_ONLY,
};
#define CONF_TLS_WORDS "none|may|encrypt|verify|secure|dane|dane-only"
/* TLS levels that a login may require. */
#define CONF_LOGIN_TLS_WORDS "none|may|encrypt|verify|secure"

enum conf_cluster_standby { CONF_CLUSTER_STANDBY_REQUIRED, CONF_CLUSTER_STANDBY_NONE };
#define CONF_CLUSTER_STANDBY_WORDS "required|none"
enum conf_cluster_limits { CONF_CLUSTER_LIMITS_EACH, CONF_CLUSTER_LIMITS_DIVIDE };
#define CONF_CLUSTER_LIMITS_WORDS "each|divide"

enum conf_sts { CONF_STS_NO, CONF_STS_TEST, CONF_STS_YES };
#define CONF_STS_WORDS "no|test|yes"

enum conf_server_tls { CONF_SERVER_TLS_NONE, CONF_SERVER_TLS_MAY, CONF_SERVER_TLS_ENCRYPT };
#define CONF_SERVER_TLS_WORDS "none|may|encrypt"

enum conf_agent {
    CONF_AGENT_SMTP,
    CONF_AGENT_LMTP,
    CONF_AGENT_MAILDIR,
    CONF_AGENT_PIPE,
    CONF_AGENT_ERROR,
    CONF_AGENT_RETRY,
    CONF_AGENT_DISCARD,
    CONF_AGENT_TA,
    CONF_AGENT_POSTFIX,
    CONF_AGENT_MILTER
};
#define CONF_AGENT_WORDS "smtp|lmtp|maildir|pipe|error|retry|discard|ta|postfix|milter"

enum conf_default_class {
    CONF_DEFAULT_CLASS_NONE,
    CONF_DEFAULT_CLASS_SENDER,
    CONF_DEFAULT_CLASS_AUTO
};
#define CONF_DEFAULT_CLASS_WORDS "none|sender|auto"

enum conf_class_fairness {
    CONF_CLASS_FAIRNESS_NONE,
    CONF_CLASS_FAIRNESS_SENDER,
    CONF_CLASS_FAIRNESS_CLIENT,
    CONF_CLASS_FAIRNESS_SENDER_DOMAIN
};
#define CONF_CLASS_FAIRNESS_WORDS "none|sender|client|sender-domain"

enum conf_feedback_rule { CONF_FEEDBACK_RULE_DOCUMENTED, CONF_FEEDBACK_RULE_POSTFIX };
#define CONF_FEEDBACK_RULE_WORDS "documented|postfix"

enum conf_report_return { CONF_REPORT_RETURN_FULL, CONF_REPORT_RETURN_HEADERS };
#define CONF_REPORT_RETURN_WORDS "full|headers"

enum conf_statistics_format { CONF_STATISTICS_FORMAT_CURRENT, CONF_STATISTICS_FORMAT_OLD };
#define CONF_STATISTICS_FORMAT_WORDS "current|old"

/* Fate of mail when a filter fails. */
enum conf_milter_action {
    CONF_MILTER_ACTION_TEMPFAIL,
    CONF_MILTER_ACTION_ACCEPT,
    CONF_MILTER_ACTION_REJECT,
    CONF_MILTER_ACTION_QUARANTINE,
    CONF_MILTER_ACTION_SHUTDOWN
};
#define CONF_MILTER_ACTION_WORDS "tempfail|accept|reject|quarantine|shutdown"

/* Versions of the milter protocol. */
#define MILTER_PROTOCOL_MIN 2
#define MILTER_PROTOCOL_MAX 6
/* Kinds of our own mail. */
#define FILTER_CLASS_UNIT "bounce or notify"
/* Kind of an element of smtpd_milters (milter_list.h). */
#define MILTER_UNIT "inet:HOST:PORT, inet6:HOST:PORT, unix:PATH or { ADDRESS, OPTION=VALUE, .. }"

enum conf_prefer { CONF_PREFER_ANY, CONF_PREFER_IPV6, CONF_PREFER_IPV4 };
#define CONF_PREFER_WORDS "any|ipv6|ipv4"

#define PARAM_MS(n)   ((n)*US_PER_MS)
#define PARAM_S(n)    ((n)*US_PER_S)
#define PARAM_DAYS(n) ((n)*US_PER_DAY)
#define PARAM_NO_MAX  INT64_MAX

/* Maximum weight; a class with more would leave almost nothing to the others. */
#define CONF_WEIGHT_MAX 1000

/* Maximum of a lifetime; more is a typing error, and Postfix refuses it, too. */
#define PARAM_LIFETIME_MAX PARAM_DAYS(100)

#define CONF_PARAMS(X)                                                                             \
    /* names and places */                                                                         \
    X(STRING, myhostname, "host name", "", 0, 0,                                                   \
      "name of this machine in greetings and Received: lines; default: the system's host name")    \
    X(STRING, mydomain, "domain name", "", 0, 0,                                                   \
      "local domain; default: $myhostname without its first label")                                \
    X(STRING, myorigin, "domain name", "$myhostname", 0, 0, "domain of addresses that have none")  \
    X(STRING, syslog_name, "", "postfix", 0, 0,                                                    \
      "program name in log lines; the default is what log analysers look for")                     \
    X(STRING, log, "stderr, syslog, postlog:PATH or file:PATH", "stderr", 0, 0,                    \
      "where log lines go; postlog: the socket of Postfix's postlogd")                             \
    X(STRING, state_directory, "path", "/var/spool/sluice", 0, 0,                                  \
      "relative paths start here; itself relative to the configuration file's directory")          \
    X(STRING, spool, "sqlite:PATH, postgresql:URL, postoffice:DIR or postfix:DIR",                 \
      "sqlite:queue.db", 0, 0, "the durable queue")                                                \
    X(STRING, spool_password_file, "path", "", 0, 0,                                               \
      "file whose first line is the password for the server of `spool'; only root and the "        \
      "daemon's user may read it")                                                                 \
    X(STRING, cluster_node, "host name", "$myhostname", 0, 0,                                      \
      "name of this node among those that have one `spool'; no two may have the same")             \
    X(CHOICE, cluster_standby, CONF_CLUSTER_STANDBY_WORDS, "required", 0, 0,                       \
      "whether mail must be on a synchronous standby of the database, too, before it is "          \
      "acknowledged; none: there is one server, and nothing ever takes its place")                 \
    X(CHOICE, cluster_limits, CONF_CLUSTER_LIMITS_WORDS, "each", 0, 0,                             \
      "of several nodes, what process_limit, transport_rate_delay, maxchannel and maxta are "      \
      "about: each of them, or all; then they are divided by the number of nodes that are up, at " \
      "least one delivery at once for each. A maxring is one node's in any case")                  \
    X(SIZE, spool_inline_limit, "bytes", "16k", 0, 1 << 30,                                        \
      "larger content is kept in files next to the database")                                      \
    X(STRING, maildrop, "path", "maildrop", 0, 0,                                                  \
      "directory where sendmail leaves mail; empty: none")                                         \
    X(STRING, control_socket, "path", "control.sock", 0, 0, "Unix socket of the HTTP interface")   \
    X(INT, control_socket_mode, "octal", "0660", 0, 0777, "permissions of control_socket")         \
    X(STRING, control_socket_group, "group", "", 0, 0,                                             \
      "group of control_socket; empty: the daemon's")                                              \
    X(LIST, control_listen, "http://HOST:PORT, https://HOST:PORT", "", 0, 0,                       \
      "addresses of the HTTP interface, whose clients show tokens of api_tokens; http:// on "      \
      "loopback alone")                                                                            \
    X(LIST, metrics_destinations, "transport/nexthop", "", 0, 0,                                   \
      "destinations that metrics name always, as well as the busiest; lower case")                 \
    /* processes */                                                                                \
    X(STRING, mail_owner, "user", "", 0, 0,                                                        \
      "user of the queue process when started as root; empty: " CONF_MAIL_OWNER ", if there is "   \
      "such a user, else root, and nobody where `spool' is a server")                              \
    X(STRING, receive_user, "user", "", 0, 0,                                                      \
      "user of the receiving processes when started as root, which must not be root; "             \
      "empty: " CONF_RECEIVE_USER ", if there is such a user, else nobody")                        \
    X(STRING, deliver_user, "user", "", 0, 0,                                                      \
      "user of the processes that deliver by SMTP and that call others when started as root, "     \
      "which must not be root; empty: " CONF_DELIVER_USER ", if there is that user, else nobody")  \
    X(STRING, chroot_directory, "path", "", 0, 0,                                                  \
      "empty directory that confines the network processes; empty: no chroot")                     \
    X(INT, receive_processes, "processes", "1", 1, 64, "receiving processes")                      \
    X(INT, deliver_processes, "processes", "1", 1, 64, "delivering processes")                     \
    X(TIME, shutdown_timeout, "s", "30s", 0, PARAM_S(3600),                                        \
      "how long a stop waits for deliveries that are in flight")                                   \
    X(TIME, daemon_timeout, "s", "18000s", PARAM_S(1), PARAM_DAYS(30),                             \
      "longest that one delivery request may take")                                                \
    X(TIME, qmgr_daemon_timeout, "s", "1000s", PARAM_S(1), PARAM_DAYS(30),                         \
      "longest that one turn of the queue process may take before it is restarted")                \
    X(TIME, qmgr_ipc_timeout, "s", "60s", PARAM_S(1), PARAM_DAYS(30),                              \
      "longest that an exchange with the queue process may take")                                  \
    X(TIME, service_throttle_time, "s", "60s", PARAM_S(1), PARAM_DAYS(1),                          \
      "pause before a process that died at start-up is started again")                             \
    X(BOOL, debug_clock, "", "no", 0, 0, "tests may move the clock")                               \
    /* receiving */                                                                                \
    X(LIST, listen, LISTEN_UNIT, "smtp://127.0.0.1:25", 0, 0,                                      \
      "where mail is accepted; class=NAME after an address: mail received there is of that "       \
      "class; auth=yes: clients may log in; filtered=yes: content_filter hands mail back there; "  \
      "proxy=yes: each connection begins with the client's address in a header of the PROXY "      \
      "protocol")                                                                                  \
    X(STRING, auth_users, "path", "", 0, 0,                                                        \
      "file of the users that may log in to send mail (`sluice auth'); only root and the "         \
      "daemon's user may read it")                                                                 \
    X(STRING, auth_dovecot, "path", "", 0, 0,                                                      \
      "socket of Dovecot's auth service, which judges logins in place of auth_users; empty: "      \
      "none")                                                                                      \
    X(STRING, api_tokens, "path", "", 0, 0,                                                        \
      "file of the tokens of programs that send mail by HTTP (`sluice token'); only root and the " \
      "daemon's user may read it")                                                                 \
    X(INT, inject_recipient_limit, "recipients", "100000", 1, 500000,                              \
      "recipients of one call by HTTP")                                                            \
    X(TIME, inject_key_time, "s", "1d", PARAM_S(1), PARAM_DAYS(100),                               \
      "how long the key of a call by HTTP is known")                                               \
    X(INT, inject_key_limit, "messages", "1000000", 1, 100000000,                                  \
      "messages whose keys are known at once; with more, calls with a key are put off")            \
    X(SIZE, inject_json_limit, "bytes", "32m", 1024, 1 << 30,                                      \
      "largest JSON document of one call by HTTP; read, it may take 16 times as much memory")      \
    X(LIST, relay_networks, "address/bits", "127.0.0.0/8 [::1]/128", 0, 0,                         \
      "clients that may send to any domain")                                                       \
    X(BOOL, allow_open_relay, "", "no", 0, 0,                                                      \
      "relay_networks and smtpd_upstream_proxy_networks may hold all addresses though `listen' "   \
      "is open to other machines: anyone may send any mail")                                       \
    X(LIST, smtpd_upstream_proxy_networks, "address/bits", "$relay_networks", 0, 0,                \
      "proxies that may connect to listeners with proxy=yes; other connections are closed")        \
    X(TIME, smtpd_upstream_proxy_timeout, "s", "5s", PARAM_S(1), PARAM_S(86400),                   \
      "longest wait for the header of such a proxy")                                               \
    X(LIST, relay_domains, "domain pattern", "", 0, 0,                                             \
      "domains that all clients may send to and that are passed on")                               \
    X(LIST, client_access, "file or cidr:file", "", 0, 0,                                          \
      "rules by address of the client: files of `network action' lines, the first that has "       \
      "a rule for it decides")                                                                     \
    X(LIST, sender_access, "file", "", 0, 0,                                                       \
      "rules by envelope sender: files of `address-or-domain action' lines")                       \
    X(LIST, recipient_access, "file", "", 0, 0,                                                    \
      "rules by recipient: files of `address-or-domain action' lines")                             \
    X(LIST, local_recipient_maps, RECIPIENTS_UNIT, "", 0, 0,                                       \
      "files of the addresses that there are in local_domains, others are refused; "               \
      "unix:passwd.byname: users of this machine; lmtp: and smtp: ask at RCPT; empty: all are "    \
      "accepted")                                                                                  \
    X(LIST, relay_recipient_maps, RECIPIENTS_UNIT, "", 0, 0, "the same for relay_domains")         \
    X(TIME, callout_timeout, "s", "30s", PARAM_S(1), PARAM_DAYS(1),                                \
      "longest wait for each answer of a peer that is asked which recipients there are; then the " \
      "client is to try again")                                                                    \
    X(TIME, callout_positive_time, "s", "1h", 0, PARAM_DAYS(30), "how long its yes is remembered") \
    X(TIME, callout_negative_time, "s", "5m", 0, PARAM_DAYS(30), "how long its no is remembered")  \
    X(LIST, header_checks, "file or pcre:file", "", 0, 0,                                          \
      "rules by header field: files of `/pattern/flags action' lines (PCRE)")                      \
    X(LIST, body_checks, "file or pcre:file", "", 0, 0, "the same by line of the body")            \
    X(SIZE, body_checks_size_limit, "bytes", "51200", 0, PARAM_NO_MAX,                             \
      "how much of the body, and of each of its MIME parts, body_checks look at")                  \
    X(TIME, checks_time_limit, "s", "1s", PARAM_MS(10), PARAM_S(60),                               \
      "processor time that header_checks and body_checks of one message may take; mail that "      \
      "needs more is deferred")                                                                    \
    X(STRING, content_filter, "transport:nexthop", "", 0, 0,                                       \
      "where all mail goes first, except that of a listener with filtered=yes; empty: "            \
      "nowhere")                                                                                   \
    X(LIST, virtual_alias_maps, "file", "", 0, 0,                                                  \
      "files of `address addresses' lines: recipients that stand for others")                      \
    X(LIST, virtual_alias_domains, "domain pattern", "", 0, 0,                                     \
      "domains whose addresses are all in virtual_alias_maps; others there are refused")           \
    X(LIST, alias_maps, "file", "", 0, 0,                                                          \
      "files of `name: addresses' lines, in the form of /etc/aliases: names of local_domains "     \
      "that stand for other addresses")                                                            \
    X(LIST, canonical_maps, "file", "", 0, 0,                                                      \
      "files of `address address' lines: other forms of senders and recipients, in envelopes "     \
      "and in header fields of own clients")                                                       \
    X(LIST, sender_canonical_maps, "file", "", 0, 0,                                               \
      "the same for senders, before canonical_maps")                                               \
    X(LIST, recipient_canonical_maps, "file", "", 0, 0,                                            \
      "the same for recipients, before canonical_maps")                                            \
    X(STRING, always_bcc, "mail address", "", 0, 0,                                                \
      "one more recipient of each message; empty: none")                                           \
    X(LIST, sender_bcc_maps, "file", "", 0, 0,                                                     \
      "files of `sender address' lines: one more recipient of mail from there")                    \
    X(LIST, recipient_bcc_maps, "file", "", 0, 0,                                                  \
      "files of `recipient address' lines: one more recipient of mail to there")                   \
    X(STRING, smtpd_banner, "", "$myhostname ESMTP", 0, 0,                                         \
      "text of the greeting after 220; begins with the host name")                                 \
    X(SIZE, message_size_limit, "bytes", "10240000", 0, PARAM_NO_MAX,                              \
      "largest message; 0: no limit")                                                              \
    X(SIZE, header_size_limit, "bytes", "102400", 1, 1 << 30,                                      \
      "largest field of the header; what is over it is left out")                                  \
    X(SIZE, header_section_size_limit, "bytes", "1m", 1, 2 << 20,                                  \
      "largest header, all fields together; a message with a larger one is refused")               \
    X(BOOL, always_add_missing_headers, "", "no", 0, 0,                                            \
      "mail of clients without the right to relay gets From, Date and Message-ID, too, where "     \
      "they are "                                                                                  \
      "missing")                                                                                   \
    X(STRING, smtpd_forbid_bare_newline, "", "reject", 0, 0,                                       \
      NO_EFFECT "only clients of smtpd_forbid_bare_newline_exclusions may send lines that end "    \
                "with LF alone")                                                                   \
    X(LIST, smtpd_forbid_bare_newline_exclusions, "address/bits", "$relay_networks", 0, 0,         \
      "clients whose lines may end with LF alone, in commands and content; content of all others " \
      "is refused then")                                                                           \
    X(SIZE, line_length_limit, "bytes", "2048", 512, 1 << 20,                                      \
      "longest command line of an SMTP client; after a longer one its session is ended")           \
    X(INT, hopcount_limit, "Received: fields", "50", 1, 1000,                                      \
      "a message with more has looped and is refused")                                             \
    X(SIZE, queue_minfree, "bytes", "0", 0, PARAM_NO_MAX,                                          \
      "mail is refused for now when the spool has less space; 0: 1.5 times message_size_limit")    \
    X(TIME, in_flow_delay, "s", "1s", 0, PARAM_S(10),                                              \
      "pause for a client that sends faster than mail enters the queue; 0: none")                  \
    X(INT, smtpd_recipient_limit, "recipients", "1000", 1, 1000000,                                \
      "recipients of one transaction")                                                             \
    X(INT, smtpd_client_connection_count_limit, "sessions", "50", 0, PARAM_NO_MAX,                 \
      "sessions of one client address at once, in each receiving process; 0: no limit")            \
    X(INT, smtpd_client_connection_share, "per cent", "50", 0, 10000,                              \
      "of the sessions that are still free, how many the clients of one network may hold; 0: as "  \
      "many as there are")                                                                         \
    X(LIST, smtpd_client_event_limit_exceptions, "address/bits", "$relay_networks", 0, 0,          \
      "clients that the smtpd_client_ limits do not bind")                                         \
    X(INT, smtpd_client_message_rate_limit, "messages", "0", 0, UINT32_MAX,                        \
      "that one client address may send in a minute; 0: no limit")                                 \
    X(INT, smtpd_client_recipient_rate_limit, "recipients", "0", 0, UINT32_MAX,                    \
      "that the mail of one client address may have in a minute; 0: no limit")                     \
    X(INT, smtpd_client_message_hour_limit, "messages", "0", 0, UINT32_MAX,                        \
      "that one client address may send in an hour; 0: no limit")                                  \
    X(INT, smtpd_client_recipient_hour_limit, "recipients", "0", 0, UINT32_MAX,                    \
      "that the mail of one client address may have in an hour; 0: no limit")                      \
    X(INT, smtpd_login_message_rate_limit, "messages", "0", 0, UINT32_MAX,                         \
      "that a user that has logged in may send in a minute, from all clients together; 0: no "     \
      "limit")                                                                                     \
    X(INT, smtpd_login_recipient_rate_limit, "recipients", "0", 0, UINT32_MAX,                     \
      "that the user's mail may have in a minute; 0: no limit")                                    \
    X(INT, smtpd_login_message_hour_limit, "messages", "0", 0, UINT32_MAX,                         \
      "that the user may send in an hour; 0: no limit")                                            \
    X(INT, smtpd_login_recipient_hour_limit, "recipients", "0", 0, UINT32_MAX,                     \
      "that the user's mail may have in an hour; 0: no limit")                                     \
    X(INT, smtpd_client_ipv4_prefix_length, "bits", "32", 1, 32,                                   \
      "IPv4 clients with these bits in common count as one address")                               \
    X(INT, smtpd_client_ipv6_prefix_length, "bits", "64", 1, 128, "the same for IPv6")             \
    X(INT, smtpd_client_ipv4_network_length, "bits", "24", 1, 32,                                  \
      "IPv4 clients with these bits in common are of one network")                                 \
    X(INT, smtpd_client_ipv6_network_length, "bits", "48", 1, 128, "the same for IPv6")            \
    X(INT, smtpd_connection_limit, "sessions", "1000", 1, 1000000,                                 \
      "sessions of all clients at once, in each receiving process; one more takes the place of "   \
      "the slowest client")                                                                        \
    X(INT, smtpd_connection_reserve, "per cent", "10", 0, 90,                                      \
      "of smtpd_connection_limit, what is kept for clients in relay_networks and on Unix sockets") \
    X(TIME, smtpd_overload_patience, "s", "250ms", 0, PARAM_S(86400),                              \
      "a client that has been waited for longer since its last message may lose its place to "     \
      "another when there are too many")                                                           \
    X(SIZE, smtpd_memory_limit, "bytes", "256m", 1 << 20, PARAM_NO_MAX,                            \
      "memory for messages that are being received, in each receiving process; at least twice "    \
      "message_size_limit; when it is full the slowest clients with the most lose their places")   \
    X(TIME, smtpd_timeout, "s", "300s", PARAM_S(1), PARAM_S(86400),                                \
      "longest wait for a command, and how long content may be slower than smtpd_min_data_rate")   \
    X(INT, smtpd_min_data_rate, "bytes per second", "500", 0, 1000000000,                          \
      "slowest content, apart from pauses of smtpd_timeout; 0: only pauses are limited")           \
    X(TIME, smtpd_starttls_timeout, "s", "300s", PARAM_S(1), PARAM_S(86400),                       \
      "longest TLS handshake of a client")                                                         \
    X(TIME, smtpd_transaction_timeout, "s", "6h", PARAM_S(1), PARAM_DAYS(7),                       \
      "longest time from MAIL to the end of its message")                                          \
    X(TIME, smtpd_session_timeout, "s", "3600s", PARAM_S(1), PARAM_DAYS(7),                        \
      "longest that one session may last, apart from content that is coming in")                   \
    X(INT, smtpd_hard_error_limit, "errors", "20", 1, 1000000,                                     \
      "a client with more errors is sent away")                                                    \
    X(INT, smtpd_soft_error_limit, "errors", "10", 1, 1000000,                                     \
      "a client with more errors is answered slowly")                                              \
    X(TIME, smtpd_error_sleep_time, "s", "1s", 0, PARAM_S(300),                                    \
      "delay of an answer after that many errors")                                                 \
    X(INT, smtpd_junk_command_limit, "commands", "100", 1, 1000000,                                \
      "commands without mail that a client may send")                                              \
    /* filters */                                                                                  \
    X(STRING, smtpd_milters, MILTER_UNIT, "", 0, 0,                                                \
      "filters that see mail of SMTP and LMTP clients, one after the other; options as the "       \
      "milter_ parameters without that word; empty or none: no filter")                            \
    X(STRING, non_smtpd_milters, MILTER_UNIT, "", 0, 0,                                            \
      "the same for mail of sendmail, and for our own (internal_mail_filter_classes)")             \
    X(LIST, internal_mail_filter_classes, FILTER_CLASS_UNIT, "bounce notify", 0, 0,                \
      "which of our own mail non_smtpd_milters see: reports to senders about their mail, notices " \
      "to the postmaster")                                                                         \
    X(CHOICE, milter_default_action, CONF_MILTER_ACTION_WORDS, "tempfail", 0, 0,                   \
      "what becomes of a message when a filter is not there, hangs, ends or breaks the "           \
      "protocol; accept passes it without that filter, quarantine holds it, shutdown ends the "    \
      "session, too")                                                                              \
    X(TIME, milter_connect_timeout, "s", "30s", PARAM_S(1), PARAM_DAYS(1),                         \
      "longest wait for the connection to a filter")                                               \
    X(TIME, milter_command_timeout, "s", "30s", PARAM_S(1), PARAM_DAYS(1),                         \
      "longest wait for its answer before the content")                                            \
    X(TIME, milter_content_timeout, "s", "300s", PARAM_S(1), PARAM_DAYS(1),                        \
      "longest wait for its answer to a piece of content, or to the end; each sign of progress "   \
      "counts from the start")                                                                     \
    X(INT, milter_protocol, "version", "6", MILTER_PROTOCOL_MIN, MILTER_PROTOCOL_MAX,              \
      "highest version of the protocol that is offered")                                           \
    X(STRING, milter_macro_daemon_name, "", "$myhostname", 0, 0,                                   \
      "macro {daemon_name} for filters")                                                           \
    X(STRING, milter_macro_v, "", "Sluice", 0, 0, "macro v for filters: name and version")         \
    X(STRING, tls_cert, "path", "", 0, 0,                                                          \
      "PEM file with the server's certificate chain; empty: no STARTTLS")                          \
    X(STRING, tls_key, "path", "$tls_cert", 0, 0, "PEM file with its private key")                 \
    X(CHOICE, smtpd_tls_security_level, CONF_SERVER_TLS_WORDS, "may", 0, 0,                        \
      "STARTTLS at smtp:// addresses: not offered, offered where there is tls_cert, or mail is "   \
      "accepted with it only (530)")                                                               \
    X(STRING, class_header, "name of a header field", "", 0, 0,                                    \
      "field that names the class of a message, where the client may relay; empty: none")          \
    X(CHOICE, default_class, CONF_DEFAULT_CLASS_WORDS, "auto", 0, 0,                               \
      "class of mail that neither class_header nor its listener gives one; auto: bulk where its "  \
      "header has List-Unsubscribe, List-Id or Precedence: bulk, list or junk, else personal; "    \
      "sender: each envelope sender is a class")                                                   \
    X(CHOICE, class_fairness, CONF_CLASS_FAIRNESS_WORDS, "sender", 0, 0,                           \
      "whose mail takes turns with each other within class bulk; none: all mail in its order")     \
    X(BOOL, class_fairness_merge, "", "yes", 0, 0,                                                 \
      "senders that differ in what mailing lists put into return paths are one for "               \
      "class_fairness")                                                                            \
    X(STRING, recipient_delimiter, "characters", "", 0, 0,                                         \
      "what separates a user name from its extension; empty: nothing does")                        \
    /* routing */                                                                                  \
    X(LIST, local_domains, "domain pattern", "", 0, 0,                                             \
      "mail for these goes to local_transport; empty: no mail is delivered on this machine")       \
    X(STRING, local_transport, "transport[:nexthop]", "local", 0, 0, "transport of local_domains") \
    X(STRING, fallback_transport, "transport[:nexthop]", "", 0, 0,                                 \
      "transport of recipients that local_recipient_maps lack; empty: they are refused")           \
    X(STRING, relay_transport, "transport[:nexthop]", "relay", 0, 0, "transport of relay_domains") \
    X(STRING, default_transport, "transport[:nexthop]", "smtp", 0, 0,                              \
      "transport of all other domains")                                                            \
    X(STRING, relayhost, "nexthop", "", 0, 0,                                                      \
      "next hop of mail that is not local; empty: the recipient's domain")                         \
    X(LIST, sender_dependent_relayhost_maps, "file", "", 0, 0,                                     \
      "text files of `sender nexthop' lines, where mail of a sender goes in place of relayhost; "  \
      "a sender is an address, @domain or <> (the null sender)")                                   \
    X(STRING, relay_auth, "path", "", 0, 0,                                                        \
      "file of logins at relays: `nexthop [sender] user:password' lines; only root and the "       \
      "daemon's user may read it")                                                                 \
    X(CHOICE, relay_auth_tls, CONF_LOGIN_TLS_WORDS, "verify", 0, 0,                                \
      "TLS that a relay needs before it gets a login, where smtp_tls_security_level wants less")   \
    X(LIST, transport_maps, "file", "", 0, 0,                                                      \
      "text files of `pattern transport:nexthop' lines that go before all else")                   \
    X(LIST, defer_transports, "transport", "", 0, 0,                                               \
      "transports whose mail waits until it is asked for")                                         \
    X(STRING, default_filter_nexthop, "nexthop", "", 0, 0,                                         \
      "next hop of a content_filter or FILTER that names none; empty: the recipient's domain")     \
    X(LIST, inet_protocols, "ipv4, ipv6 or all", "all", 0, 0,                                      \
      "address families of outgoing connections")                                                  \
    X(LIST, smtp_dns_server, "address:port", "", 0, 0, "name servers to ask; empty: the system's") \
    X(STRING, mta_sts_CAfile, "path", "", 0, 0,                                                    \
      "PEM file of the authorities trusted for hosts of MTA-STS policies; empty: the system's")    \
    X(INT, mta_sts_port, "port", "443", 1, 65535, "for tests: where hosts of policies listen")     \
    X(BOOL, mta_sts_private_addresses, "", "no", 0, 0,                                             \
      "for tests: hosts of policies may have addresses that are not of the public Internet")       \
    X(STRING, dnssec_trust_anchor_file, "path", "/usr/share/dns/root.key", 0, 0,                   \
      "DS or DNSKEY records from which answers of the DNS are proven, for DANE")                   \
    /* the queue */                                                                                \
    X(TIME, queue_run_delay, "s", "300s", PARAM_S(1), PARAM_LIFETIME_MAX,                          \
      "in Postfix's queue: from one scan of deferred mail to the next; other spools need none")    \
    X(TIME, minimal_backoff_time, "s", "300s", PARAM_S(1), PARAM_LIFETIME_MAX,                     \
      "shortest time until the next attempt, and how long a dead destination stays dead at first") \
    X(TIME, maximal_backoff_time, "s", "4000s", PARAM_S(1), PARAM_LIFETIME_MAX,                    \
      "longest time until the next attempt, and how long a destination stays dead that is found "  \
      "dead again and again")                                                                      \
    X(INT, retry_jitter, "per cent", "10", 0, 100,                                                 \
      "random addition to retry times, so that a backlog does not come back as one wave; never "   \
      "past maximal_backoff_time")                                                                 \
    X(TIME, maximal_queue_lifetime, "d", "5d", 0, PARAM_LIFETIME_MAX,                              \
      "mail is returned when it is older after an attempt; 0: one attempt")                        \
    X(TIME, bounce_queue_lifetime, "d", "5d", 0, PARAM_LIFETIME_MAX,                               \
      "the same for mail from the null sender")                                                    \
    X(TIME, delay_warning_time, "h", "0h", 0, PARAM_LIFETIME_MAX,                                  \
      "when the sender gets a notice of a delay; 0: never")                                        \
    X(TIME, report_gather, "s", "300s", 0, PARAM_S(86400),                                         \
      "where several machines share the mail of a message, how long what each has to report to "   \
      "its sender is gathered for one report")                                                     \
    X(BOOL, confirm_delay_cleared, "", "no", 0, 0,                                                 \
      "send a notice, too, when delayed mail is delivered at last")                                \
    X(TIME, transport_retry_time, "s", "60s", PARAM_S(1), PARAM_LIFETIME_MAX,                      \
      "how long a transport without agents is left alone")                                         \
    X(INT, qmgr_message_active_limit, "messages", "20000", 1, 10000000,                            \
      "messages in the active queue")                                                              \
    X(INT, qmgr_destination_share, "per cent", "100", 0, 10000,                                    \
      "of the free places of the active queue, how many mail of one class for one destination "    \
      "may hold; mail beyond that is left on disk; 0: as many as there are")                       \
    X(TIME, destination_memory_time, "s", "1h", 0, PARAM_LIFETIME_MAX,                             \
      "how long what was learned of a destination is remembered when it has no mail; 0: not at "   \
      "all")                                                                                       \
    X(INT, qmgr_failing_share, "per cent", "50", 1, 100,                                           \
      "of a transport's process_limit, if that is 10 or more, how many deliveries may at once be " \
      "for destinations that failed since a delivery ended well; 100: all")                        \
    X(INT, qmgr_message_recipient_limit, "recipients", "20000", 1, 10000000,                       \
      "recipients in memory")                                                                      \
    X(INT, qmgr_message_recipient_minimum, "recipients", "10", 1, 100000,                          \
      "recipients in memory that each message may have")                                           \
    X(TIME, qmgr_clog_warn_time, "s", "300s", 0, PARAM_LIFETIME_MAX,                               \
      "period of warnings about a destination that fills the active queue; 0: none")               \
    X(BOOL, helpful_warnings, "", "yes", 0, 0, "give such warnings")                               \
    X(INT, address_verify_pending_request_limit, "messages", "5000", 1, 10000000,                  \
      NO_EFFECT "there are no address probes here")                                                \
    X(BOOL, destination_concurrency_feedback_debug, "", "no", 0, 0,                                \
      "log each change of a concurrency window")                                                   \
    X(CHOICE, concurrency_feedback_rule, CONF_FEEDBACK_RULE_WORDS, "documented", 0, 0,             \
      "arithmetic of the window: as the scheduler's document has it, or as Postfix's program "     \
      "does it")                                                                                   \
    X(INT, qmgr_fudge_factor, "per cent", "100", 1, 100,                                           \
      NO_EFFECT "used by Postfix's old queue manager only")                                        \
    X(LIST, hash_queue_names, "directory", "deferred defer", 0, 0,                                 \
      "directories of Postfix's queue that have others below them; other spools have none")        \
    X(INT, hash_queue_depth, "levels", "1", 1, 64, "how many levels of them")                      \
    X(BOOL, enable_long_queue_ids, "", "no", 0, 0, NO_EFFECT "queue ids are never reused here")    \
    X(LIST, fast_flush_domains, "domain pattern", "$relay_domains", 0, 0,                          \
      "domains that ETRN may ask for")                                                             \
    X(TIME, fast_flush_refresh_time, "h", "12h", PARAM_S(1), PARAM_LIFETIME_MAX,                   \
      NO_EFFECT "the spool is indexed by destination")                                             \
    X(TIME, fast_flush_purge_time, "d", "7d", PARAM_S(1), PARAM_LIFETIME_MAX,                      \
      NO_EFFECT "the spool is indexed by destination")                                             \
    X(INT, delay_logging_resolution_limit, "digits", "2", 0, 6,                                    \
      "digits after the point of delays in log lines")                                             \
    X(BOOL, smtp_log_tls_feature_status, "", "yes", 0, 0,                                          \
      "log the security of a delivery, as tls= before dsn=; older analysers want no")              \
    X(BOOL, soft_bounce, "", "no", 0, 0,                                                           \
      "treat permanent failures as temporary; for testing a set-up")                               \
    /* reports */                                                                                  \
    X(SIZE, bounce_size_limit, "bytes", "50000", 1, PARAM_NO_MAX,                                  \
      "a report returns the header only of a larger message")                                      \
    X(LIST, notify_classes,                                                                        \
      "bounce, 2bounce, data, delay, policy, protocol, resource or software",                      \
      "resource, software", 0, 0, "what the postmaster gets notices of")                           \
    X(STRING, notify_double_bounce, "address", "postmaster", 0, 0,                                 \
      "where a report goes that can't be delivered; empty: it is logged and dropped")              \
    X(STRING, bounce_notice_recipient, "address", "postmaster", 0, 0,                              \
      "recipient of the header of returned mail, with notify_classes = bounce")                    \
    X(STRING, delay_notice_recipient, "address", "postmaster", 0, 0,                               \
      "recipient of the header of delayed mail, with notify_classes = delay")                      \
    X(STRING, double_bounce_sender, "local part", "double-bounce", 0, 0,                           \
      "sender of mail that must not cause a report")                                               \
    X(BOOL, disable_verp_bounces, "", "no", 0, 0,                                                  \
      NO_EFFECT "there is no XVERP here, and a report names all its recipients")                   \
    X(STRING, report_form, "path", "", 0, 0,                                                       \
      "ZMailer form (HDR, SUB, ADR and text lines) that reports follow; empty: built-in text")     \
    X(CHOICE, report_return, CONF_REPORT_RETURN_WORDS, "full", 0, 0,                               \
      "what a report of failure returns of a message without RET")                                 \
    /* events */                                                                                   \
    X(BOOL, events, "", "no", 0, 0,                                                                \
      "keep a journal of events (docs/events.md), where the spool has a place for it")             \
    X(TIME, events_keep_time, "s", "7d", PARAM_S(60), PARAM_DAYS(3650),                            \
      "how long events are kept")                                                                  \
    X(SIZE, events_keep_size, "bytes", "64m", 1 << 16, INT64_C(1) << 40,                           \
      "how much of them is kept; the oldest go first")                                             \
    X(STRING, events_file, "path", "", 0, 0,                                                       \
      "file that gets each event as a line of JSON; empty: none")                                  \
    X(SIZE, events_file_size, "bytes", "0", 0, INT64_C(1) << 40,                                   \
      "with more than this events_file becomes events_file.1, and a new one begins; 0: never")     \
    X(INT, events_file_count, "files", "5", 1, 100, "so many old ones are kept")                   \
    X(STRING, web_hooks, "path", "", 0, 0,                                                         \
      "file of web hooks, which get events by HTTP (docs/events.md); only root and the daemon's "  \
      "user may read it; empty: none")                                                             \
    X(STRING, web_hook_CAfile, "path", "", 0, 0,                                                   \
      "authorities, in PEM, for certificates of web hooks; empty: the system's")                   \
    X(INT, web_hook_batch, "events", "500", 1, 10000, "events in one call of a web hook")          \
    X(TIME, web_hook_wait, "s", "1s", 0, PARAM_S(3600),                                            \
      "least time between two calls of a web hook, unless the first was full: events gather "      \
      "meanwhile")                                                                                 \
    X(TIME, web_hook_timeout, "s", "30s", PARAM_S(1), PARAM_S(3600),                               \
      "how long a web hook may take to answer")                                                    \
    X(TIME, web_hook_retry_min, "s", "1s", PARAM_S(1), PARAM_DAYS(1),                              \
      "wait after the first call that failed; it doubles with each further one")                   \
    X(TIME, web_hook_retry_max, "s", "5m", PARAM_S(1), PARAM_DAYS(1), "longest such wait")         \
    X(TIME, web_hook_give_up_time, "s", "1d", PARAM_S(1), PARAM_DAYS(365),                         \
      "events that a web hook has not taken for so long become dead letters")                      \
    X(SIZE, web_hook_dead_size, "bytes", "16m", 0, INT64_C(1) << 40,                               \
      "dead letters that are kept of a web hook")                                                  \
    /* logs of ZMailer's scheduler */                                                              \
    X(STRING, statistics_log, "path", "", 0, 0,                                                    \
      "file that gets a line for each recipient that has come to its end; empty: none")            \
    X(CHOICE, statistics_format, CONF_STATISTICS_FORMAT_WORDS, "current", 0, 0,                    \
      "form of these lines: that of ZMailer 3, or the older one its manual shows")                 \
    X(BOOL, scheduler_syslog, "", "no", 0, 0,                                                      \
      "log to syslog, too, as \"scheduler\": messages complete, reported, killed (SYSLOGFLG c)")   \
    /* external agents */                                                                          \
    X(TIME, command_time_limit, "s", "1000s", PARAM_S(1), PARAM_DAYS(1),                           \
      "longest that a pipe command may run")                                                       \
    X(SIZE, command_output_limit, "bytes", "4k", 0, 1 << 20,                                       \
      "how much of a pipe command's output is kept for reports")                                   \
    X(INT, agent_fd_limit, "descriptors", "32", 10, 1048576,                                       \
      "soft limit of open files of a ta agent")                                                    \
    X(INT, agent_start_rate, "starts", "30", 1, 100000, "starts of ta agents in one second")       \
    X(INT, agent_log_limit, "lines", "100", 0, 1000000,                                            \
      "lines that one ta agent may add to the log in a minute")                                    \
    X(BOOL, agent_freeze, "", "no", 0, 0, "start no ta agents")                                    \
    /* what mail is seen to, and kept */                                                           \
    X(STRING, deliver_only, "", "", 0, 0,                                                          \
      "the one transport/destination that is served, * for any; with it no mail is reported or "   \
      "removed; empty: all are")                                                                   \
    X(BOOL, read_queue_first, "", "no", 0, 0,                                                      \
      "deliver nothing before all mail that is there at the start has been read")                  \
    X(BOOL, store_error_on_error, "", "0", 0, 0,                                                   \
      "PARAMstore-error-on-error: keep reports that have no recipient, on hold or in postman/")    \
    /* only src/zmailer reads these: its variables, PARAM lines, store and protocols */            \
    X(STRING, zenv_file, "raw", "", 0, 0,                                                          \
      "file of ZMailer's variables (zmailer.conf), NAME=value lines, relative to the "             \
      "configuration file's directory; default: the compiled-in one, if there is one and the "     \
      "spool is a postoffice")                                                                     \
    X(STRING, mailqsock, "raw", "", 0, 0,                                                          \
      "PARAMmailqsock: where the mailq protocols are served, TCP:PORT, TCP:SERVICE or "            \
      "UNIX:/PATH; "                                                                               \
      "empty: nowhere")                                                                            \
    X(STRING, authfile, "raw", "", 0, 0,                                                           \
      "PARAMauthfile: users of mailq protocol 2; empty or not readable at the start: protocol 1")  \
    X(INT, postoffice_hash_levels, "levels", "0", 0, 2,                                            \
      "levels of hash directories in a postoffice (SCHEDULERDIRHASH)")                             \
    X(INT, postoffice_scan_files, "files", "40000", 10, 100000000,                                 \
      "new control files that one look into the directories may find")                             \
    X(TIME, postoffice_scan_time, "s", "5s", PARAM_S(2), PARAM_S(15),                              \
      "longest that one look into the directories may take")                                       \
    X(LIST, postoffice_files, "control file", "", 0, 0,                                            \
      "the only control files that are seen to, as names below transport/; when nothing can be "   \
      "done for them now the daemon ends; empty: all")                                             \
    X(INT, mailq_protocol, "version", "1", 1, 2,                                                   \
      "mailq protocol where authfile is empty or can't be read; 2 then refuses all clients")       \
    X(BOOL, mailq_short, "", "no", 0, 0, "mailq protocol 1 leaves out the lists of vertices")      \
    X(STRING, mailq_dump_file, "path", "/usr/tmp/.mailq.text", 0, 0,                               \
      "file that the scheduler program writes the state of the queue to, on SIGUSR2")              \
    X(STRING, notifysock, "raw", "", 0, 0,                                                         \
      "PARAMnotifysock: datagram socket where routers announce new mail, UNIX:/PATH")              \
    X(TIME, global_report_interval, "s", "5m", PARAM_S(1), PARAM_LIFETIME_MAX,                     \
      "PARAMglobal-report-interval: how long results of a postoffice's message are gathered for "  \
      "a report while others of its recipients wait")                                              \
    X(BOOL, msgwriteasync, "", "0", 0, 0,                                                          \
      "PARAMmsgwriteasync: reports are handed to the router without a sync before")

#define POLICY_PARAMS(X)                                                                           \
    /* the scheduler */                                                                            \
    X(INT, initial_destination_concurrency, "initial_destination_concurrency", "deliveries", "5",  \
      1, 100000, "deliveries at once to a destination that nothing is known of")                   \
    X(INT, destination_concurrency_limit, "default_destination_concurrency_limit", "deliveries",   \
      "20", 0, 100000, "deliveries at once to one destination; 0: no limit; local: 2")             \
    X(INT, destination_recipient_limit, "default_destination_recipient_limit", "recipients", "50", \
      0, 100000,                                                                                   \
      "recipients of one delivery; 0: no limit; 1: each mailbox is a destination; local: 1")       \
    X(BOOL, destination_concurrency_feedback, "default_destination_concurrency_feedback", "",      \
      "yes", 0, 0,                                                                                 \
      "deliveries widen and narrow the window, and failures make a destination dead; no: it has "  \
      "its limit (maxthr, destination_concurrency_limit) from the first delivery on, whatever "    \
      "happens, as in ZMailer")                                                                    \
    X(FEEDBACK, destination_concurrency_positive_feedback,                                         \
      "default_destination_concurrency_positive_feedback", "", "1", 0, 1,                          \
      "what a delivery adds to the window")                                                        \
    X(FEEDBACK, destination_concurrency_negative_feedback,                                         \
      "default_destination_concurrency_negative_feedback", "", "1", 0, 1,                          \
      "what a failure to reach the site takes from the window")                                    \
    X(INT, destination_concurrency_failed_cohort_limit,                                            \
      "default_destination_concurrency_failed_cohort_limit", "windows", "1", 0, 1000000,           \
      "failed windows until a destination is dead; 0: never")                                      \
    X(TIME, destination_rate_delay, "default_destination_rate_delay", "s", "0s", 0,                \
      PARAM_LIFETIME_MAX, "pause between deliveries to one destination, one at a time; 0: none")   \
    X(TIME, transport_rate_delay, "default_transport_rate_delay", "s", "0s", 0,                    \
      PARAM_LIFETIME_MAX, "pause between deliveries of the transport; 0: none")                    \
    X(INT, delivery_slot_cost, "default_delivery_slot_cost", "entries", "5", 0, 100000,            \
      "entries a message delivers for each that may overtake it; 0 and 1: nothing overtakes")      \
    X(INT, delivery_slot_loan, "default_delivery_slot_loan", "entries", "3", 0, 100000,            \
      "entries that may overtake on credit")                                                       \
    X(INT, delivery_slot_discount, "default_delivery_slot_discount", "per cent", "50", 0, 100,     \
      "share of the slots that may be missing when a message overtakes")                           \
    X(INT, minimum_delivery_slots, "default_minimum_delivery_slots", "entries", "3", 0, 100000,    \
      "smaller messages are never overtaken")                                                      \
    X(INT, recipient_limit, "default_recipient_limit", "recipients", "20000", 0, 10000000,         \
      "recipients in memory")                                                                      \
    X(INT, extra_recipient_limit, "default_extra_recipient_limit", "recipients", "1000", 0,        \
      10000000, "recipients in memory for messages that overtake")                                 \
    X(INT, recipient_refill_limit, "default_recipient_refill_limit", "recipients", "100", 1,       \
      100000, "how many recipients are read at least in one go")                                   \
    X(TIME, recipient_refill_delay, "default_recipient_refill_delay", "s", "5s", PARAM_S(1),       \
      PARAM_DAYS(1), "longest wait for that many")                                                 \
    X(INT, process_limit, "default_process_limit", "deliveries", "100", 0, 100000,                 \
      "deliveries at once of the transport; 0: no limit")                                          \
    /* the agent */                                                                                \
    X(CHOICE, agent, "", CONF_AGENT_WORDS, "smtp", 0, 0,                                           \
      "what performs the deliveries; in a clause NAME/* it declares the transport")                \
    X(STRING, command, "", "raw", "", 0, 0, "command line of pipe and ta agents")                  \
    X(STRING, user, "", "user or $mail_owner", "", 0, 0,                                           \
      "user of the command, or of maildirs; empty: the daemon's, which must not be root")          \
    X(STRING, group, "", "group", "", 0, 0, "group of the command; empty: that of user")           \
    X(STRING, maildir, "", "mailbox path", "mail/%d/%u/", 0, 0,                                    \
      "directory of a mailbox; %u local part, %d domain, %% a per cent sign")                      \
    X(SIZE, size_limit, "", "bytes", "0", 0, PARAM_NO_MAX, "larger messages fail; 0: no limit")    \
    /* the SMTP and LMTP client */                                                                 \
    X(TIME, connect_timeout, "smtp_connect_timeout", "s", "30s", PARAM_S(1), PARAM_DAYS(1),        \
      "to connect to one address")                                                                 \
    X(TIME, helo_timeout, "smtp_helo_timeout", "s", "300s", PARAM_S(1), PARAM_DAYS(1),             \
      "for the greeting and for EHLO, HELO and LHLO")                                              \
    X(TIME, starttls_timeout, "smtp_starttls_timeout", "s", "300s", PARAM_S(1), PARAM_DAYS(1),     \
      "for STARTTLS and its handshake")                                                            \
    X(TIME, mail_timeout, "smtp_mail_timeout", "s", "300s", PARAM_S(1), PARAM_DAYS(1), "for MAIL") \
    X(TIME, rcpt_timeout, "smtp_rcpt_timeout", "s", "300s", PARAM_S(1), PARAM_DAYS(1), "for RCPT") \
    X(TIME, data_init_timeout, "smtp_data_init_timeout", "s", "120s", PARAM_S(1), PARAM_DAYS(1),   \
      "for DATA")                                                                                  \
    X(TIME, data_xfer_timeout, "smtp_data_xfer_timeout", "s", "180s", PARAM_S(1), PARAM_DAYS(1),   \
      "for each piece of content to be taken")                                                     \
    X(TIME, data_done_timeout, "smtp_data_done_timeout", "s", "600s", PARAM_S(1), PARAM_DAYS(1),   \
      "for the reply to the end of content")                                                       \
    X(TIME, rset_timeout, "smtp_rset_timeout", "s", "20s", PARAM_S(1), PARAM_DAYS(1), "for RSET")  \
    X(TIME, quit_timeout, "smtp_quit_timeout", "s", "300s", PARAM_S(1), PARAM_DAYS(1), "for QUIT") \
    X(STRING, helo_name, "smtp_helo_name", "host name", "$myhostname", 0, 0,                       \
      "name in EHLO, HELO and LHLO")                                                               \
    X(STRING, bind_address, "smtp_bind_address", "IPv4 address", "", 0, 0,                         \
      "source address of IPv4 connections; empty: the system's choice")                            \
    X(STRING, bind_address6, "smtp_bind_address6", "IPv6 address", "", 0, 0,                       \
      "source address of IPv6 connections; empty: the system's choice")                            \
    X(CHOICE, address_preference, "smtp_address_preference", CONF_PREFER_WORDS, "any", 0, 0,       \
      "which of a host's addresses are tried first")                                               \
    X(INT, mx_address_limit, "smtp_mx_address_limit", "addresses", "5", 1, 100,                    \
      "addresses tried in one delivery")                                                           \
    X(INT, mx_session_limit, "smtp_mx_session_limit", "sessions", "2", 1, 100,                     \
      "sessions opened in one delivery")                                                           \
    X(LIST, fallback_relay, "smtp_fallback_relay", "nexthop", "", 0, 0,                            \
      "where to go when all hosts of a destination fail")                                          \
    X(BOOL, skip_5xx_greeting, "smtp_skip_5xx_greeting", "", "yes", 0, 0,                          \
      "try the next host after a 5xx greeting instead of failing")                                 \
    X(CHOICE, tls_security_level, "smtp_tls_security_level", CONF_TLS_WORDS, "may", 0, 0,          \
      "STARTTLS: never, where offered, always; verify: with a good certificate for the host; "     \
      "secure: for the next hop's domain or a name below it; dane: as TLSA records require, else " \
      "may; dane-only: as they require, else mail waits")                                          \
    X(CHOICE, mta_sts, "smtp_mta_sts", CONF_STS_WORDS, "no", 0, 0,                                 \
      "MTA-STS policies of domains (RFC 8461): not looked up; looked up, and what they forbid is " \
      "logged; obeyed")                                                                            \
    X(STRING, tls_CAfile, "smtp_tls_CAfile", "path", "", 0, 0,                                     \
      "PEM file of trusted authorities; empty: the system's")                                      \
    X(BOOL, connection_cache_on_demand, "smtp_connection_cache_on_demand", "", "yes", 0, 0,        \
      "keep connections of busy destinations open")                                                \
    X(TIME, connection_cache_time_limit, "smtp_connection_cache_time_limit", "s", "2s", 0,         \
      PARAM_DAYS(1), "how long an idle connection is kept")                                        \
    X(TIME, connection_reuse_time_limit, "smtp_connection_reuse_time_limit", "s", "300s",          \
      PARAM_S(1), PARAM_DAYS(1), "how long a connection is used again")                            \
    X(INT, connection_reuse_count_limit, "smtp_connection_reuse_count_limit", "deliveries", "0",   \
      0, 1000000, "how often a connection is used; 0: no limit")                                   \
    /* words of clauses alone, as ZMailer's scheduler.conf has them */                             \
    X(TIME, interval, "", "s", "0", 0, PARAM_LIFETIME_MAX,                                         \
      "unit of retry times, which then follow `retries'; 0: minimal_backoff_time and "             \
      "maximal_backoff_time rule")                                                                 \
    X(LIST, retries, "", "positive numbers, or 0 alone", "1 1 2 3 5 8 13 21 34", 0, 0,             \
      "multiples of `interval' after each attempt; 0 and an empty list: due again at once, but "   \
      "not before a second has passed")                                                            \
    X(TIME, expiry, "", "s", "0", 0, PARAM_LIFETIME_MAX,                                           \
      "age limit of mail that was tried; 0: maximal_queue_lifetime")                               \
    X(TIME, expiry2, "", "s", "0", 0, PARAM_LIFETIME_MAX,                                          \
      "further age of mail that was never tried, beyond expiry; 0: one day")                       \
    X(LIST, reporttimes, "", "interval", "", 0, 0,                                                 \
      "ages at which the sender of a postoffice's mail gets a notice of its delay, at most 4; "    \
      "empty: "                                                                                    \
      "delay_warning_time")                                                                        \
    X(STRING, expiryform, "", "name", "", 0, 0,                                                    \
      NO_EFFECT "ZMailer reads it and does nothing, too")                                          \
    X(STRING, deliveryform, "", "name", "delivery", 0, 0,                                          \
      NO_EFFECT "ZMailer reads it and does nothing, too")                                          \
    X(TIME, idlemax, "", "s", "0", 0, PARAM_LIFETIME_MAX,                                          \
      "how long an idle agent is kept; 0: 3 times `interval'")                                     \
    X(INT, maxta, "", "agents", "0", INT64_MIN, PARAM_NO_MAX,                                      \
      "a destination of this clause gets an agent while all transports together have fewer in "    \
      "use than this; 0 and less: no limit")                                                       \
    X(INT, maxchannel, "", "agents", "0", INT64_MIN, PARAM_NO_MAX,                                 \
      "the same of agents of its transport; 0 and less: process_limit alone")                      \
    X(INT, maxring, "", "agents", "0", INT64_MIN, PARAM_NO_MAX,                                    \
      "agents of the destinations of this clause, which get them in turn; 0 and less: no limit. "  \
      "In a cluster one node delivers to all of them")                                             \
    X(INT, maxthr, "", "agents", "0", INT64_MIN, PARAM_NO_MAX,                                     \
      "agents of one destination, at most; 0 and less: 1 for ta agents, else the concurrency "     \
      "window alone")                                                                              \
    X(INT, overfeed, "", "entries", "0", INT64_MIN, PARAM_NO_MAX,                                  \
      "entries a running agent is given ahead; less than 0: 0")                                    \
    X(INT, skew, "", "steps", "5", 1, 100000,                                                      \
      "retry times are moved by this part of their distance to a multiple of `interval': 1 all "   \
      "of it, 5 a fifth")                                                                          \
    X(BOOL, ageorder, "", "", "no", 0, 0,                                                          \
      "in a postoffice, whose oldest mail is tried first: smaller mail never overtakes, as with "  \
      "delivery_slot_cost 0")                                                                      \
    X(BOOL, queueonly, "", "", "no", 0, 0, "no delivery unless asked for")                         \
    X(BOOL, wakeuprestartonly, "", "", "no", 0, 0,                                                 \
      "new mail makes nothing due of a destination that waits for its time of retry")              \
    X(BOOL, bychannel, "", "", "no", 0, 0, NO_EFFECT "ZMailer reads it and does nothing, too")     \
    X(BOOL, byhost, "", "", "no", 0, 0, NO_EFFECT "ZMailer reads it and does nothing, too")        \
    X(INT, priority, "", "nice value", "0", -20, 19, "scheduling priority of the command")         \
    X(INT, nice, "", "nice value", "0", -40, 39, "change of the command's scheduling priority")    \
    X(INT, syspriority, "", "nice value", "0", -20, 19, NO_EFFECT "the daemon keeps its priority") \
    X(INT, sysnice, "", "nice value", "0", -40, 39, NO_EFFECT "the daemon keeps its priority")     \
    /* clauses class/NAME */                                                                       \
    X(INT, weight, "", "shares", "1", 1, CONF_WEIGHT_MAX,                                          \
      "in clauses class/NAME only: deliveries of this class for each one of a class of weight 1, " \
      "where both wait; 10 for class personal of default_class = auto")                            \
    X(CHOICE, fairness, "", CONF_CLASS_FAIRNESS_WORDS, "none", 0, 0,                               \
      "in clauses class/NAME only: class_fairness for this class")

/* Members of the rows. tests/structure/test_parameters.py defines PARAM_MARK as an attribute, so
 * that the compiler reports each use of a member. */
#ifndef PARAM_MARK
#define PARAM_MARK
#endif
#define PARAM_MEMBER_STRING(name)   const char *name PARAM_MARK;
#define PARAM_MEMBER_LIST(name)     struct conf_list name PARAM_MARK;
#define PARAM_MEMBER_BOOL(name)     bool name PARAM_MARK;
#define PARAM_MEMBER_INT(name)      int64_t name PARAM_MARK;
#define PARAM_MEMBER_SIZE(name)     int64_t name PARAM_MARK;
#define PARAM_MEMBER_TIME(name)     int64_t name##_us PARAM_MARK;
#define PARAM_MEMBER_CHOICE(name)   int name PARAM_MARK;
#define PARAM_MEMBER_FEEDBACK(name) struct conf_feedback name PARAM_MARK;

#endif
