/*
 * Who may ask what: the auth file of the mailq protocol, version 2.
 *
 * Lines are `user:password:rights:addresses`; `#` or `*` in the first column begins a comment.
 *
 *   rights     words of SNMP QQ TT ETRN KILL REROUTE ALL NONE, separated by blanks
 *   addresses  items `[192.0.2.0]/24`, `[IPv6.2001:db8::]/32`, `!item` for the contrary, separated
 *              by blanks or commas; the first that fits decides, none that fits refuses, and an
 *              empty list admits all
 *   password   in clear, or `{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY`, which serves SCRAM
 *              logins only (scram.h)
 *
 * The first entry with the user's name whose addresses admit the client counts, so a name may stand
 * there several times. A line that can't be understood is skipped and reported: it never gives more
 * than was meant.
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

/* Where a client is: an address of 4 or 16 bytes. One on a UNIX socket counts as 127.0.0.1. */
struct mailq_peer {
    uint8_t address[16];
    unsigned len; /* 4 or 16 */
};
extern const struct mailq_peer mailq_peer_local;

struct mailq_entry {
    char *user;     /* owned, as are the others */
    char *password; /* NULL: `secret` is there instead */
    struct scram_secret secret;
    unsigned rights;
    struct mailq_range *ranges;
    size_t range_count;
};

struct mailq_auth;

/* Bytes of an auth file and entries in it that are looked at. */
#define MAILQ_AUTH_FILE_MAX    65536
#define MAILQ_AUTH_ENTRIES_MAX 1000

/* Read the text of an auth file. Each line that is skipped adds one "NAME:LINE:COLUMN: ..." line to
 * *problems. Never NULL; free with mailq_auth_free. */
struct mailq_auth *mailq_auth_parse(const char *name, struct slice text, struct buf *problems);
void mailq_auth_free(struct mailq_auth *auth);

/* Has any entry a password in clear that is a secret? The entry that ZMailer ships, which has its
 * user's name as password, is none. */
bool mailq_auth_has_clear(const struct mailq_auth *auth);

/* May any user log in from there at all? */
bool mailq_auth_admits(const struct mailq_auth *auth, const struct mailq_peer *peer);

/* The entry that counts for this user from there, or NULL. Lasts as long as `auth`. */
const struct mailq_entry *mailq_auth_find(const struct mailq_auth *auth,
                                          const struct mailq_peer *peer, struct slice user);

/* Is `hex` the MD5, in lower-case hexadecimal, of the challenge followed by the entry's password?
 * False for an entry without a password in clear. Takes the same time wherever they differ. */
bool mailq_auth_md5_fits(const struct mailq_entry *entry, struct slice challenge, struct slice hex);

/* The answer to a challenge, for clients: 32 hexadecimal digits and a NUL. */
void mailq_auth_md5(struct slice challenge, struct slice password, char ret_hex[33]);

#endif
