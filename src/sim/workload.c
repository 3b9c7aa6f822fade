#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "match.h"
#include "mem.h"
#include "nearest.h"
#include "real.h"
#include "times.h"
#include "value.h"

#define SHOWN_MAX    40   /* bytes of a refused text that are shown */
#define RATE_MAX     1e6  /* per unit */
#define EXPONENT_MAX 10.0 /* of a Zipf distribution */

/* ---- complaints ----------------------------------------------------------------------------- */

struct reader {
    struct workload *w;
    const char *name;
    const char *line_start;
    unsigned line;
    struct buf *errors;
    unsigned problems;
    uint32_t population; /* number of domains in all lines */
};

/* Adds a message: "NAME:LINE:COLUMN: error: `BAD': EXPECTED is expected"; `bad` is within the line.
 * Always returns false. */
static bool refuse(struct reader *r, struct slice bad, const char *expected)
{
    size_t shown = bad.len < SHOWN_MAX ? bad.len : SHOWN_MAX;

    r->problems++;
    /* A text that has reached its limit has failed (buf->failed) and is long enough. */
    (void)buf_addf(r->errors, "%s:%u:%zu: error: `", r->name, r->line,
                   (size_t)(bad.ptr - r->line_start) + 1);
    for (size_t i = 0; i < shown; i++) {
        (void)buf_add_byte(r->errors, bad.ptr[i] >= ' ' && bad.ptr[i] <= '~' ? bad.ptr[i] : '?');
    }
    (void)buf_addf(r->errors, "%s': %s expected\n", shown < bad.len ? "..." : "", expected);
    return false;
}

/* ---- values --------------------------------------------------------------------------------- */

static bool is_name(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!ascii_is_alnum(text.ptr[i]) && memchr(".-_", text.ptr[i], 3) == NULL) {
            return false;
        }
    }
    return text.len > 0 && text.len <= WORKLOAD_NAME_MAX;
}

static char *lower_copy(struct slice text)
{
    char *copy = mem_copy(text.ptr, text.len);

    for (size_t i = 0; i < text.len; i++) {
        copy[i] = ascii_lower(copy[i]);
    }
    return copy;
}

static bool take_name(struct reader *r, struct slice text)
{
    return is_name(text) || refuse(r, text, "a name of letters, digits, `.', `-' and `_' is");
}

static bool take_interval(struct reader *r, struct slice text, int64_t *ret_us)
{
    int64_t us;

    if (!interval_parse(text, US_PER_S, &us) || us > DISTRIBUTION_MAX) {
        return refuse(r, text, "an interval such as 200ms, 5s or 2h is");
    }
    *ret_us = us;
    return true;
}

static bool take_count(struct reader *r, struct slice text, uint64_t max, uint64_t *ret_count)
{
    unsigned long long count;
    char expected[64];

    if (!slice_number(text, max, &count)) {
        (void)snprintf(expected, sizeof expected, "a whole number up to %" PRIu64 " is", max);
        return refuse(r, text, expected);
    }
    *ret_count = count;
    return true;
}

static bool take_down(struct reader *r, struct slice text, enum sim_down *ret_down)
{
    int choice = choice_parse(text, SIM_DOWN_WORDS);

    if (choice < 0) {
        return refuse(r, text, "refuse, hang, mute or busy is");
    }
    *ret_down = (enum sim_down)choice;
    return true;
}

static bool take_percent(struct reader *r, struct slice text, double *ret_probability)
{
    double percent;

    if (text.len < 2 || text.ptr[text.len - 1] != '%' ||
        !real_parse(slice_of(text.ptr, text.len - 1), 100, &percent)) {
        return refuse(r, text, "a percentage such as 2.5% is");
    }
    *ret_probability = percent / 100;
    return true;
}

static bool take_distribution(struct reader *r, struct slice text, enum quantity quantity,
                              struct distribution *d)
{
    struct distribution value;
    const char *expected;
    char sentence[96];
    struct slice bad;

    if (!distribution_parse(text, quantity, &value, &bad, &expected)) {
        (void)snprintf(sentence, sizeof sentence, "%s is", expected); /* they are short */
        return refuse(r, bad, sentence);
    }
    distribution_fini(d);
    *d = value;
    return true;
}

