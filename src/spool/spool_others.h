/*
 * Part of a spool: several nodes share it, each sees to the partitions that it owns, and they ask
 * each other.
 *
 * A question and its answer are texts that the spool carries and does not look into. A question may
 * be carried out twice, and also after its asker has stopped waiting for it; an answer comes once,
 * or never: the asker has a time limit of its own. Nothing here waits; what has come is told by
 * SPOOL_EVENT_READY.
 *
 *     asker   spool_ask --> the other's spool_next_told (a question) --spool_answer-->
 *             spool_next_told (the answer), or spool_ask_end when it is not wanted any more
 *
 * A spool without the part is its only node's, who owns all of it.
 */
#ifndef SPOOL_SPOOL_OTHERS_H
#define SPOOL_SPOOL_OTHERS_H

#include "spool.h"
#include "spool_parts.h"

/* Nodes have numbers below this. */
#define SPOOL_NODES_MAX 64
#define SPOOL_NOBODY    (-1)
/* Bytes; a longer one is not carried. */
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

/* The partitions in which a message lies, and its parts, if it has some. As spool_read, and -EAGAIN
 * when the parts are not at hand yet. Without the part: none. */
int spool_places_of(struct spool *sp, struct msg_id id, struct spool_places *ret);

/* What others own, and that a message is not there, is at hand for a moment, as it was when it was
 * read. A look begins, and this is its number, above 0. */
uint64_t spool_look_begin(struct spool *sp);
/* Calls until the next one of this are part of the look: what was read before it had begun is read
 * again. 0, as at the start: they are of none, and what is at hand will do. */
void spool_look_within(struct spool *sp, uint64_t look);

/* Those that this node owns: what lies there it may change. */
void spool_own_places(const struct spool *sp, struct spool_places *ret);
/* Is the message, which is at hand, in one of them? True without the part. */
bool spool_is_own(const struct spool *sp, struct msg_id id);

/* As it was when that was looked at last, at most a second ago: the owner, or SPOOL_NOBODY; for how
 * long there has been none (us). */
int spool_owner(const struct spool *sp, unsigned partition);
int64_t spool_unowned_us(const struct spool *sp, unsigned partition);

/* This node's number, or SPOOL_NOBODY: it has none at the moment. */
int spool_node(const struct spool *sp);
/* Its name, until the next spool_commits_turn; "" when there is no such node. */
const char *spool_node_name(const struct spool *sp, int node);
/* Is it one of the nodes, and was it heard of lately? */
bool spool_node_is_up(const struct spool *sp, int node);

/* A node as it was seen last. False: there is none of that number. */
struct spool_node_facts {
    const char *state;   /* "up", "draining", .. */
    int64_t silent_us;   /* nothing was heard of it for so long; 0 for this node */
    unsigned partitions; /* that it owns */
};
bool spool_node_seen(const struct spool *sp, int node, struct spool_node_facts *ret);

/* How often partitions have come to this node. */
uint64_t spool_gains(const struct spool *sp);
/* What this node lets the others, and operators, know of itself. */
struct spool_node_words {
    uint64_t behind;    /* messages of its new mail that have no place in memory yet */
    uint64_t under_way; /* deliveries */
    uint64_t awaited;   /* of these: others wait for their end, and they can't be called back */
};
void spool_tell_others(struct spool *sp, const struct spool_node_words *words);
/* The most that one has of the nodes to which this one has given mail in the last 10 s. */
uint64_t spool_others_behind(const struct spool *sp);

/* For the metrics. */
struct spool_node_measures {
    unsigned partitions; /* that this node owns */
    unsigned nodes_up;
    unsigned unowned;           /* partitions */
    uint64_t given_up;          /* how often others have taken over what it had */
    uint64_t missed;            /* messages that nothing told of; found when all was looked at */
    uint64_t drift;             /* messages by which counts of what waits were found wrong */
    int64_t fresh_bytes;        /* of the tables of passing mail */
    int64_t oldest_snapshot_us; /* age of the oldest transaction that keeps dead rows */
};
void spool_measure_node(const struct spool *sp, struct spool_node_measures *ret);

/* ---- questions ------------------------------------------------------------------------------- */

/* Ask another node. `token` is the asker's name for the question: never 0, and not used before in
 * this process. -EAGAIN: not now. -E2BIG: it is too long. */
int spool_ask(struct spool *sp, int node, uint32_t token, struct slice question);
/* Its answer is not wanted any more. */
void spool_ask_end(struct spool *sp, uint32_t token);

struct spool_told {
    bool is_question;  /* of another node; else the answer to one of ours */
    uint32_t token;    /* of a question: for spool_answer */
    int node;          /* whose it is */
    struct slice text; /* may be anything; empty when it was too long. Until the next call here */
};

/* What has come. False: nothing. */
bool spool_next_told(struct spool *sp, struct spool_told *ret);

/* Answer another node's question, once. One that is too long is answered with an empty text. */
void spool_answer(struct spool *sp, uint32_t token, struct slice answer);

/* The part, as spool_engine.h wants it. */
struct spool_others_part {
    int (*places_of)(struct spool *sp, struct msg_id id, struct spool_places *ret);
    uint64_t (*look_begin)(struct spool *sp);             /* NULL: nothing is ever old */
    void (*look_within)(struct spool *sp, uint64_t look); /* NULL with that */
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
