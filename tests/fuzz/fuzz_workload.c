/*
 * Workloads made of arbitrary bytes.
 *
 * Wanted, beside no crash: a refusal has words, each line of them with the workload's name; what is
 * accepted keeps its limits, and draws from it stay within them.
 */
#include <stdint.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "workload.h"

#define ERRORS_MAX 65536
#define DRAWS      16

static void check_errors(struct slice errors)
{
    CHECK(errors.len > 0 && errors.ptr[errors.len - 1] == '\n');
    errors.len--;
    while (errors.ptr != NULL) {
        CHECK(slice_starts(slice_cut(&errors, '\n'), SLICE("fuzz:")));
    }
}

static void check_distribution(const struct distribution *d, struct rng *rng)
{
    for (int i = 0; i < DRAWS; i++) {
        int64_t value = distribution_draw(d, rng);

        CHECK(value >= 0 && value <= DISTRIBUTION_MAX);
    }
}

static void check_site(const struct workload_site *site, struct rng *rng)
{
    const struct sim_site_model *m = &site->model;

    CHECK(m->hosts >= 1 && m->hosts <= SIM_HOSTS_MAX && m->bad <= m->hosts);
    CHECK(m->fail >= 0 && m->defer >= 0 && m->fail + m->defer <= 1);
    CHECK(m->outage_count <= SIM_OUTAGES_MAX);
    check_distribution(&m->setup, rng);
    check_distribution(&m->latency, rng);
    check_distribution(&m->recipient, rng);
}

static void check_arrivals(const struct workload *w, const struct workload_arrivals *a,
                           struct rng *rng)
{
    CHECK(a->class < w->class_count);
    CHECK(a->to.count >= 1 && a->to.count <= WORKLOAD_POPULATION_MAX);
    CHECK(a->rhythm == WORKLOAD_BURST || a->gap_us > 0);
    CHECK(a->until_us > a->from_us);
    CHECK(w->duration_us != US_FOREVER || a->until_us != US_FOREVER || a->count != UINT64_MAX);
    check_distribution(&a->recipients, rng);
    check_distribution(&a->size, rng);
    for (int i = 0; i < DRAWS; i++) {
        uint32_t domain = workload_draw_domain(&a->to, rng);

        CHECK(domain < a->to.count && a->to.names[domain][0] != '\0');
        (void)workload_site_find(w, slice_string(a->to.names[domain])); /* only not to crash */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct workload *w;
    struct buf errors;
    struct rng rng;

    rng_init(&rng, 1);
    buf_init(&errors, ERRORS_MAX);
    w = workload_parse(slice_of(data, size), "fuzz", &errors);
    CHECK((w == NULL) == (buf_len(&errors) > 0));
    if (w == NULL) {
        check_errors(buf_slice(&errors));
    } else {
        for (size_t i = 0; i < w->site_count; i++) {
            check_site(&w->sites[i], &rng);
        }
        for (size_t i = 0; i < w->arrivals_count; i++) {
            check_arrivals(w, &w->arrivals[i], &rng);
        }
    }
    workload_free(w);
    buf_fini(&errors);
    return 0;
}
