/*
 * Users who may log in to send mail (auth_users): a file of verifiers, which does not reveal their
 * passwords.
 *
 *     USER:{SCRAM-SHA-256}ROUNDS,SALT,STORED-KEY,SERVER-KEY[:class=NAME][:senders=LIST]
 *
 *     app:{SCRAM-SHA-256}4096,c2FsdA==,...:class=personal:senders=app@example.org,@shop.example
 *
 * name_lines.h describes the rest of the file's format.
 */
#ifndef SMTP_VERIFIER_LIST_H
#define SMTP_VERIFIER_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "name_lines.h"
#include "sasl.h"
#include "slice.h"

#define VERIFIER_LIST_FILE_MAX (4u << 20) /* bytes */
#define VERIFIER_LIST_MAX      100000u
#define VERIFIER_MAKE_UP_KEY   32u /* bytes */

struct verifier {
    struct name_line line; /* the name is the user's */
    struct scram_secret secret;
};

struct verifier_list;

/* Reads the text of a file. Returns NULL with "LINE:COLUMN: error" in *ret_error. */
struct verifier_list *verifier_list_new(struct slice text, struct buf *ret_error);

/* Frees the list after overwriting its keys; NULL is allowed. */
void verifier_list_free(struct verifier_list *list);

/* Returns the entry of a user, or NULL. Lasts as long as the list. */
const struct verifier *verifier_list_find(const struct verifier_list *list, struct slice user);

/* Returns the n-th user in the order of the file; NULL after the last. */
const struct verifier *verifier_list_at(const struct verifier_list *list, size_t n);

/* Appends a line for the file, with its end. `class_name` and `senders` may be empty. */
void verifier_put(struct buf *out, struct slice user, const struct scram_secret *secret,
                  struct slice class_name, struct slice senders);

/* Is this a valid name in the file: 1 to SASL_USER_MAX bytes without colon, blanks and control
 * characters, and not beginning with `#`? */
bool verifier_user_is_valid(struct slice user);

/* Returns a number that differs between texts and does not help to guess the text. It changes only
 * with the key. */
uint64_t verifier_stamp(const uint8_t key[VERIFIER_MAKE_UP_KEY], struct slice text);

/* Makes a secret for an unknown user, with as many rounds as most secrets have, so that neither
 * reply nor time reveals which users exist. The secret changes only with the key. `key` is random
 * and secret. */
void verifier_make_up(const struct verifier_list *list, const uint8_t key[VERIFIER_MAKE_UP_KEY],
                      struct slice user, struct scram_secret *ret_secret);

#endif
