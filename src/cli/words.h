/*
 * Texts of the command line: members of answers, times, sizes, and text from mail.
 *
 * A `struct words` is a short text that is returned by value, so that one printf can have several.
 */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

struct words {
    char text[64];
};

/* Returns a member of an answer; "" or 0 if it is missing or has another type. */
const char *member_text(const json_t *object, const char *name);
double member_number(const json_t *object, const char *name);
int64_t member_integer(const json_t *object, const char *name);

/* Returns a size: "276 bytes", "12.3 KiB". */
struct words words_size(double bytes);

/* Returns an interval in its two largest units: "3m 12s", "2d 4h", "5s". A negative one is 0. */
struct words words_interval(double seconds);

/* Returns "2026-11-21 06:10:53", local time. Times are seconds since 1970. */
struct words words_time(double t);

/* Returns a time with "(3m 12s ago)" or "(in 5m)". */
struct words words_when(double t, double now);

/* Returns a time as ctime(3), without the year: "Sat Nov 21 06:10:53". */
struct words words_date(double t);

/* Returns the current time in seconds since 1970. */
double words_now(void);

/* Returns a count: "1 message", "2 messages". */
struct words words_count(int64_t n, const char *noun);

/* Prints text from mail, without bytes that could affect a terminal. */
void put_text(FILE *out, const char *text);

/* Prints lines with text from outside, without bytes that could affect a terminal. */
void put_lines(FILE *out, const char *text);

/* Prints "sluice: LINE" on standard error for each line of `text`, as put_lines. */
void put_error(const char *text);

/* Prints a JSON value and a line end, in ASCII: escapes keep a Unicode control character in an
 * address from affecting a terminal. */
void put_json(FILE *out, const json_t *value);

#endif
