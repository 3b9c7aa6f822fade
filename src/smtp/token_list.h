/*
 * Tokens of programs that use the HTTP interfaces (api_tokens): a file that does not reveal them.
 *
 *     NAME:{SHA-256}HASH:rights=RIGHT[,RIGHT][:class=NAME][:senders=LIST]
 *
 *     shop:{SHA-256}47DEQpj8...=:rights=inject:class=orders:senders=@shop.example
 *
 * A token is its name, a dot, and TOKEN_SECRET hexadecimal digits from the kernel's generator. So a
 * plain hash (in base64) is enough: salt and rounds are for passwords, while a token can't be
 * guessed. Rights, class and senders (for the right `inject`) belong to the name. name_lines.h
 * describes the rest of the file's format.
 */
#ifndef SMTP_TOKEN_LIST_H
#define SMTP_TOKEN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "name_lines.h"
#include "slice.h"

#define TOKEN_LIST_FILE_MAX (4u << 20) /* bytes */
#define TOKEN_LIST_MAX      10000u
#define TOKEN_NAME_MAX      64u
#define TOKEN_SECRET        64u
#define TOKEN_MAX           (TOKEN_NAME_MAX + 1 + TOKEN_SECRET)
#define TOKEN_HASH          32u

/* Rights of a token; a bit set. */
enum token_right {
    TOKEN_INJECT = 1 << 0,  /* send mail */
    TOKEN_READ = 1 << 1,    /* read the state of the queue */
    TOKEN_OPERATE = 1 << 2, /* change the queue */
    TOKEN_RIGHTS = 7,
};

struct token {
    struct name_line line;
    uint8_t hash[TOKEN_HASH];
    unsigned rights;
};

struct token_list;

/* Reads the text of a file. Returns NULL with "LINE:COLUMN: error" in *ret_error. */
struct token_list *token_list_new(struct slice text, struct buf *ret_error);

/* Frees the list; NULL is allowed. */
void token_list_free(struct token_list *list);

/* Returns the entry of a valid token; NULL if the token is not valid. The time depends only on the
 * name in the token, not on how much of the secret is right. The result lasts as long as the
 * list. */
const struct token *token_list_check(const struct token_list *list, struct slice text);

const struct token *token_list_find(const struct token_list *list, struct slice name);

/* Returns the n-th token in the order of the file; NULL after the last. */
const struct token *token_list_at(const struct token_list *list, size_t n);

/* Appends a new token of this name to `ret_text`, and to `ret_line` the file's line for it, with
 * its end. `class_name` and `senders` may be empty. */
void token_make(struct slice name, unsigned rights, struct slice class_name, struct slice senders,
                struct buf *ret_text, struct buf *ret_line);

/* Is this a valid name in the file: 1 to TOKEN_NAME_MAX letters, digits, and, except as the first
 * byte, `_`, `-`, `.` and `@`? */
bool token_name_is_valid(struct slice name);

/* Parses "inject,read" into a bit set; returns false for anything else. */
bool token_rights_parse(struct slice text, unsigned *ret_rights);
void token_rights_put(unsigned rights, struct buf *out);

#endif
