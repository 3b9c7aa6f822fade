/*
 * Postfix's parameters, as postconf(1) prints them with all names expanded: a "name = value" line
 * each. Values have been checked by nothing; what does not make sense counts as not set.
 */
#ifndef POSTFIX_SETTINGS_H
#define POSTFIX_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

struct settings_line {
    struct slice name, value;
};

/* Fields are private to settings.c. */
struct settings {
    char *text;                  /* owned */
    struct settings_line *lines; /* owned, sorted by name; of equal names the last line counts */
    size_t count;
};

/* `text` is copied. Lines without "=" are left out. */
void settings_init(struct settings *s, struct slice text);
void settings_fini(struct settings *s);

/* Empty when it is not there. NUL-terminated. */
struct slice settings_get(const struct settings *s, const char *name);
bool settings_has(const struct settings *s, const char *name);
/* "yes" or "no". */
bool settings_is(const struct settings *s, const char *name, bool preset);
/* A whole number up to `max`. */
uint64_t settings_number(const struct settings *s, const char *name, uint64_t preset, uint64_t max);
/* A time with its unit s m h d w, or a bare number of `unit`s; at most 100 years. */
int64_t settings_time_us(const struct settings *s, const char *name, int64_t preset_us, char unit);

/* By position, in the order of names; false behind the last. */
bool settings_at(const struct settings *s, size_t i, struct settings_line *ret_line);

/* The next word of a list that is separated by commas and blanks; false: there is none. */
bool settings_word(struct slice *list, struct slice *ret_word);
/* Is the word in the list? */
bool settings_lists(struct slice list, struct slice word);

#endif
