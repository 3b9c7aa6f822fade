/*
 * The role `hook` (hook_role in role.h): sends events to web hooks (conf/hook_list.h).
 *
 *      +-- no event is wanted: DONE -----------------------+
 *      |                                                   v
 *    ASKED --events--> NAMES --> CALL --2xx: DONE----------> RESTS (web_hook_wait)
 *      ^                 ^         | else                     ^  |
 *      |                 |         v                          |  |
 *      |                 +------ FAILED --too late: DONE------+  |
 *      +---------------------------------------------------------+
 *
 * The queue process keeps the journal and the position of each hook. Events for which it has not
 * received WIRE_HOOK_DONE are sent again, to this process or the next one. So each hook gets its
 * events in order and at least once. Each hook gets one call at a time; hooks do not wait for each
 * other.
 *
 * A call is a POST of a JSON object. A header field has its signature: the HMAC-SHA256, by the
 * secret, of the time, a dot and the body. docs/events.md describes both.
 *
 * One such process runs if web_hooks is set. It has no files, and connects by TCP to the ports of
 * its hooks and of name servers only. A reload that adds other ports ends the process: the parent
 * starts a new one, which may reach them.
 */
#ifndef FETCH_HOOK_H
#define FETCH_HOOK_H

/* Limit of a hook's reply, in bytes. */
#define HOOK_REPLY_MAX 65536u

#endif
