/*
 * The fields of the frames, in their order on the wire. No other file has limits of fields.
 *
 * wire.c generates each frame's encoder and decoder from this table, and the tests generate frames.
 * A list WIRE_FIELDS_x(X) has a line X(KIND, member of struct wire_x, ...) for each field:
 *
 *     kind    arguments                     on the wire         the decoder refuses
 *     U32                                   4 bytes
 *     BELOW   values                        4 bytes             numbers from `values` on
 *     U64                                   8 bytes
 *     I64                                   8 bytes
 *     WALL                                  8 bytes             times before 1970
 *     BOOL                                  1 byte              all but 0 and 1
 *     ENUM    type, values                  1 byte              numbers from `values` on
 *     BYTES   max                           4 bytes, the text   more than `max` bytes
 *     SOME    max                           4 bytes, the text   more than `max` bytes, or none
 *     ARRAY   count, element, min, max      4 bytes, elements   fewer or more elements
 *
 * Numbers are little-endian (frame.h). An element is a struct wire_ELEMENT with its own list of
 * fields. A frame has at most one array.
 */
#ifndef PROCESS_WIRE_FIELDS_H
#define PROCESS_WIRE_FIELDS_H

#include "wire.h"

#define WIRE_FIELDS_file(X)                                                                        \
    X(BYTES, path, WIRE_FILE_PATH_MAX)                                                             \
    X(BYTES, bytes, WIRE_FILE_MAX)

#define WIRE_FIELDS_conf(X)                                                                        \
    X(U64, generation)                                                                             \
    X(ARRAY, files, file_count, file, 0, WIRE_FILES_MAX)

#define WIRE_FIELDS_listener(X) X(BYTES, url, WIRE_URL_MAX)

#define WIRE_FIELDS_peer(X)                                                                        \
    X(ENUM, role, wire_role, ROLE_COUNT)                                                           \
    X(U32, index)                                                                                  \
    X(U32, count)

#define WIRE_FIELDS_reloaded(X)                                                                    \
    X(U64, token)                                                                                  \
    X(BOOL, ok)                                                                                    \
    X(BYTES, text, WIRE_JSON_MAX)

#define WIRE_FIELDS_processes_told(X)                                                              \
    X(U64, token)                                                                                  \
    X(BYTES, text, WIRE_JSON_MAX)

#define WIRE_FIELDS_service(X)                                                                     \
    X(BYTES, name, WIRE_SERVICE_MAX)                                                               \
    X(U32, what)                                                                                   \
    X(BYTES, text, WIRE_FILE_MAX)

#define WIRE_FIELDS_connect(X)                                                                     \
    X(U64, token)                                                                                  \
    X(SOME, address, WIRE_URL_MAX)                                                                 \
    X(U32, attempt)

#define WIRE_FIELDS_connected(X)                                                                   \
    X(U64, token)                                                                                  \
    X(U32, addresses)                                                                              \
    X(BYTES, error, WIRE_TEXT_MAX)

#define WIRE_FIELDS_rcpt(X)                                                                        \
    X(SOME, address, ADDRESS_MAX)                                                                  \
    X(BYTES, orcpt, DSN_ORCPT_MAX)                                                                 \
    X(U32, notify)                                                                                 \
    X(BYTES, target, WIRE_HOST_MAX)

