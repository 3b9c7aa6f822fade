/*
 * Shared by the files of loader.h:
 *
 *   loader.c        questions and the distribution of answers; counts; arrivals
 *   loader_ahead.c  mail to load ahead: due mail, parked mail of a key, mail that has long
 *                   been in passage
 *   loader_rows.c   rows of messages whose place or id is known, their content and their parts
 *
 * For each kind of question one function takes the answer to one of its statements (.._answer), and
 * one is called after all answers (.._ended, loader_loaded, loader_located). A statement may be
 * answered twice (reader.h).
 */
#ifndef CLUSTER_LOADER_PRIVATE_H
#define CLUSTER_LOADER_PRIVATE_H

#include <libpq-fe.h>

#include "columns.h"
#include "loader.h"

enum ask {
    ASK_COUNT,
    ASK_HEADS,
    ASK_WALK,
    ASK_PASSING,
    ASK_KEY,
    ASK_LOCATE,
    ASK_LOAD,
    ASK_OTHERS,
    ASK_CONTENT,
    ASK_PARTS,
    ASK_TOLD,
    ASK_ARRIVALS,
    ASK_NOTHING /* deletes rows */
};

struct head {
    uint32_t place; /* index in question.due.places */
    uint16_t p;
    int64_t due;
    uint64_t id;
};

/* How to load messages. */
struct loading {
    uint64_t life;          /* value of loader.lives at the request */
    unsigned where;         /* enum desk_row: tables to read; ROW_NONE for all */
    bool by_list;           /* whether places are of a list and may be out of date */
    bool only_due;          /* whether mail that is due later leaves the desk again */
    bool to_move;           /* whether it will be moved, so that its content is not needed */
    struct question *parts; /* owned; question for parts that continues after this one; or NULL */
};

/* Question for the content of a message. */
struct content_question {
    uint64_t id;
    uint64_t size;   /* size of the content, from the message */
    unsigned where;  /* enum desk_row: table to read */
    bool is_moving;  /* whether a batch had changed the message at the request */
    bool has_failed; /* whether this machine had no room for it */
    int fd;          /* owned; file for its chunks, or -1 */
    uint64_t filled;
    char *bytes; /* owned; content from a row, or NULL */
    size_t bytes_len;
};

/* Question for a list of the parts of a message. */
struct parts_question {
    uint64_t whole;
    uint64_t list;           /* number of the list, from desk_parts_list */
    uint64_t look;           /* value of desk.looks at the request of the first list */
    struct question *before; /* owned; question for the previous list, or NULL */
};

struct question {
    enum ask ask;
    struct head *heads; /* owned; answers, or messages to load or locate */
    size_t head_count, head_size;
    unsigned looks; /* number of attempts for these messages or lists */
    union {         /* depends on `ask` */
        struct {
            bool is_answered;
        } count;
        struct {
            struct finder_place **places; /* owned */
            size_t place_count;
            uint32_t limit;  /* number of rows for each place */
        } due;               /* for ASK_HEADS */
        uint32_t page;       /* page size for ASK_WALK and ASK_PASSING */
        struct loading load; /* for ASK_LOAD and ASK_OTHERS */
        struct content_question content;
        struct parts_question parts;
        struct {
            int no; /* number of the node, with its incarnation */
            int64_t incarnation;
            unsigned rows;
        } arrivals;
    };
};

struct loader {
    struct desk *desk;
    struct finder *finder;
    struct arrivals *arrivals;
    struct handover *handover;
    struct reader *reader;              /* owned */
    const struct cluster_search *lists; /* borrowed */
    uint64_t lives;                     /* raised when partitions are let go */
    unsigned counting;                  /* number of counts in flight */
    unsigned deleting;                  /* number of deletions of arrivals in flight */
    bool has_counted;                   /* whether a completed count was not reported yet */
    int64_t now;
    bool is_wanted;  /* whether due mail was requested */
    uint64_t missed; /* number of messages that only a sweep has found */
    bool is_heading; /* whether heads or a page of the walk are in flight */
    bool is_telling; /* whether a request for due times of report parts is in flight */
    bool has_come;
    int64_t sweep_at; /* microseconds */
    /* Position of the walk through a fresh table for mail to move. */
    unsigned passing_table;
    uint16_t passing_p;
    uint64_t passing_id;
    bool passing_is_asked, passing_ended;
    char *key; /* owned; last key that was requested */
    size_t key_len;
    uint64_t key_after; /* id up to which its mail was read */
    bool key_is_asked, key_found;
    bool key_ended; /* whether all its mail was read, and the desk had all of it */
};

/* ---- loader.c: questions --------------------------------------------------------------------- */

struct question *loader_question_new(enum ask ask);
void loader_question_free(struct question *q);
/* Makes a question that has heads the question for their rows. */
void loader_question_load(struct question *q, struct loading how);
void loader_add_head(struct question *q, struct head head);
/* Adds a statement whose parameters are the columns, then a number. Frees the columns. */
void loader_add_columns(struct committer_batch *b, struct columns *c, int64_t more);
/* Starts the columns of a statement whose first two parameters are partitions and ids of the heads.
 * The caller must call columns_fini. */
void loader_head_columns(struct columns *c, const struct question *q, const char *sql);
/* Sends a statement with these two parameters. Takes `q`. */
void loader_ask_by_key(struct loader *l, struct question *q, const char *sql);

/* ---- loader_ahead.c -------------------------------------------------------------------------- */

/* Requests due mail if it is wanted and few messages are ready. */
void loader_go_on(struct loader *l);
void loader_heads_answer(struct question *q, const PGresult *r);
void loader_heads_ended(struct loader *l, struct question *q);
/* Ends a question of this kind; takes it. */
void loader_walk_ended(struct loader *l, struct question *q);
void loader_passing_ended(struct loader *l, struct question *q);
void loader_key_ended(struct loader *l, struct question *q);

/* ---- loader_rows.c --------------------------------------------------------------------------- */

/* Loads those of the heads that the desk does not have. Takes `q`. Returns false if there are
 * none. */
bool loader_load_new(struct loader *l, struct question *q, enum desk_reason why);
void loader_load_answer(struct loader *l, const struct question *q, unsigned n, const PGresult *r);
/* Ends a load; takes the question. loader_load_again is for one whose partitions were let go
 * meanwhile. */
void loader_loaded(struct loader *l, struct question *q);
void loader_load_again(struct loader *l, struct question *q);
void loader_parts_ended(struct loader *l, struct question *q);
void loader_locate_answer(struct question *q, const PGresult *r);
void loader_located(struct loader *l, struct question *q);
void loader_content_answer(struct question *q, unsigned n, const PGresult *r);
void loader_content_ended(struct loader *l, struct question *q);

#endif
