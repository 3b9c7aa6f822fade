/*
 * The role `hook` (its table is hook_role in role.h): tells web hooks (conf/hook_list.h) of events.
 *
 *          +-- nothing of it is wanted: DONE ------------------+
 *          |                                                   v
 *     ASKED --events--> NAMES --> CALL --2xx: DONE----------> RESTS (web_hook_wait)
 *       ^                 ^         | else                     ^  |
 *       |                 |         v                          |  |
 *       |                 +------ FAILED --given up: DONE------+  |
 *       +---------------------------------------------------------+
 *
 * The queue process keeps the journal, and how far each hook has come: what it has not heard
 * WIRE_HOOK_DONE of it sends again, to this process or the next one. So each hook gets its events
 * in order and at least once. One call at a time goes to a hook; hooks do not wait for each other.
 *
 * A call is a POST of a JSON object, with a signature in a field of its header: HMAC-SHA256, by the
 * secret, of the time, a dot and the body. docs/events.md has both.
 *
 * There is one such process where web_hooks is set. It has no files and connects, by TCP only to
 * ports of its hooks and of name servers. A reload that brings other ports ends it: the parent
 * starts the next one, which may reach them.
 */
#ifndef FETCH_HOOK_H
#define FETCH_HOOK_H

/* What a hook may answer, in bytes. */
#define HOOK_REPLY_MAX 65536u

#endif