#define WIRE_FIELDS_submit(X)                                                                      \
    X(U64, token)                                                                                  \
    X(BYTES, sender, ADDRESS_MAX)                                                                  \
    X(BYTES, envid, WIRE_ENVID_MAX)                                                                \
    X(U32, flags)                                                                                  \
    X(WALL, arrived)                                                                               \
    X(BYTES, client, WIRE_HOST_MAX)                                                                \
    X(U32, pid)                                                                                    \
    X(BYTES, origin, WIRE_URL_MAX)                                                                 \
    X(BYTES, class_name, CLASS_NAME_MAX)                                                           \
    X(BELOW, class_source, CLASS_SOURCE_MAX + 1)                                                   \
    X(BYTES, key, WIRE_KEY_MAX)                                                                    \
    X(BYTES, key_sum, WIRE_KEY_SUM)                                                                \
    X(U32, key_part)                                                                               \
    X(BYTES, trace, WIRE_TRACE_MAX)                                                                \
    X(BYTES, login, WIRE_HOST_MAX)                                                                 \
    X(BYTES, hold, WIRE_TEXT_MAX)                                                                  \
    X(BYTES, rules, WIRE_TEXT_MAX)                                                                 \
    X(U64, replaces)                                                                               \
    X(BYTES, send_client, WIRE_USER_MAX)                                                           \
    X(BYTES, send_login, WIRE_USER_MAX)                                                            \
    X(U32, send_rcpts)                                                                             \
    X(ARRAY, rcpts, rcpt_count, rcpt, 1, WIRE_RCPTS_MAX)                                           \
    X(BYTES, content, WIRE_CONTENT_MAX)                                                            \
    X(U64, fd_size)

#define WIRE_FIELDS_submit_done(X)                                                                 \
    X(U64, token)                                                                                  \
    X(U32, code)                                                                                   \
    X(BYTES, status, WIRE_STATUS_MAX)                                                              \
    X(BYTES, text, WIRE_TEXT_MAX)                                                                  \
    X(BYTES, id, WIRE_ID_MAX)                                                                      \
    X(BOOL, repeated)                                                                              \
    X(U32, retry_s)

#define WIRE_FIELDS_etrn(X)                                                                        \
    X(U64, token)                                                                                  \
    X(BYTES, domain, WIRE_HOST_MAX)

#define WIRE_FIELDS_etrn_done(X)                                                                   \
    X(U64, token)                                                                                  \
    X(U32, code)                                                                                   \
    X(BYTES, text, WIRE_TEXT_MAX)

#define WIRE_FIELDS_flow(X)                                                                        \
    X(BOOL, storage_ok)                                                                            \
    X(BOOL, space_ok)                                                                              \
    X(U64, free_bytes)                                                                             \
    X(BOOL, behind)

#define WIRE_FIELDS_send_room(X)                                                                   \
    X(U64, token)                                                                                  \
    X(BYTES, client, WIRE_USER_MAX)                                                                \
    X(BYTES, login, WIRE_USER_MAX)

#define WIRE_FIELDS_send_room_done(X)                                                              \
    X(U64, token)                                                                                  \
    X(U32, rcpts)                                                                                  \
    X(U32, limit)                                                                                  \
    X(BYTES, text, WIRE_TEXT_MAX)

#define WIRE_FIELDS_send_refused(X)                                                                \
    X(BYTES, client, WIRE_USER_MAX)                                                                \
    X(BYTES, login, WIRE_USER_MAX)                                                                 \
    X(U32, limit)

#define WIRE_FIELDS_auth(X)                                                                        \
    X(U64, login)                                                                                  \
    X(U32, mechanism)                                                                              \
    X(BOOL, first)                                                                                 \
    X(BOOL, has_message)                                                                           \
    X(BYTES, message, WIRE_LOGIN_MAX)                                                              \
    X(BYTES, client, WIRE_HOST_MAX)                                                                \
    X(BYTES, local, WIRE_HOST_MAX)

#define WIRE_FIELDS_auth_check(X)                                                                  \
    X(U64, login)                                                                                  \
    X(BYTES, user, WIRE_USER_MAX)                                                                  \
    X(U64, stamp)

#define WIRE_FIELDS_auth_key(X) X(BYTES, bytes, WIRE_AUTH_KEY_SIZE)

#define WIRE_FIELDS_auth_connected(X) X(BYTES, why, WIRE_TEXT_MAX)

