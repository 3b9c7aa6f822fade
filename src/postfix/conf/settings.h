/*
 * Postfix's parameters, as postconf(1) prints them with all names expanded: one "name = value" line
 * each. The values were not checked; an invalid value counts as not set.
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
    struct settings_line *lines; /* owned, sorted by name; among equal names the last line is
                                  * used */
    size_t count;
};

/* Parses a copy of `text`. Ignores lines without "=". */
void settings_init(struct settings *s, struct slice text);
void settings_fini(struct settings *s);

/* Returns a value, NUL-terminated; empty if the parameter is missing. */
struct slice settings_get(const struct settings *s, const char *name);
bool settings_has(const struct settings *s, const char *name);
/* Returns true for the value "yes", false for "no", `preset` for any other. */
bool settings_is(const struct settings *s, const char *name, bool preset);
/* Returns a whole number up to `max`; `preset` for any other value. */
uint64_t settings_number(const struct settings *s, const char *name, uint64_t preset, uint64_t max);
/* Returns a time with unit s m h d w, or a bare number of `unit`s, of at most 100 years;
 * `preset_us` for any other value. */
int64_t settings_time_us(const struct settings *s, const char *name, int64_t preset_us, char unit);

/* Returns line `i` in the order of names; false after the last. */
bool settings_at(const struct settings *s, size_t i, struct settings_line *ret_line);

/* Removes the first word from a list that is separated by commas and blanks; false if the list has
 * no word. */
bool settings_word(struct slice *list, struct slice *ret_word);
/* Is the word in the list? */
bool settings_lists(struct slice list, struct slice word);

#endif
