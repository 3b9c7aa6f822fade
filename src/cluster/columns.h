/*
 * Rows of parameters for one statement, stored by column. Each column is one parameter, an array in
 * PostgreSQL's binary form. The statement reads the rows with unnest($1, $2, ..) or ($1)[i].
 *
 * A letter is the type of a column: s smallint, i int, l bigint, b bytea, t text (marked_text.h), o
 * boolean.
 */
#ifndef CLUSTER_COLUMNS_H
#define CLUSTER_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "committer.h"
#include "slice.h"

#define COLUMNS_MAX 24
/* Limits of one statement; further rows go into another statement. */
#define COLUMNS_ROWS_MAX  256
#define COLUMNS_BYTES_MAX ((size_t)4 << 20)

struct column {
    char *bytes; /* owned */
    size_t len, size;
    bool has_null;
};

struct columns {
    const char *sql;   /* static text */
    const char *types; /* static text; a letter for each column */
    struct column column[COLUMNS_MAX];
    uint32_t rows;
    unsigned at; /* index of the next column */
    size_t bytes;
};

void columns_init(struct columns *c, const char *sql, const char *types);
void columns_fini(struct columns *c);

/* Appends the next value of a row; after the last value columns_row ends the row. */
void columns_number(struct columns *c, int64_t n);
void columns_bytes(struct columns *c, struct slice bytes); /* bytea or text */
void columns_null(struct columns *c);
/* Ends the row. Adds the statement to the batch when the limits are reached. */
void columns_row(struct columns *c, struct committer_batch *b);

/* Ends the row of a statement that must not be split. */
void columns_row_open(struct columns *c);

/* Returns the array of the only column, for another statement. It is valid until the next call.
 * Removes the rows. */
struct slice columns_array(struct columns *c);

/* Adds the statement to the batch if there are rows, and removes the rows. */
void columns_flush(struct columns *c, struct committer_batch *b);
/* Adds the statement to the batch, even without rows, with one more parameter after the columns.
 * Removes the rows. */
void columns_flush_with(struct columns *c, struct committer_batch *b, struct link_param more);

#endif