#define WIRE_FIELDS_auth_answer(X)                                                                 \
    X(U64, login)                                                                                  \
    X(ENUM, result, wire_auth_result, WIRE_AUTH_RESULTS)                                           \
    X(BYTES, challenge, WIRE_CHALLENGE_MAX)                                                        \
    X(BYTES, user, WIRE_USER_MAX)                                                                  \
    X(BYTES, class_name, CLASS_NAME_MAX)                                                           \
    X(BYTES, senders, WIRE_SENDERS_MAX)                                                            \
    X(U32, rights)                                                                                 \
    X(U64, stamp)

#define WIRE_FIELDS_deliver_rcpt(X)                                                                \
    X(U32, n)                                                                                      \
    X(BYTES, address, ADDRESS_MAX)                                                                 \
    X(BYTES, orcpt, DSN_ORCPT_MAX)                                                                 \
    X(U32, notify)

#define WIRE_FIELDS_deliver(X)                                                                     \
    X(U64, entry)                                                                                  \
    X(BYTES, transport, WIRE_HOST_MAX)                                                             \
    X(BYTES, nexthop, WIRE_HOST_MAX)                                                               \
    X(BYTES, id, WIRE_ID_MAX)                                                                      \
    X(BYTES, path, WIRE_PATH_MAX)                                                                  \
    X(BYTES, sender, ADDRESS_MAX)                                                                  \
    X(BYTES, envid, WIRE_ENVID_MAX)                                                                \
    X(U32, flags)                                                                                  \
    X(WALL, arrived)                                                                               \
    X(BOOL, cache_load)                                                                            \
    X(BOOL, cache_store)                                                                           \
    X(ARRAY, rcpts, rcpt_count, deliver_rcpt, 1, WIRE_RCPTS_MAX)                                   \
    X(U64, size)                                                                                   \
    X(ENUM, place, wire_content_place, CONTENT_NONE + 1)                                           \
    X(BYTES, content, WIRE_CONTENT_MAX)

#define WIRE_FIELDS_content(X)                                                                     \
    X(U64, entry)                                                                                  \
    X(BOOL, ok)                                                                                    \
    X(BYTES, content, WIRE_CONTENT_MAX)

#define WIRE_FIELDS_verdict(X)                                                                     \
    X(U32, n)                                                                                      \
    X(ENUM, kind, wire_verdict_kind, VERDICT_NONE + 1)                                             \
    X(BYTES, status, WIRE_STATUS_MAX)                                                              \
    X(BYTES, reply, WIRE_TEXT_MAX)                                                                 \
    X(BYTES, text, WIRE_TEXT_MAX)                                                                  \
    X(BYTES, relay, WIRE_HOST_MAX)                                                                 \
    X(ENUM, report, wire_report, WIRE_REPORT_COUNT)                                                \
    X(BOOL, stops_thread)                                                                          \
    X(BYTES, details, WIRE_DETAILS_MAX)

#define WIRE_FIELDS_result(X)                                                                      \
    X(U64, entry)                                                                                  \
    X(ENUM, outcome, wire_outcome, OUTCOME_BROKEN_OFF + 1)                                         \
    X(ENUM, fault, wire_fault, WIRE_FAULT_COUNT)                                                   \
    X(U32, fault_rcpt)                                                                             \
    X(BYTES, reason, WIRE_TEXT_MAX)                                                                \
    X(I64, setup_us)                                                                               \
    X(I64, transmit_us)                                                                            \
    X(U32, conn_use)                                                                               \
    X(ENUM, proof, wire_proof, WIRE_PROOF_COUNT)                                                   \
    X(BYTES, tls_version, WIRE_TLS_MAX)                                                            \
    X(BYTES, tls_cipher, WIRE_TLS_MAX)                                                             \
    X(BOOL, maybe_duplicate)                                                                       \
    X(BOOL, resync)                                                                                \
    X(BOOL, thread_stops)                                                                          \
    X(WALL, thread_until)                                                                          \
    X(U32, pid)                                                                                    \
    X(ARRAY, verdicts, verdict_count, verdict, 0, WIRE_RCPTS_MAX)

