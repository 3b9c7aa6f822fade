#include "tls_policy.h"

#include <string.h>

#include "check.h"
#include "mem.h"

bool tls_policy_uses_dane(enum conf_tls level)
{
    return level == CONF_TLS_DANE || level == CONF_TLS_DANE_ONLY;
}

bool tls_policy_uses_sts(enum conf_tls level)
{
    return level == CONF_TLS_MAY || level == CONF_TLS_ENCRYPT || level == CONF_TLS_DANE;
}

/* ---- making a demand ------------------------------------------------------------------------- */

static void add_name(struct tls_demand *d, const char *prefix, const char *name)
{
    struct buf text;

    CHECK(d->name_count < TLS_DEMAND_NAMES_MAX);
    buf_init(&text, strlen(prefix) + strlen(name));
    CHECK(buf_addf(&text, "%s%s", prefix, name));
    d->names[d->name_count++] = buf_take(&text);
    buf_fini(&text);
}

/* Adds the domain and names below it; an address has no names below it. */
static void add_domain(struct tls_demand *d, const char *domain)
{
    add_name(d, "", domain);
    if (!tls_is_address(domain)) {
        add_name(d, ".", domain);
    }
}

static void add_records(struct tls_demand *d, const struct tls_record *records, size_t count)
{
    d->records = mem_array(count, sizeof d->records[0]);
    for (size_t i = 0; i < count; i++) {
        const struct tls_record *r = &records[i];

        d->records[i] = *r;
        d->records[i].data = slice_of(mem_copy(r->data.ptr, r->data.len), r->data.len);
    }
    d->record_count = count;
}

/* Demands DANE. Names: the base domain, and those of the next hop (RFC 7672, section 3.2.2). */
static void match_records(struct tls_demand *d, const struct tls_host *host)
{
    d->kind = TLS_DEMAND_DANE;
    add_name(d, "", host->base);
    if (strcasecmp(host->domain, host->base) != 0) {
        add_name(d, "", host->domain);
    }
    if (host->domain_alias != NULL && strcasecmp(host->domain_alias, host->base) != 0) {
        add_name(d, "", host->domain_alias);
    }
    add_records(d, host->records, host->record_count);
}

static void verify_host(struct tls_demand *d, const struct tls_host *host)
{
    d->kind = TLS_DEMAND_VERIFY;
    add_name(d, "", host->name);
}

static void verify_domain(struct tls_demand *d, const struct tls_host *host)
{
    d->kind = TLS_DEMAND_VERIFY;
    add_domain(d, host->domain);
}

/* Sets the demand of the level, without DANE. */
static void demand_level(struct tls_demand *d, enum conf_tls level, const struct tls_host *host)
{
    switch (level) {
    case CONF_TLS_NONE:
        d->kind = TLS_DEMAND_NONE;
        return;
    case CONF_TLS_MAY:
    case CONF_TLS_DANE:
    case CONF_TLS_DANE_ONLY:
        d->kind = TLS_DEMAND_MAY;
        return;
    case CONF_TLS_ENCRYPT:
        d->kind = TLS_DEMAND_ENCRYPT;
        return;
    case CONF_TLS_VERIFY:
        verify_host(d, host);
        return;
    case CONF_TLS_SECURE:
        verify_domain(d, host);
        return;
    }
    UNREACHABLE("a level beyond the enum");
}

/* Returns the reason why the host must not be used, or NULL. */
static const char *objection(enum conf_tls level, const struct tls_host *host)
{
    bool dane = tls_policy_uses_dane(level);

    if (dane && host->dane == DANE_SKIP) {
        return "its TLSA records cannot be looked up";
    }
    if (level == CONF_TLS_DANE_ONLY && host->dane != DANE_MATCH) {
        return "it has no TLSA records that can be used, by secure answers of the DNS";
    }
    if (tls_policy_uses_sts(level) && host->sts == TLS_STS_REFUSES &&
        !(dane && host->dane == DANE_MATCH)) {
        return "it is no host of the domain's MTA-STS policy";
    }
    return NULL;
}

struct tls_demand *tls_demand_new(enum conf_tls level, enum conf_tls least,
                                  const struct tls_host *host, struct buf *ret_why)
{
    const char *why = objection(level, host);
    bool dane = tls_policy_uses_dane(level);
    struct tls_demand *d;

    if (why != NULL) {
        (void)buf_addf(ret_why, "host %s is not used: %s", host->name, why); /* may be cut */
        return NULL;
    }
    d = mem_new(sizeof *d);
    d->refs = 1;
    d->until = host->until;
    if (dane && host->dane == DANE_MATCH) {
        match_records(d, host);
    } else if (tls_policy_uses_sts(level) && host->sts == TLS_STS_ALLOWS) {
        verify_host(d, host);
        d->dns_ids = true; /* RFC 8461, section 4.2 */
    } else {
        demand_level(d, level, host);
        if (dane && host->dane == DANE_ENCRYPT) {
            d->kind = TLS_DEMAND_ENCRYPT;
        }
        /* VERIFY and DANE are sufficient for any login. */
        if (d->kind < TLS_DEMAND_VERIFY) {
            enum tls_demand_kind kind = d->kind;

            demand_level(d, least, host);
            d->kind = d->kind > kind ? d->kind : kind;
        }
    }
    d->sni = mem_string(d->kind == TLS_DEMAND_DANE ? host->base : host->name);
    return d;
}

struct tls_demand *tls_demand_ref(struct tls_demand *d)
{
    d->refs++;
    return d;
}

void tls_demand_unref(struct tls_demand *d)
{
    if (d == NULL || --d->refs > 0) {
        return;
    }
    for (size_t i = 0; i < d->name_count; i++) {
        mem_free(d->names[i]);
    }
    for (size_t i = 0; i < d->record_count; i++) {
        mem_free((char *)(uintptr_t)d->records[i].data.ptr);
    }
    mem_free(d->records);
    mem_free(d->sni);
    mem_free(d);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool has_record(const struct tls_demand *d, const struct tls_record *r)
{
    for (size_t i = 0; i < d->record_count; i++) {
        const struct tls_record *x = &d->records[i];

        if (x->usage == r->usage && x->selector == r->selector && x->matching == r->matching &&
            slice_equal(x->data, r->data)) {
            return true;
        }
    }
    return false;
}

bool tls_demand_same_records(const struct tls_demand *a, const struct tls_demand *b)
{
    bool same = a->record_count == b->record_count;

    for (size_t i = 0; same && i < a->record_count; i++) {
        same = has_record(b, &a->records[i]) && has_record(a, &b->records[i]);
    }
    return same;
}
