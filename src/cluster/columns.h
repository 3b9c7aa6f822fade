/*
 * Rows for one statement, gathered column by column: each column is a parameter, an array in
 * PostgreSQL's binary form, and the statement takes them apart again, with unnest($1, $2, ..) or
 * with ($1)[i].
 *
 * A column's type is a letter: s smallint, i int, l bigint, b bytea, t text (marked_text.h), o
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
/* More than this goes into a statement of its own. */
#define COLUMNS_ROWS_MAX  256
#define COLUMNS_BYTES_MAX ((size_t)4 << 20)

struct column {
    char *bytes; /* owned */
    size_t len, size;
    bool has_null;
};

struct columns {
    const char *sql;   /* lasts as long as the program */
    const char *types; /* a letter for each column; the same */
    struct column column[COLUMNS_MAX];
    uint32_t rows;
    unsigned at; /* the column that comes next */
    size_t bytes;
};

void columns_init(struct columns *c, const char *sql, const char *types);
void columns_fini(struct columns *c);

/* The values of a row, in the order of its columns; then columns_row. */
void columns_number(struct columns *c, int64_t n);
void columns_bytes(struct columns *c, struct slice bytes); /* or text */
void columns_null(struct columns *c);
/* The row is complete. When there are enough of them they join the batch. */
void columns_row(struct columns *c, struct committer_batch *b);

/* The same for a statement that is not cut in pieces. */
void columns_row_open(struct columns *c);

/* The array of the only column, for a statement that is made elsewhere: lasts until the next call.
 */
struct slice columns_array(struct columns *c);

/* The statement joins the batch, if there are rows, and there are none afterwards. */
void columns_flush(struct columns *c, struct committer_batch *b);
/* The same, without rows, too, with one more parameter behind the columns. */
void columns_flush_with(struct columns *c, struct committer_batch *b, struct link_param more);

#endif
