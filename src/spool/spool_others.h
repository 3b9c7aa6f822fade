/*
 * Part of a spool: several nodes share it, each delivers the mail of the partitions that it owns,
 * and they send each other questions.
 *
 * A question and its answer are texts that the spool carries and does not read. A question may be
 * carried out twice, and also after its asker has stopped waiting; an answer arrives once or never,
 * so the asker has a time limit of its own. No call here waits; SPOOL_EVENT_READY announces
 * arrivals.
 *
 *     asker   spool_ask --> the other's spool_next_told (a question) --spool_answer-->
 *             spool_next_told (the answer), or spool_ask_end when the asker stops waiting
 *
 * A spool without this part has one node, which owns all of it.
 */
#ifndef SPOOL_SPOOL_OTHERS_H
#define SPOOL_SPOOL_OTHERS_H

#include "spool.h"
#include "spool_parts.h"

/* Limit of node numbers, which are below it. */
#define SPOOL_NODES_MAX 64
#define SPOOL_NOBODY    (-1)
/* Limits in bytes; a longer text is not carried. */
#define SPOOL_QUESTION_MAX 65536u
#define SPOOL_ANSWER_MAX   (4u << 20)

/* A set of partitions. */
struct spool_places {
    uint64_t bits[SPOOL_PARTITIONS_MAX / 64];
};

static inline bool spool_places_has(const struct spool_places *s, unsigned p)
{
    return (s->bits[p / 64] >> (p % 64) & 1) != 0;
}

static inline void spool_places_add(struct spool_places *s, unsigned p)
{
    s->bits[p / 64] |= UINT64_C(1) << (p % 64);
}

bool spool_has_others(const struct spool *sp);

/* ---- who has what ---------------------------------------------------------------------------- */

/* Finds the partitions in which a message and its parts, if any, lie. Errors as spool_read, and
 * -EAGAIN if the parts are not loaded yet. Without this part of a spool: none. */
int spool_places_of(struct spool *sp, struct msg_id id, struct spool_places *ret);

/* Begins a snapshot and returns its number, above 0. Rows that other nodes own, and the fact that a
 * message does not exist, are cached for a moment, so they may be a little out of date. */
uint64_t spool_look_begin(struct spool *sp);
/* Makes later calls part of a snapshot, until the next spool_look_within: data read before that
 * snapshot began is read again. 0, as at the start: no snapshot, and cached data is good enough. */
void spool_look_within(struct spool *sp, uint64_t look);

/* Returns the partitions that this node owns; it may change mail there. */
void spool_own_places(const struct spool *sp, struct spool_places *ret);
/* Does a message, which must be loaded, lie in one of these partitions? True without this part of a
 * spool. */
bool spool_is_own(const struct spool *sp, struct msg_id id);

/* Returns the owner of a partition, or SPOOL_NOBODY; and for how many microseconds it has had no
 * owner. Both are at most a second old. */
int spool_owner(const struct spool *sp, unsigned partition);
int64_t spool_unowned_us(const struct spool *sp, unsigned partition);

/* Returns this node's number, or SPOOL_NOBODY while it has none. */
int spool_node(const struct spool *sp);
/* Returns the name of a node, until the next spool_commits_turn; "" if there is no such node. */
const char *spool_node_name(const struct spool *sp, int node);
/* Is it one of the nodes, and has it renewed its lease lately? */
bool spool_node_is_up(const struct spool *sp, int node);

/* The state of a node as last read. spool_node_seen returns false if there is no node of that
 * number. */
struct spool_node_facts {
    const char *state;   /* "up", "draining", .. */
    int64_t silent_us;   /* time since its last sign of life; 0 for this node */
    unsigned partitions; /* number of partitions that it owns */
};
bool spool_node_seen(const struct spool *sp, int node, struct spool_node_facts *ret);

