/*
 * A JSON document as it comes in, so that little is left to do at its end, and that not at once.
 *
 * The parser (jansson) takes some 20 ns for a byte, and all bytes in one call. So it gets less:
 *
 *   - A long string that is a value (a text, an attachment) is decoded here, as its bytes come. In
 *     `rest`, what the parser gets, stands a mark in its place: DEL and a number. A short string
 *     that begins with DEL is put aside, too, so no document can write a mark.
 *   - Where large arrays stand is noted (`recipients`, `to`). The parser gets the document without
 *     their elements, and then these one by one: all objects of them at once would take ten times
 *     the memory of their text. This goes by strings and brackets alone; all are JSON, with commas
 *     between them, exactly when the document is.
 *
 * What is wrong is the parser's to say, always: a long string with a mistake stands in `rest` as a
 * filler and the bytes that are the mistake. json_document_place undoes the difference.
 *
 *   OUTSIDE --quote--> NAME ---------------------------quote--> OUTSIDE
 *      |
 *      +--quote of a value------> YOUNG ---------------quote--> OUTSIDE
 *                                   | it becomes long (with a mistake: to NAME)
 *                                   v
 *                                 LONG ----------------quote--> OUTSIDE
 *                                   | a mistake
 *                                   v
 *                                 WRONG (is left out) -quote--> OUTSIDE
 *
 * Embed it. Fields are private to json_document.c but for `rest` and `arrays`.
 */
#ifndef INJECT_JSON_DOCUMENT_H
#define INJECT_JSON_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "buf.h"
#include "slice.h"

/* A string of so many bytes is decoded here. Far more than the parser shows of a token in its
 * messages (20 bytes); so few that no field of a header costs much. */
#define JSON_LONG     256u
#define JSON_LONG_MIN 24u

/* The longest begin of a mistake, "\uXXX" and a character of UTF-8, has fewer bytes. */
#define JSON_HELD_MAX 10u

/* More brackets within each other are too many for the parser. */
#define JSON_DEPTH_KNOWN 2048u

/* Arrays that are read apart. */
#define JSON_ARRAYS_MAX 8u

/* A member of the document that is to be an array, the first of this name. */
struct json_array {
    const char *name;
    bool begun;
    bool whole;      /* it has ended, too */
    size_t from, to; /* offsets in `rest` of what stands between the brackets */
};

/* A string that is not in `rest`. */
struct json_aside {
    size_t at, len;         /* in `texts` */
    size_t rest_at;         /* behind what stands in its place in `rest` */
    size_t chars, stand_in; /* characters, of it in the document and of what stands in its place */
};

enum json_document_state {
    JSON_OUTSIDE,
    JSON_NAME,
    JSON_YOUNG,
    JSON_LONG_STRING,
    JSON_WRONG,
};

struct json_document {
    struct buf rest, texts;
    struct json_aside *aside; /* owned */
    size_t aside_count, aside_size;
    size_t long_bytes;
    size_t bytes, limit; /* of the document */

    enum json_document_state state;
    bool escaped;        /* the byte before was a backslash that is none itself */
    char before;         /* the last byte that is no blank; 0: none */
    size_t string_at;    /* of the string that is read: behind its quote, in `rest` */
    size_t text_at;      /* likewise, in `texts` */
    size_t string_chars; /* characters of it in the document, decoded so far */
    char held[JSON_HELD_MAX];
    size_t held_len;      /* the begin of an escape or character, more is to come */
    uint32_t high;        /* surrogate that waits for the other; 0: none */
    char mistake[32];     /* what the parser finds when it has seen all of the string */
    bool mistake_is_code; /* and before it looks for NUL */
    bool wrong;           /* the string has a mistake that is in `rest` */
    size_t depth;         /* of brackets */
    uint64_t depths[JSON_DEPTH_KNOWN / 64]; /* a bit for each depth: it is an array's */
    bool is_object;                         /* else no name is looked for */
    struct json_array *named;               /* its name has come; NULL: none */
    struct json_array *named_and_colon;     /* and a colon */
    struct json_array *open;                /* at depth 2; NULL: none is */
    struct json_array arrays[JSON_ARRAYS_MAX];
    size_t array_count;
};

/* `names` of members that may be large arrays: literals, NULL behind the last. A document of more
 * than `limit` bytes is refused. */
void json_document_init(struct json_document *d, const char *const *names, size_t limit,
                        size_t long_bytes);
void json_document_fini(struct json_document *d);

/* More of it has come. False: it is larger than its limit. */
bool json_document_add(struct json_document *d, struct slice bytes);

/* All of it has come. */
void json_document_end(struct json_document *d);

/* Bytes that it takes. */
uint64_t json_document_memory(const struct json_document *d);

/* The array of this name, which is one of those of json_document_init; NULL: there is none. */
const struct json_array *json_document_array(const struct json_document *d, const char *name);

/* Append `rest` with nothing between the brackets of the arrays. False when the buffer is full. */
bool json_document_cut(const struct json_document *d, struct buf *out);

/* The offset in `rest` of what stands at this offset in what json_document_cut appends. */
size_t json_document_uncut(const struct json_document *d, size_t at);

/* What a string is that the parser has read out of `rest`; borrowed of the value or of `d`. */
struct slice json_document_text(const struct json_document *d, const json_t *string);

/* The offset of the first byte from `at` on that is no white space. */
size_t json_skip_blanks(struct slice document, size_t at);

/* Where an offset of `rest` is in the document, as the parser counts: lines from 1, characters
 * before it in its line. */
void json_document_place(const struct json_document *d, size_t at, size_t *ret_line,
                         size_t *ret_column);

#endif