/* Parses NUMBER/UNIT. */
static bool take_rate(struct reader *r, struct slice text, double *ret_number, int64_t *ret_unit_us)
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {{"s", US_PER_S}, {"m", US_PER_MINUTE}, {"h", US_PER_HOUR}, {"d", US_PER_DAY}};
    struct slice unit = text, number = slice_cut(&unit, '/');
    double per_unit;

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (slice_equal(unit, slice_string(units[i].name)) &&
            real_parse(number, RATE_MAX, &per_unit) && per_unit > 0) {
            *ret_number = per_unit;
            *ret_unit_us = units[i].us;
            return true;
        }
    }
    return refuse(r, text, "a rate such as 10/s, 600/m, 100/h or 5/d is");
}

/* Parses COUNT or COUNT:DOWN. */
static bool take_bad(struct reader *r, struct slice text, struct sim_site_model *model)
{
    struct slice rest = text, number = slice_cut(&rest, ':');
    uint64_t count = 0;

    if (!take_count(r, number, SIM_HOSTS_MAX, &count)) {
        return false;
    }
    model->bad = (uint32_t)count;
    return rest.ptr == NULL || take_down(r, rest, &model->bad_down);
}

/* Parses FROM..UNTIL or FROM..UNTIL:DOWN. */
static bool take_outage(struct reader *r, struct slice text, struct sim_site_model *model)
{
    struct slice rest = text, range = slice_cut(&rest, ':'), from, until;
    struct sim_outage outage = {.down = SIM_DOWN_HANG};
    const char *dots = memmem(range.ptr, range.len, "..", 2);

    if (dots == NULL) {
        return refuse(r, text, "an outage such as 2h..3h or 2h..3h:refuse is");
    }
    from = slice_of(range.ptr, (size_t)(dots - range.ptr));
    until = slice_skip(range, from.len + 2);
    if (!take_interval(r, from, &outage.from_us) || !take_interval(r, until, &outage.until_us) ||
        (rest.ptr != NULL && !take_down(r, rest, &outage.down))) {
        return false;
    }
    if (outage.until_us <= outage.from_us) {
        return refuse(r, until, "an end after the beginning is");
    }
    if (model->outage_count == SIM_OUTAGES_MAX) {
        return refuse(r, text, "at most 100 outages of a site are");
    }
    model->outages[model->outage_count++] = outage;
    return true;
}

/* ---- populations ---------------------------------------------------------------------------- */

static void population_fini(struct workload_population *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        mem_free(p->names[i]);
    }
    mem_free(p->names);
    mem_free(p->cumulative);
    *p = (struct workload_population){.count = 0};
}

/* Adds a name and takes it over. The arrays have room. */
static void population_add(struct workload_population *p, char *name, double weight)
{
    p->names[p->count] = name;
    p->cumulative[p->count] = (p->count == 0 ? 0 : p->cumulative[p->count - 1]) + weight;
    p->count++;
}

static void population_alloc(struct workload_population *p, size_t count)
{
    p->names = mem_array(count, sizeof *p->names);
    p->cumulative = mem_array(count, sizeof *p->cumulative);
}

/* Parses DOMAIN or DOMAIN:WEIGHT, with commas between them. */
static bool take_list(struct reader *r, struct slice text, struct workload_population *p)
{
    struct slice rest = text;
    size_t count = 1;

    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == ',';
    }
    if (count > WORKLOAD_POPULATION_MAX) {
        return refuse(r, text, "at most 100000 domains are");
    }
    population_alloc(p, count);
    while (rest.ptr != NULL) {
        struct slice weight = slice_cut(&rest, ','), domain = slice_cut(&weight, ':');
        uint64_t n = 1;

        if (!take_name(r, domain) || (weight.ptr != NULL && !take_count(r, weight, 1000000, &n))) {
            return false;
        }
        if (n == 0) {
            return refuse(r, weight, "a weight of 1 or more is");
        }
        population_add(p, lower_copy(domain), (double)n);
    }
    return true;
}

