/*
 * Prints the reasons for which mail waits, for a terminal. The members are those of docs/api.md.
 * `now` is seconds since 1970.
 */
#ifndef CLI_WHY_PRINT_H
#define CLI_WHY_PRINT_H

#include <stdio.h>

#include <jansson.h>

#define WHY_GROUPS_SHOWN 10
#define WHY_NAMES_SHOWN  3 /* recipients printed of each group */

/* A message, collected from pages of its recipients; all zero at its start. Members are private. */
struct why_print {
    json_t *first;  /* owned; first page */
    json_t *groups; /* owned; groups of all pages; equal groups are joined */
    json_t *last;   /* owned; "next_recipient" of the last page; NULL: none */
};

/* Adds an answer to "why" and takes it. */
void why_print_add(struct why_print *w, json_t *page);
void why_print_message(const struct why_print *w, FILE *out, double now);
void why_print_fini(struct why_print *w);

/* Prints a destination: the answers to "site" and to "count" (may be NULL). */
void why_print_site(FILE *out, const json_t *site, const json_t *count, double now);

#endif
