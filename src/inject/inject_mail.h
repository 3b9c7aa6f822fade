/*
 * JSON document of a call (docs/injection.md), and the messages that it describes.
 *
 * There are two kinds. With `to`, `cc` and `bcc` it is one message for all recipients. With
 * `recipients` each recipient gets a message of its own, in which {{NAME}} is replaced by the value
 * of this name in `substitutions` of the recipient or of the document. Alternatively `message` is
 * the whole message, and the document has only its envelope.
 *
 * The whole document is checked when it is read: types, unknown members, addresses, names without a
 * value, limits. No text of the document can end a header field: control characters are refused in
 * fields, and in values for them. inject_message.h makes the messages.
 *
 * For up to 10^5 recipients with values no objects are stored, only their places in the text. Each
 * is parsed once to be checked, and again when its message is made.
 *
 * A document is read in many calls, so that other work of the process can go on. A call does one of
 * three things. It reads as many recipients as the caller wants (of INJECT_AT_ONCE bytes together,
 * or one), it checks this many bytes of attachments, or it reads all members except recipients and
 * long strings. Those members, and each recipient with its values, may have INJECT_MEMBERS_MAX
 * bytes.
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

/* Limits of a document. */
#define INJECT_ATTACHMENTS_MAX   100u
#define INJECT_HEADERS_MAX       100u
#define INJECT_FIELD_MAX         8192u /* bytes of a name, a subject, or a field with its values */
#define INJECT_SUBSTITUTIONS_MAX 1000u
#define INJECT_DEPTH_MAX         16u
#define INJECT_MEMBERS_MAX       262144u /* bytes */
#define INJECT_AT_ONCE           65536u  /* bytes */

struct inject_mail;

struct inject_mail_limits {
    uint32_t rcpts;         /* inject_recipient_limit */
    uint64_t memory;        /* memory for reading the document, in bytes */
    uint64_t message_bytes; /* message_size_limit; 0 if none */
};

enum inject_mail_result {
    INJECT_MAIL_OK,
    INJECT_MAIL_NO_JSON,   /* status 400 */
    INJECT_MAIL_WRONG,     /* status 422 */
    INJECT_MAIL_TOO_LARGE, /* status 413 */
    INJECT_MAIL_MORE,      /* some recipients were not read yet */
};

/* Initializes the libraries. Must be called once in the process, before it is confined, as they
 * open files. */
void inject_mail_start(void);

/* Members of a document that are read element by element; ends with NULL. */
extern const char *const inject_mail_arrays[];

/* Prepares a document, to which the caller adds the bytes of the request. */
void inject_mail_document(struct json_document *d, size_t limit_bytes);

/* Creates a mail from a document that has ended. The document and `limits` are borrowed until the
 * mail is freed. */
struct inject_mail *inject_mail_new(const struct json_document *document,
                                    const struct inject_mail_limits *limits);

/* Reads on, at most the next `rcpts` recipients. Returns INJECT_MAIL_OK when the mail is complete.
 * All results except this one and INJECT_MAIL_MORE are final: *ret_error has the place, the found
 * and the expected text, and the mail must be freed. */
enum inject_mail_result inject_mail_read(struct inject_mail *m, size_t rcpts,
                                         struct buf *ret_error);
void inject_mail_free(struct inject_mail *m);

/* Returns the memory that the mail uses, in bytes. */
uint64_t inject_mail_memory(const struct inject_mail *m);

/* Returns the sender in stored form; empty for the null sender. inject_mail_count returns the
 * number of messages. inject_mail_next_rcpt returns the recipients of a message, one per call,
 * beginning with *at = 0. */
struct slice inject_mail_sender(const struct inject_mail *m);
size_t inject_mail_count(const struct inject_mail *m);
bool inject_mail_next_rcpt(const struct inject_mail *m, size_t message, size_t *at,
                           struct slice *ret_address);

/* Returns the size of all addresses and names, in bytes. */
uint64_t inject_mail_address_bytes(const struct inject_mail *m);
/* Returns the least size of the header of a message for all recipients, in bytes; 0 if each
 * recipient gets a message, or if the document has the whole message. */
uint64_t inject_mail_header_least(const struct inject_mail *m);

/* Does each recipient get a message of its own? */
bool inject_mail_is_divided(const struct inject_mail *m);

/* Does the document have the whole message, so that it is not composed? */
bool inject_mail_is_whole(const struct inject_mail *m);

#endif