/* Generates "d1.SUFFIX" and so on, the k-th drawn in proportion to k^-exponent. */
static void generate(struct workload_population *p, uint64_t count, double exponent,
                     struct slice suffix)
{
    population_alloc(p, count);
    for (uint64_t k = 1; k <= count; k++) {
        char name[WORKLOAD_NAME_MAX + 32];

        (void)snprintf(name, sizeof name, "d%" PRIu64 ".%.*s", k, SLICE_ARGS(suffix)); /* fits */
        population_add(p, lower_copy(slice_string(name)),
                       exponent == 0 ? 1 : real_exp(-exponent * real_ln((double)k)));
    }
}

/* Parses zipf(COUNT,EXPONENT) and uniform(COUNT), either with the suffix as one more argument. */
static bool take_generated(struct reader *r, struct slice text, struct slice suffix,
                           struct workload_population *p)
{
    size_t open = slice_find(text, '(');
    struct slice form = slice_of(text.ptr, open), inside, count_text, exponent_text;
    bool zipf = slice_equal(form, SLICE("zipf"));
    double exponent = 0;
    uint64_t count = 0;

    if (!zipf && !slice_equal(form, SLICE("uniform"))) {
        return refuse(r, form, "zipf(COUNT,EXPONENT) or uniform(COUNT) is");
    }
    if (text.ptr[text.len - 1] != ')') {
        return refuse(r, text, "a closing parenthesis is");
    }
    inside = slice_of(text.ptr + open + 1, text.len - open - 2);
    count_text = slice_trim(slice_cut(&inside, ','));
    if (!take_count(r, count_text, WORKLOAD_POPULATION_MAX, &count)) {
        return false;
    }
    if (count == 0) {
        return refuse(r, count_text, "a population of 1 or more is");
    }
    if (zipf) {
        if (inside.ptr == NULL) {
            return refuse(r, text, "zipf(COUNT,EXPONENT) is");
        }
        exponent_text = slice_trim(slice_cut(&inside, ','));
        if (!real_parse(exponent_text, EXPONENT_MAX, &exponent)) {
            return refuse(r, exponent_text, "an exponent from 0 to 10 is");
        }
    }
    if (inside.ptr != NULL) {
        suffix = slice_trim(inside);
        if (!take_name(r, suffix)) {
            return false;
        }
    }
    generate(p, count, exponent, suffix);
    return true;
}

static bool take_population(struct reader *r, struct slice text, struct workload_arrivals *a)
{
    char suffix[WORKLOAD_NAME_MAX + 16];

    (void)snprintf(suffix, sizeof suffix, "%s.example", a->name); /* fits */
    return slice_find(text, '(') < text.len ? take_generated(r, text, slice_string(suffix), &a->to)
                                            : take_list(r, text, &a->to);
}

static uint32_t class_need(struct workload *w, struct slice name)
{
    for (size_t i = 0; i < w->class_count; i++) {
        if (slice_equal_nocase(slice_string(w->classes[i]), name)) {
            return (uint32_t)i;
        }
    }
    w->classes = mem_resize(w->classes, w->class_count + 1, sizeof *w->classes);
    w->classes[w->class_count] = lower_copy(name);
    return (uint32_t)w->class_count++;
}

/* ---- words and keys ------------------------------------------------------------------------- */

enum key_type {
    KEY_INTERVAL,     /* int64_t */
    KEY_COUNT,        /* uint32_t up to max */
    KEY_COUNT_LONG,   /* uint64_t up to max */
    KEY_SIZE,         /* int64_t */
    KEY_DOWN,         /* enum sim_down */
    KEY_PERCENT,      /* double */
    KEY_DISTRIBUTION, /* struct distribution of a quantity, which is max */
    KEY_BAD,          /* bad hosts of a site */
    KEY_OUTAGE,       /* may occur more than once */
    KEY_LIMIT,        /* limit of a site */
    KEY_CLASS,        /* class of arrivals */
    KEY_AT,           /* a burst */
    KEY_RATE,         /* Poisson */
    KEY_EVERY,        /* even */
    KEY_TO,
};

struct key {
    const char *name;
    enum key_type type;
    size_t offset; /* of the member in the struct that the line describes */
    uint64_t max;
};

#define SITE(member)     offsetof(struct sim_site_model, member)
#define ARRIVALS(member) offsetof(struct workload_arrivals, member)

