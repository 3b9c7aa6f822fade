/*
 * Is a document the same to the parser, whether it sees all of it or what json_document.h leaves?
 * The same values, or the same mistake in the same words at the same place.
 */
#ifndef SUPPORT_SAME_JSON_H
#define SUPPORT_SAME_JSON_H

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "json_document.h"

#define SAME_JSON_WORDS 300

static bool same_value(const struct json_document *d, json_t *a, json_t *b)
{
    const char *name;
    json_t *value;
    struct slice text;

    if (json_typeof(a) != json_typeof(b) || json_object_size(a) != json_object_size(b) ||
        json_array_size(a) != json_array_size(b)) {
        return false;
    }
    json_object_foreach(a, name, value)
    {
        json_t *other = json_object_get(b, name);

        if (other == NULL || !same_value(d, value, other)) {
            return false;
        }
    }
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (!same_value(d, json_array_get(a, i), json_array_get(b, i))) {
            return false;
        }
    }
    if (!json_is_string(a)) {
        return json_is_object(a) || json_is_array(a) || json_equal(a, b);
    }
    text = json_document_text(d, b);
    return slice_equal(text, slice_of(json_string_value(a), json_string_length(a)));
}

static void say_mistake(char ret_words[SAME_JSON_WORDS], size_t line, size_t column,
                        const json_error_t *error)
{
    (void)snprintf(ret_words, SAME_JSON_WORDS, "%zu:%zu: %s", line, column, error->text);
}

/* The document comes in pieces of so many bytes. False: the words say the difference. */
static bool same_json(struct slice text, size_t piece, size_t long_bytes,
                      char ret_words[2][SAME_JSON_WORDS])
{
    static const char *const names[] = {"recipients", "a", NULL};
    struct json_document d;
    json_error_t error;
    json_t *whole =
               json_loadb(text.len == 0 ? "" : text.ptr, text.len, JSON_REJECT_DUPLICATES, &error),
           *rest;
    size_t line = 1, column = 0;
    bool same;

    ret_words[0][0] = ret_words[1][0] = '\0';
    for (size_t i = 0; whole == NULL && i < (size_t)error.position && i < text.len; i++) {
        column = text.ptr[i] == '\n' ? 0 : column + (((unsigned char)text.ptr[i] & 0xc0) != 0x80);
        line += text.ptr[i] == '\n';
    }
    if (whole == NULL) {
        say_mistake(ret_words[0], line, column, &error);
    }
    json_document_init(&d, names, text.len, long_bytes);
    for (struct slice in = text; in.len > 0;) {
        size_t len = piece < in.len ? piece : in.len;

        (void)json_document_add(&d, slice_of(in.ptr, len));
        in = slice_skip(in, len);
    }
    json_document_end(&d);
    rest = json_loadb(buf_len(&d.rest) == 0 ? "" : buf_slice(&d.rest).ptr, buf_len(&d.rest),
                      JSON_REJECT_DUPLICATES, &error);
    if (rest == NULL) {
        json_document_place(&d, (size_t)error.position, &line, &column);
        say_mistake(ret_words[1], line, column, &error);
    }
    same = strcmp(ret_words[0], ret_words[1]) == 0 &&
           (whole == NULL || rest == NULL || same_value(&d, whole, rest));
    json_decref(whole);
    json_decref(rest);
    json_document_fini(&d);
    return same;
}

#endif
