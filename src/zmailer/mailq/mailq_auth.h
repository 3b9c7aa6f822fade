/*
 * Users and rights of the mailq protocol, version 2, from its auth file.
 *
 * Lines are `user:password:rights:addresses`; `#` or `*` in the first column begins a comment.
 *
 *   rights     words of SNMP QQ TT ETRN KILL REROUTE ALL NONE, separated by blanks
 *   addresses  items `[192.0.2.0]/24`, `[IPv6.2001:db8::]/32`, or `!item` to refuse, separated by
 *              blanks or commas; the first match decides, no match refuses, and an empty list
 *              admits all
 *   password   in clear, or `{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY`, which is valid for
 *              SCRAM logins only (scram.h)
 *
 * A user name may have several entries: the first one whose addresses admit the client applies. A
 * line that can't be parsed is skipped and reported, so no line grants more than intended.
 */
#ifndef ZMAILER_MAILQ_AUTH_H
#define ZMAILER_MAILQ_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "scram.h"
#include "slice.h"

enum mailq_right {
    MAILQ_MAY_SNMP = 1,
    MAILQ_MAY_QQ = 2,
    MAILQ_MAY_TT = 4,
    MAILQ_MAY_ETRN = 8,
    MAILQ_MAY_KILL = 16,
    MAILQ_MAY_REROUTE = 32,
    MAILQ_MAY_ALL = 63,
};

/* Address of a client, 4 or 16 bytes. A client on a UNIX socket has 127.0.0.1. */
struct mailq_peer {
    uint8_t address[16];
    unsigned len; /* 4 or 16 bytes */
};
extern const struct mailq_peer mailq_peer_local;

struct mailq_entry {
    char *user;     /* owned, as all pointers here */
    char *password; /* NULL: `secret` is used instead */
    struct scram_secret secret;
    unsigned rights;
    struct mailq_range *ranges;
    size_t range_count;
};

struct mailq_auth;

/* Limits of an auth file: its size in bytes, and the entries that are read. */
#define MAILQ_AUTH_FILE_MAX    65536
#define MAILQ_AUTH_ENTRIES_MAX 1000

/* Parses the text of an auth file. Adds a line "NAME:LINE:COLUMN: ..." to *problems for each line
 * that is skipped. Never returns NULL; free the result with mailq_auth_free. */
struct mailq_auth *mailq_auth_parse(const char *name, struct slice text, struct buf *problems);
void mailq_auth_free(struct mailq_auth *auth);

/* Does any entry have a secret password in clear? The entry that ZMailer ships is not counted; its
 * password is its user's name. */
bool mailq_auth_has_clear(const struct mailq_auth *auth);

/* May any user log in from this address? */
bool mailq_auth_admits(const struct mailq_auth *auth, const struct mailq_peer *peer);

/* Returns the entry that applies to this user from this address, or NULL. It lives as long as
 * `auth`. */
const struct mailq_entry *mailq_auth_find(const struct mailq_auth *auth,
                                          const struct mailq_peer *peer, struct slice user);

/* Is `hex` the MD5, in lower-case hexadecimal, of the challenge followed by the entry's password?
 * False for an entry without a clear password. Compares in constant time. */
bool mailq_auth_md5_fits(const struct mailq_entry *entry, struct slice challenge, struct slice hex);

/* Computes a client's answer to a challenge: 32 hexadecimal digits and a NUL. */
void mailq_auth_md5(struct slice challenge, struct slice password, char ret_hex[33]);

#endif