static const struct key site_keys[] = {
    {"hosts", KEY_COUNT, SITE(hosts), SIM_HOSTS_MAX},
    {"bad", KEY_BAD, 0, 0},
    {"slots", KEY_COUNT, SITE(slots), UINT32_MAX},
    {"backlog", KEY_COUNT, SITE(backlog), UINT32_MAX},
    {"full", KEY_DOWN, SITE(full), 0},
    {"setup", KEY_DISTRIBUTION, SITE(setup), QUANTITY_INTERVAL},
    {"latency", KEY_DISTRIBUTION, SITE(latency), QUANTITY_INTERVAL},
    {"recipient", KEY_DISTRIBUTION, SITE(recipient), QUANTITY_INTERVAL},
    {"bandwidth", KEY_SIZE, SITE(bandwidth), 0},
    {"greylist", KEY_INTERVAL, SITE(greylist_us), 0},
    {"fail", KEY_PERCENT, SITE(fail), 0},
    {"defer", KEY_PERCENT, SITE(defer), 0},
    {"limit", KEY_LIMIT, 0, 0},
    {"outage", KEY_OUTAGE, 0, 0},
};

static const struct key arrivals_keys[] = {
    {"class", KEY_CLASS, 0, 0},
    {"at", KEY_AT, 0, 0},
    {"rate", KEY_RATE, 0, 0},
    {"every", KEY_EVERY, 0, 0},
    {"from", KEY_INTERVAL, ARRIVALS(from_us), 0},
    {"until", KEY_INTERVAL, ARRIVALS(until_us), 0},
    {"count", KEY_COUNT_LONG, ARRIVALS(count), INT64_MAX},
    {"recipients", KEY_DISTRIBUTION, ARRIVALS(recipients), QUANTITY_COUNT},
    {"size", KEY_DISTRIBUTION, ARRIVALS(size), QUANTITY_SIZE},
    {"to", KEY_TO, 0, 0},
};

#define KEYS_MAX 32
_Static_assert(sizeof site_keys / sizeof site_keys[0] <= KEYS_MAX, "a bit for each");
_Static_assert(sizeof arrivals_keys / sizeof arrivals_keys[0] <= KEYS_MAX, "a bit for each");

/* State of the line being read. */
struct line {
    const struct key *keys;
    size_t key_count;
    uint32_t seen;                      /* one bit per key */
    struct slice where;                 /* name of the line, for errors of the line as a whole */
    void *target;                       /* struct that the offsets refer to */
    struct sim_site_model *site;        /* of a site line */
    struct workload_arrivals *arrivals; /* of an arrivals line */
};

static bool has_key(const struct line *l, const char *name)
{
    for (size_t i = 0; i < l->key_count; i++) {
        if (strcmp(l->keys[i].name, name) == 0) {
            return (l->seen >> i & 1) != 0;
        }
    }
    UNREACHABLE("no such key");
}

/* Returns the next word of *rest; blanks within parentheses belong to it. Empty at the line's end
 * or a comment. */
static struct slice next_word(struct slice *rest)
{
    struct slice word = slice_trim(*rest);
    size_t len = 0, depth = 0;

    if (word.len > 0 && word.ptr[0] == '#') {
        word.len = 0;
    }
    while (len < word.len && (depth > 0 || memchr(" \t\r", word.ptr[len], 3) == NULL)) {
        depth += word.ptr[len] == '(';
        depth -= word.ptr[len] == ')' && depth > 0;
        len++;
    }
    *rest = slice_skip(word, len);
    return slice_of(word.ptr, len);
}

static bool take_simple(struct reader *r, const struct key *k, void *member, struct slice text)
{
    uint64_t count = 0;

    switch (k->type) {
    case KEY_INTERVAL:
        return take_interval(r, text, member);
    case KEY_COUNT:
        if (!take_count(r, text, k->max, &count)) {
            return false;
        }
        *(uint32_t *)member = (uint32_t)count;
        return true;
    case KEY_COUNT_LONG:
        return take_count(r, text, k->max, member);
    case KEY_SIZE:
        return size_parse(text, member) || refuse(r, text, "a size such as 500, 4k or 10M is");
    case KEY_DOWN:
        return take_down(r, text, member);
    case KEY_PERCENT:
        return take_percent(r, text, member);
    case KEY_DISTRIBUTION:
        return take_distribution(r, text, (enum quantity)k->max, member);
    case KEY_BAD:
    case KEY_OUTAGE:
    case KEY_LIMIT:
    case KEY_CLASS:
    case KEY_AT:
    case KEY_RATE:
    case KEY_EVERY:
    case KEY_TO:
        break;
    }
    UNREACHABLE("the others need more than a place");
}