#define WIRE_FIELDS_forget(X)                                                                      \
    X(BYTES, transport, WIRE_HOST_MAX)                                                             \
    X(BYTES, nexthop, WIRE_HOST_MAX)

#define WIRE_FIELDS_policy_ask(X)                                                                  \
    X(U64, token)                                                                                  \
    X(SOME, domain, WIRE_DOMAIN_MAX)

#define WIRE_FIELDS_policy_answer(X)                                                               \
    X(U64, token)                                                                                  \
    X(BYTES, policy, WIRE_POLICY_MAX)

#define WIRE_FIELDS_tls_look(X)                                                                    \
    X(U64, token)                                                                                  \
    X(SOME, transport, WIRE_HOST_MAX)                                                              \
    X(SOME, nexthop, WIRE_HOST_MAX)                                                                \
    X(BOOL, connect)

#define WIRE_FIELDS_tls_host(X)                                                                    \
    X(SOME, name, WIRE_DOMAIN_MAX)                                                                 \
    X(U32, preference)                                                                             \
    X(BYTES, addresses, WIRE_TEXT_MAX)                                                             \
    X(ENUM, dnssec, wire_dnssec, DNSSEC_STATES)                                                    \
    X(BYTES, records, WIRE_TLSA_MAX)                                                               \
    X(BOOL, used)                                                                                  \
    X(BYTES, text, WIRE_TEXT_MAX)                                                                  \
    X(BOOL, tried)                                                                                 \
    X(BOOL, met)                                                                                   \
    X(BYTES, relay, WIRE_TEXT_MAX)                                                                 \
    X(BYTES, protection, WIRE_TEXT_MAX)                                                            \
    X(BYTES, certificate, WIRE_TEXT_MAX)                                                           \
    X(BYTES, trouble, WIRE_TEXT_MAX)

#define WIRE_FIELDS_tls_seen(X)                                                                    \
    X(U64, token)                                                                                  \
    X(BOOL, found)                                                                                 \
    X(BOOL, later)                                                                                 \
    X(BYTES, text, WIRE_TEXT_MAX)                                                                  \
    X(ENUM, dnssec, wire_dnssec, DNSSEC_STATES)                                                    \
    X(ARRAY, hosts, host_count, tls_host, 0, WIRE_TLS_HOSTS_MAX)

#define WIRE_FIELDS_watch(X)                                                                       \
    X(U64, number)                                                                                 \
    X(ENUM, kind, wire_watch_kind, WATCH_KINDS)                                                    \
    X(SOME, what, WIRE_HOST_MAX)

#define WIRE_FIELDS_watches(X) X(ARRAY, watches, watch_count, watch, 0, WIRE_WATCHES_MAX)

#define WIRE_FIELDS_dialogue(X)                                                                    \
    X(U64, watch)                                                                                  \
    X(U64, dropped)                                                                                \
    X(BYTES, process, WIRE_SERVICE_MAX)                                                            \
    X(U64, connection)                                                                             \
    X(WALL, at)                                                                                    \
    X(ENUM, said, wire_said, SAID_KINDS)                                                           \
    X(BOOL, ours)                                                                                  \
    X(U64, bytes)                                                                                  \
    X(BYTES, text, WIRE_TEXT_MAX)                                                                  \
    X(BYTES, peer, WIRE_HOST_MAX)                                                                  \
    X(BYTES, source, WIRE_HOST_MAX)                                                                \
    X(BYTES, tls, 2 * WIRE_TLS_MAX)                                                                \
    X(BYTES, destination, 2 * WIRE_HOST_MAX)                                                       \
    X(BYTES, id, WIRE_ID_MAX)

