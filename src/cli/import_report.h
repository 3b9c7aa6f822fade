/*
 * The result of an import from another mail system: lines of our configuration, and a note for each
 * setting about what became of it.
 *
 *     same, translated   a line of ours has its effect
 *     needless           nothing is lost without it
 *     neighbour          another program does that next to us: the note names the program
 *     lost               the note says what changes; worst first
 *
 * A lost setting with a danger before DANGER_OTHER is a decision: a person must look at it before
 * the configuration is used.
 */
#ifndef CLI_IMPORT_REPORT_H
#define CLI_IMPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "pool.h"
#include "slice.h"

enum import_outcome {
    IMPORT_SAME,
    IMPORT_TRANSLATED,
    IMPORT_NEEDLESS,
    IMPORT_NEIGHBOUR,
    IMPORT_LOST,
    IMPORT_OUTCOMES
};

/* Dangers of a missing setting; worst first. */
enum import_danger {
    DANGER_LOSS,    /* mail could be lost, or delivered to the wrong place */
    DANGER_REFUSAL, /* mail could be refused that was accepted */
    DANGER_RELAY,   /* strangers could send to any domain */
    DANGER_CLEAR,   /* mail or passwords could be sent without the encryption that was required */
    DANGER_ACCEPT,  /* mail could be accepted that was refused */
    DANGER_OTHER,   /* mail goes the same way, but something about it differs */
    DANGERS
};

struct import_note {
    enum import_outcome outcome;
    enum import_danger danger;
    const char *place, *name, *value, *why; /* "main.cf:12"; name and value as written */
};

/* A line of our configuration, or a clause of several. */
struct import_line {
    const char *name, *text; /* our parameter or the clause's pattern; without the last newline */
    const char *place, *source, *value; /* setting that it was made of */
    unsigned first, count;              /* lines in the printed configuration */
};

struct import_report {
    struct pool pool;
    struct import_line *lines; /* owned */
    size_t line_count, line_size;
    struct import_note *notes; /* owned */
    size_t note_count, note_size;
    const char **reasons; /* owned; why Postfix should stay */
    size_t reason_count, reason_size;
    bool hold_outgoing; /* true if mail to others must wait for a decision */
};

void import_report_init(struct import_report *r);
void import_report_fini(struct import_report *r);

/* Adds a note. Copies its texts. */
void import_note(struct import_report *r, enum import_outcome outcome, enum import_danger danger,
                 const char *place, struct slice name, struct slice value, const char *why);

/* Adds a line, or a clause, that was made of a setting. Copies its texts. */
void import_line(struct import_report *r, const char *name, const char *text, const char *place,
                 struct slice source, struct slice value);

/* Adds a reason to keep Postfix, once. Copies it. */
void import_reason(struct import_report *r, const char *reason);

/* Returns the number of notes of this outcome. */
size_t import_count(const struct import_report *r, enum import_outcome outcome);

/* Returns the number of decisions. */
size_t import_decisions(const struct import_report *r);

/* Writes the configuration into an empty buffer: advice, decisions, lines, and all other notes as
 * comments. `source` is the path that was imported. */
void import_print(struct import_report *r, const char *source, struct buf *out);

/* Appends the decisions, each as "PLACE: NAME: could lose mail: WHY". */
void import_print_decisions(const struct import_report *r, struct buf *out);

/* Returns the line that is line `number` of the printed configuration; NULL: none. */
const struct import_line *import_line_at(const struct import_report *r, unsigned number);

#endif
