#include "local_mail.h"

#include "address.h"
#include "buf.h"

void local_mail_begin(struct local_mail *m, const struct conf *conf, struct rule_set *rules,
                      struct draft_budget *budget, uint64_t inline_max)
{
    draft_init(&m->draft, budget, inline_max);
    content_init(&m->scanner, CONTENT_COUNTED);
    classify_begin(&m->classify, conf);
    arrival_begin(&m->arrival, rules, false);
}

void local_mail_data(struct local_mail *m, bool is_own, struct slice name)
{
    const struct arrival_author author = {
        .is_own = is_own, .sender = draft_sender(&m->draft), .name = name};

    arrival_data(&m->arrival, &author);
}

/* Adds content that has passed the rules to the draft. */
static void put_content(void *arg, struct slice bytes)
{
    struct local_mail *m = arg;

    (void)draft_add_content(&m->draft, bytes); /* a failure shows in the draft */
}

void local_mail_add(struct local_mail *m, struct slice wire)
{
    struct slice rest = wire, ignored;
    size_t used;

    classify_feed(&m->classify, wire);
    while (rest.len > 0) {
        (void)content_feed(&m->scanner, rest, &used, &ignored); /* counted: reports no end */
        rest = slice_skip(rest, used);
    }
    arrival_content(&m->arrival, wire, put_content, m);
}

struct server_reply local_mail_end(struct local_mail *m, const char *name)
{
    struct server_reply ruled;

    content_finish(&m->scanner);
    ruled = arrival_end(&m->arrival, name, put_content, m);
    (void)draft_finish(&m->draft); /* a failure shows in the draft */
    return ruled;
}

void local_mail_drop(struct local_mail *m)
{
    draft_drop(&m->draft);
    classify_drop(&m->classify);
    arrival_drop(&m->arrival);
}

char *local_mail_envelope(const struct draft *d)
{
    struct slice sender = draft_sender(d), rcpt = draft_first_rcpt(d);
    struct buf text;

    buf_init(&text, 2 * ADDRESS_MAX + 100);
    (void)buf_addf(&text, "from=<%.*s> to=<%.*s>", SLICE_ARGS(sender), SLICE_ARGS(rcpt)); /* fits */
    return buf_take(&text);
}