#define WIRE_FIELDS_fetch(X)                                                                       \
    X(SOME, domain, WIRE_DOMAIN_MAX)                                                               \
    X(BYTES, id, WIRE_POLICY_ID_MAX)                                                               \
    X(BOOL, always)

#define WIRE_FIELDS_fetched(X)                                                                     \
    X(SOME, domain, WIRE_DOMAIN_MAX)                                                               \
    X(ENUM, outcome, wire_fetch_outcome, FETCH_OUTCOMES)                                           \
    X(BYTES, id, WIRE_POLICY_ID_MAX)                                                               \
    X(BYTES, policy, WIRE_POLICY_MAX)                                                              \
    X(BYTES, why, WIRE_TEXT_MAX)

#define WIRE_FIELDS_dns_query(X)                                                                   \
    X(U64, token)                                                                                  \
    X(SOME, name, WIRE_DOMAIN_MAX)                                                                 \
    X(U32, type)                                                                                   \
    X(BOOL, prove)

#define WIRE_FIELDS_dns_answer(X)                                                                  \
    X(U64, token)                                                                                  \
    X(U32, outcome)                                                                                \
    X(BOOL, secure)                                                                                \
    X(BYTES, packet, WIRE_PACKET_MAX)                                                              \
    X(BYTES, bogus, WIRE_TEXT_MAX)

#define WIRE_FIELDS_hook_ask(X) X(SOME, name, WIRE_HOOK_NAME_MAX)

#define WIRE_FIELDS_hook_events(X)                                                                 \
    X(SOME, name, WIRE_HOOK_NAME_MAX)                                                              \
    X(U64, after)                                                                                  \
    X(U64, last)                                                                                   \
    X(U64, lost_from)                                                                              \
    X(U64, lost_to)                                                                                \
    X(BYTES, lines, WIRE_HOOK_PAGE_MAX)

#define WIRE_FIELDS_hook_done(X)                                                                   \
    X(SOME, name, WIRE_HOOK_NAME_MAX)                                                              \
    X(U64, last)                                                                                   \
    X(BOOL, given_up)                                                                              \
    X(BYTES, letters, WIRE_HOOK_PAGE_MAX)

#define WIRE_FIELDS_hook_failing(X)                                                                \
    X(SOME, name, WIRE_HOOK_NAME_MAX)                                                              \
    X(BYTES, why, WIRE_TEXT_MAX)

#define WIRE_FIELDS_ask(X)                                                                         \
    X(U64, token)                                                                                  \
    X(BYTES, json, WIRE_JSON_MAX)

#define WIRE_FIELDS_answer(X)                                                                      \
    X(U64, token)                                                                                  \
    X(U32, status)                                                                                 \
    X(BYTES, json, WIRE_JSON_MAX)                                                                  \
    X(BYTES, bytes, WIRE_CONTENT_MAX)

/* The elements of arrays, X(NAME, RULE). */
#define WIRE_ELEMENTS(X)                                                                           \
    X(file, NO_RULE)                                                                               \
    X(rcpt, NO_RULE)                                                                               \
    X(deliver_rcpt, NO_RULE)                                                                       \
    X(verdict, verdict_holds)                                                                      \
    X(tls_host, NO_RULE)                                                                           \
    X(watch, NO_RULE)

/* All frames with fields: X(SHAPE, NAME, TYPE, RULE) or, with an array, X(SHAPE, NAME, TYPE, RULE,
 * MEMBER, ELEMENT). The shape determines the arguments of wire_put_NAME and wire_get_NAME: PLAIN;
 * FD, with a descriptor; ARRAY; ARRAY_FD, with both. The rule is a function of wire.c that checks
 * relations between fields. */
