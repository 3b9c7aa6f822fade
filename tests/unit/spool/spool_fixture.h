/*
 * What tests of the spool share: a directory that goes away, opening, and short ways to submit and
 * read. Errors of the spool that a test did not ask for end it with the spool's words.
 */
#ifndef TESTS_SPOOL_FIXTURE_H
#define TESTS_SPOOL_FIXTURE_H

#include "spool.h"

#define INLINE_LIMIT 1000 /* small, so that segments are used, too */
/* Small, so that tests use several. What takes more than a fourth has a file of its own. */
#define SEGMENT_SIZE 65536
#define OWN_FILE     20000

struct fixture {
    char dir[64];
    char path[96]; /* of the database */
    char url[112];
};

void fixture_init(struct fixture *fx);
/* Removes the directory with all that is in it. */
void fixture_fini(struct fixture *fx);

/* Open the sqlite spool of the directory. 0, or the error, with its words on standard output. */
int fixture_try(const struct fixture *fx, enum spool_open_mode mode, const struct spool_io *io,
                struct spool **ret_spool);
struct spool *fixture_open(const struct fixture *fx);
struct spool *fixture_open_memory(void);

/* Fail the test unless `err` is 0. */
void fixture_ok(const struct spool *sp, int err);

/* Submit: one recipient after another, addresses separated by blanks; created, arrived and due at
 * `when`; content of `size` bytes that depend on the sender and the size. */
int fixture_submit(struct spool *sp, const char *sender, const char *rcpts, int64_t when,
                   size_t size, bool claim, struct msg_id *ret_id);

/* Is the content what fixture_submit stored? */
bool fixture_content_ok(struct spool *sp, const struct spool_message *m);

/* Run one statement on the database, behind the spool's back. */
void fixture_sql(const struct fixture *fx, const char *sql);
/* The text of the first column of the first row; "" without a row. In a static buffer. */
const char *fixture_ask(const struct fixture *fx, const char *sql);

#endif
