/*
 * JSON document that is read while it arrives, so that little is left to do at its end, and that in
 * many calls.
 *
 * The parser (jansson) takes some 20 ns for a byte, and parses all bytes in one call. So it gets
 * less than the whole document:
 *
 *   - A long string value (a text, an attachment) is decoded here while its bytes arrive. `rest`,
 *     which the parser gets, contains a mark instead: DEL and a number. A short string that begins
 *     with DEL is treated in the same way, so no document can contain a mark.
 *   - The places of large arrays are noted (`recipients`, `to`). The parser gets the document
 *     without their elements, and later each element by itself: the objects of all elements would
 *     take ten times the memory of their text. The places are found by strings and brackets alone.
 *     The document is valid JSON exactly if all elements are, with commas between them.
 *
 * The parser reports all faults: a long string with a mistake is replaced by a filler and the bytes
 * of the mistake. json_document_place converts places back.
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
 * Embed the struct. Members are private to json_document.c, except `rest` and `arrays`.
 */
#ifndef INJECT_JSON_DOCUMENT_H
#define INJECT_JSON_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "buf.h"
#include "slice.h"

/* Length from which a string is decoded here. It is well above 20 bytes, to which the parser's
 * messages cut a token, and so small that no header field costs much. */
#define JSON_LONG     256u
#define JSON_LONG_MIN 24u

/* Limit above the longest beginning of a mistake: "\uXXX" and a UTF-8 character. */
#define JSON_HELD_MAX 10u

/* Depth of brackets above which the parser refuses the document. */
#define JSON_DEPTH_KNOWN 2048u

/* Number of arrays that are read separately. */
#define JSON_ARRAYS_MAX 8u

/* First member of this name, if it is an array. */
struct json_array {
    const char *name;
    bool begun;
    bool whole;      /* whether it has ended */
    size_t from, to; /* offsets in `rest` of the text between the brackets */
};

/* String that `rest` does not contain. */
struct json_aside {
    size_t at, len;         /* place in `texts` */
    size_t rest_at;         /* offset in `rest` after its replacement */
    size_t chars, stand_in; /* number of characters in the document, and in the replacement */
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
    size_t bytes, limit; /* number of bytes of the document, and their limit */

    enum json_document_state state;
    bool escaped;        /* whether the next byte is escaped by a backslash */
    char before;         /* last byte that is not blank; 0 if none */
    size_t string_at;    /* start of the current string in `rest`, after its quote */
    size_t text_at;      /* start of the current string in `texts` */
    size_t string_chars; /* number of its characters in the document that were decoded */
    char held[JSON_HELD_MAX];
    size_t held_len;      /* length of an incomplete escape or character in `held` */
    uint32_t high;        /* first surrogate of a pair, until the second; 0 if none */
    char mistake[32];     /* first mistake that the parser would find at the end of the string */
    bool mistake_is_code; /* whether the parser finds it before it looks for NUL */
    bool wrong;           /* whether `rest` contains the string's mistake */
    size_t depth;         /* depth of brackets */
    uint64_t depths[JSON_DEPTH_KNOWN / 64]; /* for each depth a bit: whether it is in an array */
    bool is_object;                         /* whether the document is an object, with names */
    struct json_array *named;               /* array whose name was just read, or NULL */
    struct json_array *named_and_colon;     /* array whose name and colon were just read, or NULL */
    struct json_array *open;                /* array that is open at depth 2, or NULL */
    struct json_array arrays[JSON_ARRAYS_MAX];
    size_t array_count;
};

/* Begins a document of at most `limit` bytes. `names` are static names of members that may be large
 * arrays; ends with NULL. Strings of at least `long_bytes` bytes are decoded here. */
void json_document_init(struct json_document *d, const char *const *names, size_t limit,
                        size_t long_bytes);
void json_document_fini(struct json_document *d);

/* Adds bytes. Returns false if the document exceeds its limit. */
bool json_document_add(struct json_document *d, struct slice bytes);

/* Ends the document. */
void json_document_end(struct json_document *d);

/* Returns the memory that it uses, in bytes. */
uint64_t json_document_memory(const struct json_document *d);

/* Returns the array of this name, which must be one of those of json_document_init, or NULL if the
 * document has no such array. */
const struct json_array *json_document_array(const struct json_document *d, const char *name);

/* Appends `rest` without the elements of its arrays. Returns false if the buffer is full. */
bool json_document_cut(const struct json_document *d, struct buf *out);

/* Converts an offset in the output of json_document_cut to an offset in `rest`. */
size_t json_document_uncut(const struct json_document *d, size_t at);

/* Returns the original text of a string that the parser has read from `rest`; borrowed from the
 * string or from `d`. */
struct slice json_document_text(const struct json_document *d, const json_t *string);

/* Returns the offset of the first byte from `at` on that is not white space. */
size_t json_skip_blanks(struct slice document, size_t at);

/* Converts an offset in `rest` to a place in the document, as the parser counts: lines from 1, and
 * the number of characters before it in its line. */
void json_document_place(const struct json_document *d, size_t at, size_t *ret_line,
                         size_t *ret_column);

#endif