#define WIRE_FRAMES(X)                                                                             \
    X(ARRAY_FD, conf, WIRE_CONF, NO_RULE, files, file)                                             \
    X(FD, listener, WIRE_LISTENER, NO_RULE)                                                        \
    X(FD, peer, WIRE_PEER, peer_holds)                                                             \
    X(PLAIN, reloaded, WIRE_RELOADED, NO_RULE)                                                     \
    X(PLAIN, processes_told, WIRE_PROCESSES_TOLD, NO_RULE)                                         \
    X(FD, service, WIRE_SERVICE, NO_RULE)                                                          \
    X(PLAIN, connect, WIRE_CONNECT, NO_RULE)                                                       \
    X(FD, connected, WIRE_CONNECTED, NO_RULE)                                                      \
    X(ARRAY_FD, submit, WIRE_SUBMIT, submit_holds, rcpts, rcpt)                                    \
    X(PLAIN, submit_done, WIRE_SUBMIT_DONE, NO_RULE)                                               \
    X(PLAIN, etrn, WIRE_ETRN, NO_RULE)                                                             \
    X(PLAIN, etrn_done, WIRE_ETRN_DONE, NO_RULE)                                                   \
    X(PLAIN, flow, WIRE_FLOW, NO_RULE)                                                             \
    X(PLAIN, send_room, WIRE_SEND_ROOM, NO_RULE)                                                   \
    X(PLAIN, send_room_done, WIRE_SEND_ROOM_DONE, NO_RULE)                                         \
    X(PLAIN, send_refused, WIRE_SEND_REFUSED, NO_RULE)                                             \
    X(ARRAY_FD, deliver, WIRE_DELIVER, deliver_holds, rcpts, deliver_rcpt)                         \
    X(FD, content, WIRE_CONTENT, NO_RULE)                                                          \
    X(ARRAY, result, WIRE_RESULT, NO_RULE, verdicts, verdict)                                      \
    X(PLAIN, forget, WIRE_FORGET, NO_RULE)                                                         \
    X(PLAIN, policy_ask, WIRE_POLICY_ASK, NO_RULE)                                                 \
    X(PLAIN, policy_answer, WIRE_POLICY_ANSWER, NO_RULE)                                           \
    X(PLAIN, tls_look, WIRE_TLS_LOOK, NO_RULE)                                                     \
    X(ARRAY, tls_seen, WIRE_TLS_SEEN, NO_RULE, hosts, tls_host)                                    \
    X(ARRAY, watches, WIRE_WATCHES, NO_RULE, watches, watch)                                       \
    X(PLAIN, dialogue, WIRE_DIALOGUE, dialogue_holds)                                              \
    X(PLAIN, fetch, WIRE_FETCH, NO_RULE)                                                           \
    X(PLAIN, fetched, WIRE_FETCHED, NO_RULE)                                                       \
    X(PLAIN, dns_query, WIRE_DNS_QUERY, NO_RULE)                                                   \
    X(PLAIN, dns_answer, WIRE_DNS_ANSWER, NO_RULE)                                                 \
    X(PLAIN, hook_ask, WIRE_HOOK_ASK, NO_RULE)                                                     \
    X(PLAIN, hook_events, WIRE_HOOK_EVENTS, NO_RULE)                                               \
    X(PLAIN, hook_done, WIRE_HOOK_DONE, NO_RULE)                                                   \
    X(PLAIN, hook_failing, WIRE_HOOK_FAILING, NO_RULE)                                             \
    X(PLAIN, ask, WIRE_ASK, NO_RULE)                                                               \
    X(FD, answer, WIRE_ANSWER, NO_RULE)                                                            \
    X(PLAIN, auth, WIRE_AUTH, NO_RULE)                                                             \
    X(PLAIN, auth_answer, WIRE_AUTH_ANSWER, auth_answer_holds)                                     \
    X(PLAIN, auth_check, WIRE_AUTH_CHECK, NO_RULE)                                                 \
    X(PLAIN, auth_key, WIRE_AUTH_KEY, auth_key_holds)                                              \
    X(FD, auth_connected, WIRE_AUTH_CONNECTED, NO_RULE)

#endif
