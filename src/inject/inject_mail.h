/*
 * A JSON document of a call (docs/injection.md), and the messages that it asks for.
 *
 * Two kinds. With `to`, `cc` and `bcc` it is one message for all of them; with `recipients`, a
 * message for each, in which {{NAME}} stands for what `substitutions` of the recipient, or of the
 * document, has under this name. Or `message` has the whole message, and the document its envelope.
 *
 * Everything is checked when the document is read: types, unknown members, addresses, names that
 * are not substituted, limits. No text of the document can end a header field: control characters
 * are refused where they would stand in one, in what is substituted there, too. The messages are
 * made by inject_message.h.
 *
 * Of 10^5 recipients with their values no objects are kept, but where they stand in the text: they
 * are read one by one, to be checked, and again when their message is made.
 *
 * A document is read in many calls, so that others of the process have their turn: a call reads as
 * many recipients as the caller wants, of INJECT_AT_ONCE bytes in all or of one, or it checks so
 * many bytes of attachments, or reads all members but recipients and long strings, which may have
 * INJECT_MEMBERS_MAX bytes. So may a recipient with its values.
 */
#ifndef INJECT_INJECT_MAIL_H
#define INJECT_INJECT_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "json_document.h"
#include "slice.h"
#include "times.h"

/* What a document may have of each. */
#define INJECT_ATTACHMENTS_MAX   100u
#define INJECT_HEADERS_MAX       100u
#define INJECT_FIELD_MAX         8192u /* bytes of a name, a subject, a header with its values */
#define INJECT_SUBSTITUTIONS_MAX 1000u
#define INJECT_DEPTH_MAX         16u
#define INJECT_MEMBERS_MAX       262144u /* bytes */
#define INJECT_AT_ONCE           65536u  /* bytes */

struct inject_mail;

struct inject_mail_limits {
    uint32_t rcpts;         /* inject_recipient_limit */
    uint64_t memory;        /* bytes that the document may take when it is read */
    uint64_t message_bytes; /* message_size_limit; 0: none */
};

enum inject_mail_result {
    INJECT_MAIL_OK,
    INJECT_MAIL_NO_JSON,   /* 400 */
    INJECT_MAIL_WRONG,     /* 422 */
    INJECT_MAIL_TOO_LARGE, /* 413 */
    INJECT_MAIL_MORE,      /* it has more recipients than were read */
};

/* Once in a process, before it is confined: the libraries open files. */
void inject_mail_start(void);

/* The members of a document that are read element by element, NULL behind the last. */
extern const char *const inject_mail_arrays[];

/* What is to be added to a document before it is read. */
void inject_mail_document(struct json_document *d, size_t limit_bytes);

/* A mail to be read out of a document that has ended; it and `limits` are borrowed until the mail
 * is freed. */
struct inject_mail *inject_mail_new(const struct json_document *document,
                                    const struct inject_mail_limits *limits);

/* Read on, the next `rcpts` recipients at most. INJECT_MAIL_OK: it is complete. What is neither
 * this nor INJECT_MAIL_MORE is final: *ret_error says what was found where, and
 * expected, and nothing is left to do but to free it. */
enum inject_mail_result inject_mail_read(struct inject_mail *m, size_t rcpts,
                                         struct buf *ret_error);
void inject_mail_free(struct inject_mail *m);

/* Bytes that it takes. */
uint64_t inject_mail_memory(const struct inject_mail *m);

/* The envelope: sender (stored form; empty: the null sender), how many messages it asks for, and
 * the recipients of one of them, one after the other; start with *at = 0. */
struct slice inject_mail_sender(const struct inject_mail *m);
size_t inject_mail_count(const struct inject_mail *m);
bool inject_mail_next_rcpt(const struct inject_mail *m, size_t message, size_t *at,
                           struct slice *ret_address);

/* Bytes of all addresses in it. */
uint64_t inject_mail_address_bytes(const struct inject_mail *m);
/* The header of the one message of all recipients has at least so many bytes; 0: each has its own,
 * or it is the document's. */
uint64_t inject_mail_header_least(const struct inject_mail *m);

/* Does each recipient get a message of its own? */
bool inject_mail_is_divided(const struct inject_mail *m);

/* Does the document have the whole message, as the client wrote it? Else compose.h writes it. */
bool inject_mail_is_whole(const struct inject_mail *m);

#endif
