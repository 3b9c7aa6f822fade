/*
 * What the files of loader.h share.
 *
 *   loader.c        what is asked at all, and whose answer it is; counts; what others tell
 *   loader_ahead.c  which mail is to be loaded before it is asked for: what is due, has a key, or
 *                   has been passing for long
 *   loader_rows.c   messages whose place or id is known, their content, and their parts
 *
 * Each question has a function that takes the answer to one of its statements (.._answer), and one
 * for when all were answered (.._ended, loader_loaded, loader_located). Statements may be answered
 * twice (reader.h).
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
    ASK_NOTHING /* it deletes */
};

struct head {
    uint32_t place; /* index of question.due.places */
    uint16_t p;
    int64_t due;
    uint64_t id;
};

/* What is read of messages. */
struct loading {
    uint64_t life;          /* loader.lives when it was asked */
    unsigned where;         /* enum desk_row: where they are taken to be; ROW_NONE: anywhere */
    bool by_list;           /* places are as a list has had them: they may have moved since */
    bool only_due;          /* what is due later leaves again */
    bool to_move;           /* it is to be moved: its content stays where it is */
    struct question *parts; /* owned: the list that goes on when they are read; or NULL */
};

/* The content of a message. */
struct content_question {
    uint64_t id;
    uint64_t size;   /* of the content, as the message had it */
    unsigned where;  /* enum desk_row: the table in which it is looked for */
    bool is_moving;  /* .. while a batch that had not ended had to do with the message */
    bool has_failed; /* this machine had no room for it */
    int fd;          /* owned: where its chunks go, or -1 */
    uint64_t filled;
    char *bytes; /* owned: it was in a row; or NULL */
    size_t bytes_len;
};

/* A list of the parts of a message. */
struct parts_question {
    uint64_t whole;
    uint64_t list;           /* its number, by desk_parts_list */
    uint64_t look;           /* desk.looks when the first list was asked for */
    struct question *before; /* owned: the one with the list before; or NULL */
};

struct question {
    enum ask ask;
    struct head *heads; /* owned: answers; or the messages that are loaded or located */
    size_t head_count, head_size;
    unsigned looks; /* how often these messages, or lists, were asked for in vain */
    union {         /* by `ask` */
        struct {
            bool is_answered;
        } count;
        struct {
            struct finder_place **places; /* owned */
            size_t place_count;
            uint32_t limit;  /* of each place */
        } due;               /* ASK_HEADS */
        uint32_t page;       /* ASK_WALK, ASK_PASSING: its size */
        struct loading load; /* ASK_LOAD, ASK_OTHERS */
        struct content_question content;
        struct parts_question parts;
        struct {
            int no; /* of the node, and its: */
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
    uint64_t lives;                     /* raised when partitions leave */
    unsigned counting;                  /* questions */
    unsigned deleting;                  /* .. that delete arrivals */
    bool has_counted;                   /* and not told it */
    int64_t now;
    bool is_wanted;  /* mail that is due */
    uint64_t missed; /* messages that only a sweep has found */
    bool is_heading; /* heads, or a page of the walk, are asked for */
    bool is_telling; /* when those that were told of something are due is asked for */
    bool has_come;
    int64_t sweep_at; /* us */
    /* the walk through a fresh table for what is to be moved, so far */
    unsigned passing_table;
    uint16_t passing_p;
    uint64_t passing_id;
    bool passing_is_asked, passing_ended;
    char *key; /* owned: that was asked for last */
    size_t key_len;
    uint64_t key_after; /* its mail up to this was read */
    bool key_is_asked, key_found;
    bool key_ended; /* all of it was looked at, and none was not on the desk */
};

/* ---- loader.c: questions --------------------------------------------------------------------- */

struct question *loader_question_new(enum ask ask);
void loader_question_free(struct question *q);
/* Its heads are known: it is the question for their rows from now on. */
void loader_question_load(struct question *q, struct loading how);
void loader_add_head(struct question *q, struct head head);
/* Add a statement whose first parameters are `c`, which ends, and whose last one is a number. */
void loader_add_columns(struct committer_batch *b, struct columns *c, int64_t more);
/* The columns of a statement that has the partitions and ids of its heads as its first two
 * parameters; to be ended with columns_fini. */
void loader_head_columns(struct columns *c, const struct question *q, const char *sql);
/* Ask such a statement, which has no more of them. Takes `q`. */
void loader_ask_by_key(struct loader *l, struct question *q, const char *sql);

/* ---- loader_ahead.c -------------------------------------------------------------------------- */

/* Ask for what is due, if mail is wanted and little is ready. */
void loader_go_on(struct loader *l);
void loader_heads_answer(struct question *q, const PGresult *r);
void loader_heads_ended(struct loader *l, struct question *q);
/* These take the question. */
void loader_walk_ended(struct loader *l, struct question *q);
void loader_passing_ended(struct loader *l, struct question *q);
void loader_key_ended(struct loader *l, struct question *q);

/* ---- loader_rows.c --------------------------------------------------------------------------- */

/* Load those of its heads that are not on the desk yet. Takes `q`. False: there are none. */
bool loader_load_new(struct loader *l, struct question *q, enum desk_reason why);
void loader_load_answer(struct loader *l, const struct question *q, unsigned n, const PGresult *r);
/* These take the question. The second: it was read in a former life. */
void loader_loaded(struct loader *l, struct question *q);
void loader_load_again(struct loader *l, struct question *q);
void loader_parts_ended(struct loader *l, struct question *q);
void loader_locate_answer(struct question *q, const PGresult *r);
void loader_located(struct loader *l, struct question *q);
void loader_content_answer(struct question *q, unsigned n, const PGresult *r);
void loader_content_ended(struct loader *l, struct question *q);

#endif
