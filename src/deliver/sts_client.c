#include "sts_client.h"

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "mem.h"
#include "sts.h"
#include "wire.h"

struct sts_question {
    UT_hash_handle hh;
    struct sts_client *client;
    uint64_t token;
    sts_done *done;
    void *arg;
};

static struct sts_question *ask(void *arg, struct slice domain, sts_done *done, void *done_arg)
{
    struct sts_client *c = arg;
    struct sts_question *q = mem_new(sizeof *q);

    q->client = c;
    q->token = ++c->last_token;
    q->done = done;
    q->arg = done_arg;
    HASH_ADD(hh, c->questions, token, sizeof q->token, q);
    if (*c->queue != NULL) {
        wire_put_policy_ask(*c->queue,
                            &(struct wire_policy_ask){.token = q->token, .domain = domain});
    }
    return q;
}

static void cancel(struct sts_question *q)
{
    HASH_DEL(q->client->questions, q);
    mem_free(q);
}

void sts_client_init(struct sts_client *c, struct channel *const *queue)
{
    *c = (struct sts_client){.source = {.arg = c, .ask = ask, .cancel = cancel}, .queue = queue};
}

void sts_client_fini(struct sts_client *c)
{
    CHECK(c->questions == NULL);
}

bool sts_client_answer(struct sts_client *c, struct slice body)
{
    struct wire_policy_answer m;
    struct sts_policy policy;
    struct sts_question *q;
    struct sts_answer answer = {.until = mono_after(clock_mono(), STS_CLIENT_US)};
    const char *why;

    if (!wire_get_policy_answer(body, &m) || m.token > c->last_token ||
        (m.policy.len > 0 && !sts_policy_parse(m.policy, &policy, &why))) {
        return false;
    }
    HASH_FIND(hh, c->questions, &m.token, sizeof m.token, q);
    if (q != NULL) { /* otherwise its delivery was cancelled meanwhile */
        sts_done *done = q->done;
        void *arg = q->arg;

        answer.policy = m.policy.len > 0 ? &policy : NULL;
        cancel(q);
        done(arg, &answer);
    }
    return true;
}
