#include "sts.h"

/* Maximum length of a name in the DNS (RFC 1035, 2.3.4), in text. */
#define NAME_LEN_MAX 253u

#define RECORD_VERSION SLICE("v=STSv1")

/* Does the record begin as an MTA-STS record? */
static bool is_record(struct slice record, struct slice *ret_rest)
{
    if (!slice_starts(record, RECORD_VERSION)) {
        return false;
    }
    *ret_rest = slice_trim(slice_skip(record, RECORD_VERSION.len));
    return ret_rest->len > 0 && ret_rest->ptr[0] == ';';
}

bool sts_id_valid(struct slice id)
{
    for (size_t i = 0; i < id.len; i++) {
        if (!ascii_is_alnum(id.ptr[i])) {
            return false;
        }
    }
    return id.len >= 1 && id.len <= STS_ID_MAX;
}

bool sts_record_find(const struct slice *records, size_t count, struct slice *ret_id)
{
    struct slice rest = slice_of(NULL, 0), id = slice_of(NULL, 0);
    size_t found = 0, ids = 0;

    for (size_t i = 0; i < count; i++) {
        struct slice fields;

        if (is_record(records[i], &fields)) {
            rest = fields;
            found++;
        }
    }
    if (found != 1) {
        return false;
    }
    while (rest.ptr != NULL) {
        struct slice field = slice_trim(slice_cut(&rest, ';'));

        if (slice_starts(field, SLICE("id="))) {
            id = slice_skip(field, 3);
            ids++;
        }
    }
    *ret_id = id;
    return ids == 1 && sts_id_valid(id);
}

/* Is this a name of labels with letters, digits, `-` and `_`? */
static bool is_name(struct slice name, size_t max)
{
    size_t label = 0;

    if (name.len == 0 || name.len > max) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];

        if (c == '.' ? label == 0 : !(ascii_is_alnum(c) || c == '-' || c == '_')) {
            return false;
        }
        label = c == '.' ? 0 : label + 1;
        if (label > 63) {
            return false;
        }
    }
    return label > 0;
}

bool sts_domain_valid(struct slice domain)
{
    return is_name(domain, NAME_LEN_MAX - (sizeof STS_RECORD_PREFIX - 1));
}

/* Is this a host name, possibly after "*."? */
static bool is_pattern(struct slice mx)
{
    return is_name(slice_starts(mx, SLICE("*.")) ? slice_skip(mx, 2) : mx, NAME_LEN_MAX);
}

/* Fields seen so far, among those that must occur once. */
enum seen { SEEN_VERSION = 1, SEEN_MODE = 2, SEEN_MAX_AGE = 4 };

/* Processes one line; of a field that should occur once, the first line counts. Returns NULL, or
 * the error. */
static const char *take_field(struct sts_policy *p, unsigned *seen, struct slice name,
                              struct slice value)
{
    unsigned long long number;

    if (slice_equal(name, SLICE("version")) && (*seen & SEEN_VERSION) == 0) {
        *seen |= SEEN_VERSION;
        return slice_equal(value, SLICE("STSv1")) ? NULL : "its version is not STSv1";
    }
    if (slice_equal(name, SLICE("mode")) && (*seen & SEEN_MODE) == 0) {
        *seen |= SEEN_MODE;
        if (slice_equal(value, SLICE("enforce"))) {
            p->mode = STS_ENFORCE;
        } else if (slice_equal(value, SLICE("testing"))) {
            p->mode = STS_TESTING;
        } else if (!slice_equal(value, SLICE("none"))) {
            return "its mode is none of enforce, testing and none";
        }
        return NULL;
    }
    if (slice_equal(name, SLICE("max_age")) && (*seen & SEEN_MAX_AGE) == 0) {
        *seen |= SEEN_MAX_AGE;
        if (value.len > 10 || !slice_number(value, STS_MAX_AGE_MAX, &number)) {
            return "its max_age is no number of 0 to 31557600";
        }
        p->max_age = (uint32_t)number;
        return NULL;
    }
    if (slice_equal(name, SLICE("mx"))) {
        if (!is_pattern(value)) {
            return "an mx is no host name, and none after `*.'";
        }
        if (p->mx_count == STS_MX_MAX) {
            return "it has more than 100 mx";
        }
        p->mx[p->mx_count++] = value;
    }
    return NULL; /* unknown fields are ignored (RFC 8461, 3.2) */
}

bool sts_policy_parse(struct slice text, struct sts_policy *ret_policy, const char **ret_why)
{
    unsigned seen = 0;

    *ret_policy = (struct sts_policy){.mode = STS_NONE};
    *ret_why = text.len > STS_POLICY_MAX ? "it is longer than 64 KiB" : NULL;
    while (text.len > 0 && *ret_why == NULL) {
        struct slice value = slice_trim(slice_cut(&text, '\n')), name;

        if (value.len == 0) {
            continue;
        }
        name = slice_cut(&value, ':');
        *ret_why = value.ptr == NULL ? "a line has no colon"
                                     : take_field(ret_policy, &seen, name, slice_trim(value));
    }
    if (*ret_why == NULL && seen != (SEEN_VERSION | SEEN_MODE | SEEN_MAX_AGE)) {
        *ret_why = (seen & SEEN_VERSION) == 0 ? "it has no version"
                   : (seen & SEEN_MODE) == 0  ? "it has no mode"
                                              : "it has no max_age";
    }
    if (*ret_why == NULL && ret_policy->mode != STS_NONE && ret_policy->mx_count == 0) {
        *ret_why = "it has no mx";
    }
    return *ret_why == NULL;
}

const char *sts_mode_name(enum sts_mode mode)
{
    static const char *const names[] = {
        [STS_NONE] = "none", [STS_TESTING] = "testing", [STS_ENFORCE] = "enforce"};

    return names[mode];
}

_Static_assert(STS_MX_MAX *(253 + sizeof "mx: *.\n") + 100 <= STS_POLICY_MAX, "it has room");

bool sts_policy_put(const struct sts_policy *policy, struct buf *out)
{
    bool ok = buf_addf(out, "version: STSv1\nmode: %s\nmax_age: %u\n", sts_mode_name(policy->mode),
                       policy->max_age);

    for (size_t i = 0; i < policy->mx_count; i++) {
        ok = ok && buf_addf(out, "mx: %.*s\n", SLICE_ARGS(policy->mx[i]));
    }
    return ok;
}

bool sts_policy_allows(const struct sts_policy *policy, struct slice host)
{
    if (host.len > 0 && host.ptr[host.len - 1] == '.') {
        host.len--;
    }
    for (size_t i = 0; i < policy->mx_count; i++) {
        struct slice mx = policy->mx[i], name = host;

        if (slice_starts(mx, SLICE("*."))) {
            size_t label = slice_find(host, '.');

            mx = slice_skip(mx, 2);
            name = label == 0 || label == host.len ? slice_of("", 0) : slice_skip(host, label + 1);
        }
        if (slice_equal_nocase(mx, name)) {
            return true;
        }
    }
    return false;
}
