#include "dane_lookup.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "dns_answer.h"
#include "log.h"
#include "mem.h"

static void on_tlsa(void *arg, const struct resolver_answer *answer);

static void copy_name(char to[DNS_NAME_MAX], struct slice name)
{
    CHECK(name.len < DNS_NAME_MAX);
    memcpy(to, name.ptr, name.len);
    to[name.len] = '\0';
}

static void conclude(struct dane_lookup *l, enum dane_step step)
{
    l->step = step;
    l->done(l->arg, l);
}

/* Is the name nonempty, and short enough with the prefix of a TLSA query? */
static bool can_ask(struct slice base)
{
    return base.len > 0 && base.len + sizeof "_65535._tcp." <= DNS_NAME_MAX;
}

static void ask_tlsa(struct dane_lookup *l, const char *base)
{
    char name[DNS_NAME_MAX];
    int len = snprintf(name, sizeof name, "_%u._tcp.%s", l->port, base);

    CHECK(len > 0 && (size_t)len < sizeof name);
    copy_name(l->base, slice_string(base));
    l->query = resolver_ask(l->resolver, slice_of(name, (size_t)len), RESOLVER_TLSA, on_tlsa, l);
}

/* Reads the usable records at `base`; *ret_count is the number of all. Returns false if the packet
 * can't be read. */
static bool read_records(struct dane_lookup *l, struct slice packet, size_t *ret_count)
{
    struct slice data[DANE_RECORDS_MAX];

    mem_free(l->packet); /* packet of the alias, without records */
    l->packet = mem_copy(packet.ptr, packet.len);
    if (!dns_answer_records(slice_of(l->packet, packet.len), RESOLVER_TLSA, data, DANE_RECORDS_MAX,
                            ret_count)) {
        return false;
    }
    if (*ret_count > DANE_RECORDS_MAX) {
        log_warning("%s: %zu TLSA records, %d of them are looked at (DANE_RECORDS_MAX)", l->base,
                    *ret_count, DANE_RECORDS_MAX);
    }
    for (size_t i = 0; i < *ret_count && i < DANE_RECORDS_MAX; i++) {
        struct dane_record r;

        if (dane_record_parse(data[i], &r)) {
            struct tls_record use = {r.usage, r.selector, r.matching, r.data};

            if (tls_record_usable(&use)) {
                l->records[l->record_count++] = use;
            }
        }
    }
    return true;
}

static void on_tlsa(void *arg, const struct resolver_answer *answer)
{
    struct dane_lookup *l = arg;
    enum dane_answer worth = answer->outcome == RESOLVER_AGAIN ? DANE_ANSWER_FAILED
                             : answer->secure                  ? DANE_ANSWER_SECURE
                                                               : DANE_ANSWER_INSECURE;
    uint32_t ttl = dns_answer_ttl(answer->packet);
    size_t count = 0;
    enum dane_step step;

    l->query = NULL;
    if (answer->bogus != NULL) {
        log_info("TLSA records of %s: %s", l->base, answer->bogus);
    }
    if (answer->outcome == RESOLVER_ANSWER && worth == DANE_ANSWER_SECURE &&
        !read_records(l, answer->packet, &count)) {
        worth = DANE_ANSWER_FAILED;
    }
    l->ttl = ttl < l->ttl ? ttl : l->ttl;
    step = dane_after_tlsa(worth, count, l->record_count);
    if (step == DANE_NONE && strcmp(l->base, l->alias) == 0 && can_ask(slice_string(l->host))) {
        ask_tlsa(l, l->host); /* the host's own name may have records */
    } else {
        conclude(l, step);
    }
}

/* The host's addresses are insecure: finds out whether the alias itself is secure. A secure answer
 * that there is no alias contradicts the addresses, which have changed meanwhile; the host is
 * skipped. */
static void on_alias(void *arg, const struct resolver_answer *answer)
{
    struct dane_lookup *l = arg;

    l->query = NULL;
    l->ttl = dns_answer_ttl(answer->packet);
    if (answer->outcome == RESOLVER_AGAIN ||
        (answer->outcome != RESOLVER_ANSWER && answer->secure)) {
        conclude(l, DANE_SKIP);
    } else if (answer->secure) {
        ask_tlsa(l, l->host);
    } else {
        conclude(l, DANE_NONE);
    }
}

bool dane_lookup_needed(const struct dane_question *q)
{
    return q->secure ? can_ask(q->host) || can_ask(q->alias) : q->alias.len > 0 && can_ask(q->host);
}

struct dane_lookup *dane_lookup_new(struct resolver *resolver, const struct dane_question *question,
                                    dane_lookup_done *done, void *arg)
{
    struct dane_lookup *l = mem_new(sizeof *l);

    CHECK(dane_lookup_needed(question));
    l->resolver = resolver;
    l->done = done;
    l->arg = arg;
    l->port = question->port;
    l->ttl = UINT32_MAX;
    copy_name(l->host, question->host);
    if (!question->secure) {
        l->query = resolver_ask(resolver, question->host, RESOLVER_CNAME, on_alias, l);
    } else if (can_ask(question->alias)) {
        copy_name(l->alias, question->alias);
        ask_tlsa(l, l->alias);
    } else {
        ask_tlsa(l, l->host);
    }
    return l;
}

void dane_lookup_free(struct dane_lookup *l)
{
    if (l != NULL) {
        resolver_cancel(l->query);
        mem_free(l->packet);
        mem_free(l);
    }
}