static bool take_value(struct reader *r, const struct key *k, struct line *l, struct slice text)
{
    struct workload_arrivals *a = l->arrivals;
    double number = 1;
    int64_t us = 0;

    switch (k->type) {
    case KEY_BAD:
        return take_bad(r, text, l->site);
    case KEY_OUTAGE:
        return take_outage(r, text, l->site);
    case KEY_LIMIT:
        return take_rate(r, text, &l->site->limit, &l->site->limit_us);
    case KEY_CLASS:
        if (!take_name(r, text)) {
            return false;
        }
        a->class = class_need(r->w, text);
        a->classed = true;
        return true;
    case KEY_AT:
        a->rhythm = WORKLOAD_BURST;
        return take_interval(r, text, &a->from_us);
    case KEY_RATE:
        a->rhythm = WORKLOAD_POISSON;
        if (!take_rate(r, text, &number, &us)) {
            return false;
        }
        a->gap_us = (double)us / number;
        return true;
    case KEY_EVERY:
        a->rhythm = WORKLOAD_EVEN;
        if (!take_interval(r, text, &us)) {
            return false;
        }
        a->gap_us = (double)us;
        return us > 0 || refuse(r, text, "an interval above 0 is");
    case KEY_TO:
        return take_population(r, text, a);
    case KEY_INTERVAL:
    case KEY_COUNT:
    case KEY_COUNT_LONG:
    case KEY_SIZE:
    case KEY_DOWN:
    case KEY_PERCENT:
    case KEY_DISTRIBUTION:
        return take_simple(r, k, (char *)l->target + k->offset, text);
    }
    UNREACHABLE("a key of no type");
}

static bool refuse_key(struct reader *r, const struct line *l, struct slice name)
{
    struct nearest nearest;
    char expected[96];

    nearest_init(&nearest, name);
    for (size_t i = 0; i < l->key_count; i++) {
        nearest_try(&nearest, l->keys[i].name);
    }
    (void)snprintf(expected, sizeof expected, "a key%s%s%s is", nearest.name != NULL ? " (" : "",
                   nearest.name != NULL ? nearest.name : "", nearest.name != NULL ? "?)" : "");
    return refuse(r, name, expected);
}

static bool take_word(struct reader *r, struct line *l, struct slice word)
{
    struct slice value = word, name = slice_cut(&value, '=');

    if (value.ptr == NULL || value.len == 0) {
        return refuse(r, word, "KEY=VALUE is");
    }
    for (size_t i = 0; i < l->key_count; i++) {
        const struct key *k = &l->keys[i];

        if (slice_equal(name, slice_string(k->name))) {
            if ((l->seen >> i & 1) != 0 && k->type != KEY_OUTAGE) {
                return refuse(r, name, "each key once is");
            }
            l->seen |= UINT32_C(1) << i;
            return take_value(r, k, l, value);
        }
    }
    return refuse_key(r, l, name);
}

static bool take_words(struct reader *r, struct line *l, struct slice rest)
{
    struct slice word;
    bool ok = true;

    while ((word = next_word(&rest)).len > 0) {
        ok &= take_word(r, l, word);
    }
    return ok;
}

/* ---- instructions --------------------------------------------------------------------------- */

static bool check_site(struct reader *r, const struct line *l)
{
    const struct sim_site_model *m = l->site;

    if (m->hosts == 0) {
        return refuse(r, l->where, "at least one host (hosts=1) is");
    }
    if (m->bad > m->hosts) {
        return refuse(r, l->where, "no more bad hosts than hosts are");
    }
    if (m->fail + m->defer > 1) {
        return refuse(r, l->where, "fail and defer of 100% together at most are");
    }
    if (has_key(l, "limit") && m->limit < 1) {
        return refuse(r, l->where, "a limit of 1 or more (60/h rather than 0.1/m) is");
    }
    if (m->slots == 0 && (has_key(l, "backlog") || has_key(l, "full"))) {
        return refuse(r, l->where, "slots=N with backlog and full is");
    }
    return true;
}

