#include "spool_others.h"

#include <errno.h>
#include <string.h>

#include "spool_engine.h"

bool spool_has_others(const struct spool *sp)
{
    return sp->engine->others != NULL;
}

int spool_places_of(struct spool *sp, struct msg_id id, struct spool_places *ret)
{
    *ret = (struct spool_places){{0}};
    return spool_has_others(sp) ? sp->engine->others->places_of(sp, id, ret) : 0;
}

uint64_t spool_look_begin(struct spool *sp)
{
    return spool_has_others(sp) && sp->engine->others->look_begin != NULL
               ? sp->engine->others->look_begin(sp)
               : 1;
}

void spool_look_within(struct spool *sp, uint64_t look)
{
    if (spool_has_others(sp) && sp->engine->others->look_within != NULL) {
        sp->engine->others->look_within(sp, look);
    }
}

void spool_own_places(const struct spool *sp, struct spool_places *ret)
{
    *ret = (struct spool_places){{0}};
    if (spool_has_others(sp)) {
        sp->engine->others->own_places(sp, ret);
    } else {
        memset(ret, 0xff, sizeof *ret);
    }
}

bool spool_is_own(const struct spool *sp, struct msg_id id)
{
    return !spool_has_others(sp) || sp->engine->others->is_own(sp, id);
}

int spool_owner(const struct spool *sp, unsigned partition)
{
    return spool_has_others(sp) ? sp->engine->others->owner(sp, partition) : SPOOL_NOBODY;
}

int64_t spool_unowned_us(const struct spool *sp, unsigned partition)
{
    return spool_has_others(sp) ? sp->engine->others->unowned_us(sp, partition) : 0;
}

int spool_node(const struct spool *sp)
{
    return spool_has_others(sp) ? sp->engine->others->node(sp) : SPOOL_NOBODY;
}

const char *spool_node_name(const struct spool *sp, int node)
{
    return spool_has_others(sp) && node >= 0 && node < SPOOL_NODES_MAX
               ? sp->engine->others->node_name(sp, node)
               : "";
}

bool spool_node_is_up(const struct spool *sp, int node)
{
    return spool_has_others(sp) && node >= 0 && node < SPOOL_NODES_MAX &&
           sp->engine->others->node_is_up(sp, node);
}

uint64_t spool_gains(const struct spool *sp)
{
    return spool_has_others(sp) ? sp->engine->others->gains(sp) : 0;
}

bool spool_node_seen(const struct spool *sp, int node, struct spool_node_facts *ret)
{
    return spool_has_others(sp) && node >= 0 && node < SPOOL_NODES_MAX &&
           sp->engine->others->node_seen(sp, node, ret);
}

void spool_tell_others(struct spool *sp, const struct spool_node_words *words)
{
    if (spool_has_others(sp)) {
        sp->engine->others->tell(sp, words);
    }
}

uint64_t spool_others_behind(const struct spool *sp)
{
    return spool_has_others(sp) ? sp->engine->others->others_behind(sp) : 0;
}

void spool_measure_node(const struct spool *sp, struct spool_node_measures *ret)
{
    *ret = (struct spool_node_measures){0};
    if (spool_has_others(sp)) {
        sp->engine->others->measure(sp, ret);
    }
}

int spool_ask(struct spool *sp, int node, uint32_t token, struct slice question)
{
    return question.len > SPOOL_QUESTION_MAX
               ? spool_fail(sp, -E2BIG, "the question is too long for another node")
               : sp->engine->others->ask(sp, node, token, question);
}

void spool_ask_end(struct spool *sp, uint32_t token)
{
    sp->engine->others->ask_end(sp, token);
}

bool spool_next_told(struct spool *sp, struct spool_told *ret)
{
    return spool_has_others(sp) && sp->engine->others->next_told(sp, ret);
}

void spool_answer(struct spool *sp, uint32_t token, struct slice answer)
{
    sp->engine->others->answer(sp, token, answer.len > SPOOL_ANSWER_MAX ? SLICE("") : answer);
}
