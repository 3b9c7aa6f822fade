/*
 * How the command line spells things: members of answers, times, sizes, and text from mail.
 *
 * A `struct words` is a short text by value, so that several fit into one printf.
 */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

struct words {
    char text[64];
};

/* Members of an answer. What is missing or of another type is "" and 0. */
const char *member_text(const json_t *object, const char *name);
double member_number(const json_t *object, const char *name);
int64_t member_integer(const json_t *object, const char *name);

/* "276 bytes", "12.3 KiB". */
struct words words_size(double bytes);

/* The two largest units: "3m 12s", "2d 4h", "5s". Negative counts as 0. */
struct words words_interval(double seconds);

/* "2026-11-21 06:10:53", local time; times are seconds since 1970. */
struct words words_time(double t);

/* The same with "(3m 12s ago)" or "(in 5m)". */
struct words words_when(double t, double now);

/* As ctime(3) has it, without the year: "Sat Nov 21 06:10:53". */
struct words words_date(double t);

/* Seconds since 1970. */
double words_now(void);

/* "1 message", "2 messages". */
struct words words_count(int64_t n, const char *noun);

/* Print text from mail so that it can do nothing to a terminal. */
void put_text(FILE *out, const char *text);

/* Print lines of which some words come from outside, each made harmless. */
void put_lines(FILE *out, const char *text);

/* Print "sluice: LINE" to standard error for each line of `text`, made harmless, too. */
void put_error(const char *text);

/* Print a JSON value and an end of line, in ASCII: a control character of Unicode in an address
 * does nothing to a terminal either. */
void put_json(FILE *out, const json_t *value);

#endif
