/* Shared by inject_mail.c, which reads a document, and inject_message.c, which makes its
 * messages. */
#ifndef INJECT_INJECT_MAIL_PRIVATE_H
#define INJECT_INJECT_MAIL_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "buf.h"
#include "compose.h"
#include "hash.h"
#include "inject_mail.h"
#include "json_document.h"
#include "slice.h"

/* Mailbox of the document. */
struct inject_mailbox {
    size_t at, len;           /* place of the address in the pool */
    size_t name_at, name_len; /* place of the name in the pool */
    struct slice element;     /* for a recipient with values: its text in the document */
};

struct inject_mailboxes {
    struct inject_mailbox *all; /* owned */
    size_t count, size;
};

struct inject_attachment {
    struct slice name, type, id;
    struct slice content; /* base64 */
    bool is_inline;
};

/* Name that texts of the document use. */
struct used_name {
    UT_hash_handle hh; /* key: name */
    struct slice name; /* points into the document */
    const char *where; /* first member that uses it */
    bool in_field;     /* whether a header field uses it, too */
    bool has_default;  /* whether the document has a value for all recipients */
};

struct used_names {
    struct used_name *all;     /* a hash; owned */
    struct used_name **listed; /* owned; in the order of the document */
    size_t count, size;
    size_t needed; /* number without a default, which each recipient must have */
};

/* Part of a document that is read next. */
enum inject_mail_stage {
    INJECT_MAIL_DOCUMENT,
    INJECT_MAIL_LISTS,      /* elements of reply_to, to, cc and bcc */
    INJECT_MAIL_MEMBERS,    /* other members */
    INJECT_MAIL_CONTENTS,   /* contents of attachments */
    INJECT_MAIL_RECIPIENTS, /* elements of `recipients` */
    INJECT_MAIL_READ,
};

struct inject_mail {
    const struct json_document *json; /* borrowed */
    struct slice source;              /* `rest` of the document */
    json_t *document;                 /* NULL until it was parsed */
    uint64_t memory;
    struct inject_mail_limits limits;
    struct buf *error;      /* only set during a call that reads */
    uint64_t parser_memory; /* memory of the parser's objects */
    enum inject_mail_stage stage;
    size_t list;       /* for INJECT_MAIL_LISTS: index of the current list */
    size_t element_at; /* offset in `source` of the next element, perhaps after blanks */
    size_t attachment; /* attachment whose content is checked, from offset `checked` */
    size_t checked;
    struct used_names used; /* only while elements are read */
    struct buf pool;        /* addresses in stored form, and names */
    struct inject_mailboxes from, sender, reply_to, to, cc, bcc, recipients;
    bool divided; /* whether the document has `recipients` */
    bool null_sender;
    bool no_json, too_large;                 /* kind of the fault */
    struct slice subject, text, html, whole; /* ptr is NULL if missing */
    const json_t *values;                    /* `substitutions` of the document */
    struct compose_field fields[INJECT_HEADERS_MAX];
    size_t field_count;
    struct inject_attachment *attachments; /* owned */
    size_t attachment_count;
};

struct slice inject_mail_address(const struct inject_mail *m, const struct inject_mailbox *box);

/* Returns the value of a name, from the recipient's `values` (may be NULL) or else from the
 * document; ptr is NULL if there is none. */
struct slice inject_mail_value(const struct inject_mail *m, const json_t *values,
                               struct slice name);

#endif