static bool take_site(struct reader *r, struct slice rest)
{
    struct sim_site_model model = sim_site_model_default();
    struct line l = {.keys = site_keys,
                     .key_count = sizeof site_keys / sizeof site_keys[0],
                     .target = &model,
                     .site = &model};
    struct workload *w = r->w;
    bool ok;

    l.where = next_word(&rest);
    ok = take_words(r, &l, rest);
    if (l.where.len == 0 || l.where.len > WORKLOAD_NAME_MAX || glob_error(l.where) != NULL) {
        ok = refuse(r, l.where, "a domain or a shell pattern is");
    } else if (w->site_count == WORKLOAD_SITES_MAX) {
        ok = refuse(r, l.where, "at most 10000 sites are");
    } else {
        ok = ok && check_site(r, &l);
    }
    if (!ok) {
        sim_site_model_fini(&model);
        return false;
    }
    w->sites = mem_resize(w->sites, w->site_count + 1, sizeof *w->sites);
    w->sites[w->site_count++] = (struct workload_site){
        .pattern = lower_copy(l.where), .model = model, .tells_latency = has_key(&l, "latency")};
    return true;
}

/* Was exactly one way to arrive chosen, and do the other keys fit it? */
static bool check_arrivals(struct reader *r, const struct line *l, struct workload_arrivals *a)
{
    int ways = has_key(l, "at") + has_key(l, "rate") + has_key(l, "every");

    if (ways != 1) {
        return refuse(r, l->where, "one of at=, rate= and every= is");
    }
    if (a->to.count == 0) {
        return refuse(r, l->where, "to=DOMAIN is");
    }
    if (has_key(l, "at") && (has_key(l, "from") || has_key(l, "until"))) {
        return refuse(r, l->where, "from= and until= with rate= or every= only are");
    }
    if (a->rhythm == WORKLOAD_BURST && !has_key(l, "count")) {
        a->count = 1;
    }
    if (a->until_us <= a->from_us) {
        return refuse(r, l->where, "an end after the beginning is");
    }
    return true;
}

static void arrivals_fini(struct workload_arrivals *a)
{
    mem_free(a->name);
    distribution_fini(&a->recipients);
    distribution_fini(&a->size);
    population_fini(&a->to);
}