/* Returns how often partitions have come to this node. */
uint64_t spool_gains(const struct spool *sp);
/* Figures that this node publishes for the other nodes and for operators. */
struct spool_node_words {
    uint64_t behind;    /* number of new messages that have no place in memory yet */
    uint64_t under_way; /* number of active deliveries */
    uint64_t awaited;   /* number of these whose end other nodes wait for and that can't be broken
                         * off */
};
void spool_tell_others(struct spool *sp, const struct spool_node_words *words);
/* Returns the highest `behind` among the nodes to which this node has passed mail in the last 10
 * s. */
uint64_t spool_others_behind(const struct spool *sp);

/* Figures for the metrics. */
struct spool_node_measures {
    unsigned partitions; /* number of partitions that this node owns */
    unsigned nodes_up;
    unsigned unowned;           /* number of partitions without an owner */
    uint64_t given_up;          /* how often other nodes have taken over this node's partitions */
    uint64_t missed;            /* number of messages that were not announced and were found by a
                                 * full scan */
    uint64_t drift;             /* number of messages by which the counts of waiting mail were found
                                 * wrong */
    bool lacks;                 /* the store lacks acknowledged mail */
    int64_t clock_us;           /* lead of this machine's clock over the store's */
    int64_t fresh_bytes;        /* size of the tables of passing mail */
    int64_t oldest_snapshot_us; /* age of the oldest transaction that keeps dead rows */
};
void spool_measure_node(const struct spool *sp, struct spool_node_measures *ret);

/* ---- questions ------------------------------------------------------------------------------- */

/* Sends a question to another node. `token` is the asker's name for the question: never 0, and
 * never used before in this process. -EAGAIN: not possible now. -E2BIG: the question is too
 * long. */
int spool_ask(struct spool *sp, int node, uint32_t token, struct slice question);
/* Drops a question: its answer will not be returned. */
void spool_ask_end(struct spool *sp, uint32_t token);

struct spool_told {
    bool is_question;  /* a question of another node; else the answer to one of this node's */
    uint32_t token;    /* token; that of a question is for spool_answer */
    int node;          /* number of the sender */
    struct slice text; /* may be any bytes; empty if the text was too long. Lasts until the next
                        * spool_next_told */
};

/* Returns the next question or answer that has arrived; false if there is none. */
bool spool_next_told(struct spool *sp, struct spool_told *ret);

/* Answers another node's question, once. An answer that is too long is sent as an empty text. */
void spool_answer(struct spool *sp, uint32_t token, struct slice answer);

/* Functions of an engine with this part. */
struct spool_others_part {
    int (*places_of)(struct spool *sp, struct msg_id id, struct spool_places *ret);
    uint64_t (*look_begin)(struct spool *sp);             /* NULL = data is never out of date */
    void (*look_within)(struct spool *sp, uint64_t look); /* NULL when look_begin is */
    void (*own_places)(const struct spool *sp, struct spool_places *ret);
    bool (*is_own)(const struct spool *sp, struct msg_id id);
    int (*owner)(const struct spool *sp, unsigned partition);
    int64_t (*unowned_us)(const struct spool *sp, unsigned partition);
    int (*node)(const struct spool *sp);
    const char *(*node_name)(const struct spool *sp, int node);
    bool (*node_is_up)(const struct spool *sp, int node);
    bool (*node_seen)(const struct spool *sp, int node, struct spool_node_facts *ret);
    uint64_t (*gains)(const struct spool *sp);
    void (*measure)(const struct spool *sp, struct spool_node_measures *ret);
    void (*tell)(struct spool *sp, const struct spool_node_words *words);
    uint64_t (*others_behind)(const struct spool *sp);
    int (*ask)(struct spool *sp, int node, uint32_t token, struct slice question);
    void (*ask_end)(struct spool *sp, uint32_t token);
    bool (*next_told)(struct spool *sp, struct spool_told *ret);
    void (*answer)(struct spool *sp, uint32_t token, struct slice answer);
};

#endif
