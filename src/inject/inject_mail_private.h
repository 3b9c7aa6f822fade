/* What inject_mail.c has read and inject_message.c makes messages of. */
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

/* A mailbox of the document. */
struct inject_mailbox {
    size_t at, len;           /* of its address, in the pool */
    size_t name_at, name_len; /* of its name, likewise */
    struct slice element;     /* of a recipient with values: what stands in the document */
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

/* A name that stands in the texts of a document. */
struct used_name {
    UT_hash_handle hh; /* by name */
    struct slice name; /* in the document */
    const char *where; /* it stands first */
    bool in_field;     /* it stands in a field of the header, too */
    bool has_default;  /* the document has a value for all recipients */
};

struct used_names {
    struct used_name *all;     /* a hash, owned */
    struct used_name **listed; /* owned; in the order of the document */
    size_t count, size;
    size_t needed; /* without a default: each recipient has to have them */
};

/* What of a document is read next. */
enum inject_mail_stage {
    INJECT_MAIL_DOCUMENT,
    INJECT_MAIL_LISTS,      /* elements of reply_to, to, cc, bcc */
    INJECT_MAIL_MEMBERS,    /* of the document */
    INJECT_MAIL_CONTENTS,   /* of attachments */
    INJECT_MAIL_RECIPIENTS, /* elements of `recipients` */
    INJECT_MAIL_READ,
};

struct inject_mail {
    const struct json_document *json; /* borrowed */
    struct slice source;              /* its `rest` */
    json_t *document;                 /* NULL: it has not been read yet */
    uint64_t memory;
    struct inject_mail_limits limits;
    struct buf *error;      /* while it is read */
    uint64_t parser_memory; /* what the parser has of it */
    enum inject_mail_stage stage;
    size_t list;       /* in STAGE_LISTS: which of them is read */
    size_t element_at; /* of `source`: the next element to read, with blanks before it */
    size_t attachment; /* whose content is checked, from `checked` on */
    size_t checked;
    struct used_names used; /* while the elements are read */
    struct buf pool;        /* addresses in stored form, and names */
    struct inject_mailboxes from, sender, reply_to, to, cc, bcc, recipients;
    bool divided; /* `recipients` is there */
    bool null_sender;
    bool no_json, too_large;                 /* why it is wrong */
    struct slice subject, text, html, whole; /* ptr NULL: none */
    const json_t *values;                    /* `substitutions` of the document */
    struct compose_field fields[INJECT_HEADERS_MAX];
    size_t field_count;
    struct inject_attachment *attachments; /* owned */
    size_t attachment_count;
};

struct slice inject_mail_address(const struct inject_mail *m, const struct inject_mailbox *box);

/* The value that a recipient with these values (or NULL) has for a name, or the document. ptr NULL:
 * there is none. */
struct slice inject_mail_value(const struct inject_mail *m, const json_t *values,
                               struct slice name);

#endif