static bool arrivals_named(const struct workload *w, const char *name)
{
    for (size_t i = 0; i < w->arrivals_count; i++) {
        if (strcmp(w->arrivals[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool take_arrivals(struct reader *r, struct slice rest)
{
    struct workload_arrivals a = {.until_us = US_FOREVER,
                                  .count = UINT64_MAX,
                                  .recipients = distribution_constant(1),
                                  .size = distribution_constant(4096)};
    struct line l = {.keys = arrivals_keys,
                     .key_count = sizeof arrivals_keys / sizeof arrivals_keys[0],
                     .target = &a,
                     .arrivals = &a};
    struct workload *w = r->w;
    bool ok;

    l.where = next_word(&rest);
    if (!take_name(r, l.where)) {
        return false;
    }
    a.name = lower_copy(l.where);
    ok = take_words(r, &l, rest);
    if (arrivals_named(w, a.name)) {
        ok = refuse(r, l.where, "a name of its own is"); /* the name determines its random
                                                          * numbers */
    }
    if (w->arrivals_count == WORKLOAD_ARRIVALS_MAX) {
        ok = refuse(r, l.where, "at most 1000 lines of arrivals are");
    }
    if (a.to.count > WORKLOAD_POPULATION_MAX - r->population) {
        ok = refuse(r, l.where, "at most 100000 domains in all lines are");
    }
    if (!ok || !check_arrivals(r, &l, &a)) {
        arrivals_fini(&a);
        return false;
    }
    if (!has_key(&l, "class")) {
        a.class = class_need(w, l.where);
    }
    w->arrivals = mem_resize(w->arrivals, w->arrivals_count + 1, sizeof *w->arrivals);
    w->arrivals[w->arrivals_count++] = a;
    r->population += a.to.count;
    return true;
}

static bool take_duration(struct reader *r, struct slice rest)
{
    struct slice word = next_word(&rest), more = next_word(&rest);

    if (r->w->duration_us != US_FOREVER) {
        return refuse(r, word, "one duration is");
    }
    if (more.len > 0) {
        return refuse(r, more, "the end of the line is");
    }
    return take_interval(r, word, &r->w->duration_us);
}

static void take_line(struct reader *r, struct slice line)
{
    struct slice rest = line, word = next_word(&rest);

    if (word.len == 0) {
        return;
    }
    /* Errors were already reported; the next line is read nevertheless. */
    if (slice_equal(word, SLICE("site"))) {
        (void)take_site(r, rest);
    } else if (slice_equal(word, SLICE("arrivals"))) {
        (void)take_arrivals(r, rest);
    } else if (slice_equal(word, SLICE("duration"))) {
        (void)take_duration(r, rest);
    } else {
        (void)refuse(r, word, "site, arrivals or duration is");
    }
}

/* ---- the whole workload --------------------------------------------------------------------- */

/* Checks that all arrivals end. */
static void check_whole(struct reader *r)
{
    const struct workload *w = r->w;

    for (size_t i = 0; i < w->arrivals_count && w->duration_us == US_FOREVER; i++) {
        const struct workload_arrivals *a = &w->arrivals[i];

        if (a->until_us == US_FOREVER && a->count == UINT64_MAX) {
            r->problems++;
            (void)buf_addf(r->errors, /* as in refuse */
                           "%s: error: arrivals %s never end: until=, count= or a duration is "
                           "expected\n",
                           r->name, a->name);
        }
    }
}

struct workload *workload_parse(struct slice text, const char *name, struct buf *errors)
{
    struct workload *w = mem_new(sizeof *w);
    struct reader r = {.w = w, .name = name, .errors = errors};
    struct slice rest = text;

    w->duration_us = US_FOREVER;
    while (rest.ptr != NULL && r.problems < WORKLOAD_PROBLEMS_MAX) {
        struct slice line = slice_cut(&rest, '\n');

        r.line++;
        r.line_start = line.ptr;
        take_line(&r, line);
    }
    check_whole(&r);
    if (r.problems > 0) {
        workload_free(w);
        return NULL;
    }
    return w;
}

static int read_whole(const char *path, struct buf *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd < 0) {
        return -errno;
    }
    for (;;) {
        char *room = buf_room(text, 65536);
        ssize_t n = room == NULL ? -1 : read(fd, room, 65536);

        if (room == NULL) {
            rc = -EFBIG;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0) {
            rc = -errno;
        } else if (n > 0) {
            buf_grew(text, (size_t)n);
            continue;
        }
        break;
    }
    (void)close(fd); /* read only */
    return rc;
}

struct workload *workload_load(const char *path, struct buf *errors)
{
    struct workload *w = NULL;
    struct buf text;
    int rc;

    buf_init(&text, WORKLOAD_FILE_MAX);
    rc = read_whole(path, &text);
    if (rc != 0) {
        (void)buf_addf(errors, "%s: error: %s\n", path, strerror(-rc)); /* as in refuse */
    } else {
        w = workload_parse(buf_slice(&text), path, errors);
    }
    buf_fini(&text);
    return w;
}

void workload_free(struct workload *w)
{
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < w->site_count; i++) {
        mem_free(w->sites[i].pattern);
        sim_site_model_fini(&w->sites[i].model);
    }
    for (size_t i = 0; i < w->arrivals_count; i++) {
        arrivals_fini(&w->arrivals[i]);
    }
    for (size_t i = 0; i < w->class_count; i++) {
        mem_free(w->classes[i]);
    }
    mem_free(w->sites);
    mem_free(w->arrivals);
    mem_free(w->classes);
    mem_free(w);
}

const struct workload_site *workload_site_find(const struct workload *w, struct slice host)
{
    for (size_t i = 0; i < w->site_count; i++) {
        if (glob_match(slice_string(w->sites[i].pattern), host)) {
            return &w->sites[i];
        }
    }
    return NULL;
}

uint32_t workload_draw_domain(const struct workload_population *p, struct rng *rng)
{
    double x;
    uint32_t low = 0, high = p->count - 1;

    if (p->count == 1) {
        return 0;
    }
    x = rng_double(rng) * p->cumulative[p->count - 1];
    while (low < high) { /* finds the first whose cumulative weight is above x */
        uint32_t middle = low + (high - low) / 2;

        if (p->cumulative[middle] > x) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}
