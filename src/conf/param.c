#include "param.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "callout_target.h"
#include "check.h"
#include "conf.h"
#include "dialect.h"
#include "envelope.h"
#include "match.h"
#include "nearest.h"
#include "nexthop.h"

/* ---- the table ------------------------------------------------------------------------------ */

#define MEMBER_NAME_STRING(name)   name
#define MEMBER_NAME_LIST(name)     name
#define MEMBER_NAME_BOOL(name)     name
#define MEMBER_NAME_INT(name)      name
#define MEMBER_NAME_SIZE(name)     name
#define MEMBER_NAME_TIME(name)     name##_us
#define MEMBER_NAME_CHOICE(name)   name
#define MEMBER_NAME_FEEDBACK(name) name

#define ROW(type, owner, member, ...)                                                              \
    {PARAM_##type, __VA_ARGS__, offsetof(struct owner, member),                                    \
     sizeof(((struct owner *)NULL)->member)},
#define CONF_ROW(type, name, unit, preset, min, max, meaning)                                      \
    ROW(type, conf, MEMBER_NAME_##type(name), #name, NULL, unit, preset, meaning, min, max)
#define POLICY_ROW(type, name, default_name, unit, preset, min, max, meaning)                      \
    ROW(type, policy, MEMBER_NAME_##type(name), default_name, #name, unit, preset, meaning, min,   \
        max)

const struct param param_table[] = {CONF_PARAMS(CONF_ROW) POLICY_PARAMS(POLICY_ROW)};

static_assert(sizeof param_table / sizeof param_table[0] <= PARAM_COUNT_MAX,
              "arrays by parameter are too short");

#define ONE_CONF(...)   +1
#define ONE_POLICY(...) +1

const size_t param_policy_first = 0 CONF_PARAMS(ONE_CONF);
const size_t param_count = 0 CONF_PARAMS(ONE_CONF) POLICY_PARAMS(ONE_POLICY);

/* Postfix's names of parameters that have another name here. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"2bounce_notice_recipient", "notify_double_bounce"},
    {"mydestination", "local_domains"},
    {"mynetworks", "relay_networks"},
    {"lmtp_lhlo_timeout", "lmtp_helo_timeout"},
};

static const struct {
    const char *alias, *word;
} clause_aliases[] = {
    {"maxtransport", "maxta"},
    {"maxtransports", "maxta"},
    {"maxchannels", "maxchannel"},
    {"maxrings", "maxring"},
};

/* ---- finding -------------------------------------------------------------------------------- */

static struct slice without_alias(struct slice name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (slice_equal(name, slice_string(aliases[i].alias))) {
            return slice_string(aliases[i].name);
        }
    }
    return name;
}

const struct param *param_find(struct slice name)
{
    name = without_alias(name);
    for (size_t i = 0; name.len > 0 && i < param_count; i++) {
        if (slice_equal(name, slice_string(param_table[i].name))) {
            return &param_table[i];
        }
    }
    return NULL;
}

const struct param *param_find_in_clause(struct slice name)
{
    for (size_t i = 0; i < sizeof clause_aliases / sizeof clause_aliases[0]; i++) {
        if (slice_equal_nocase(name, slice_string(clause_aliases[i].alias))) {
            name = slice_string(clause_aliases[i].word);
        }
    }
    for (size_t i = param_policy_first; i < param_count; i++) {
        if (slice_equal_nocase(name, slice_string(param_table[i].suffix))) {
            return &param_table[i];
        }
    }
    return NULL;
}

const struct param *param_find_override(struct slice name, struct slice *ret_transport)
{
    const struct param *best = NULL;
    size_t best_len = 0;

    name = without_alias(name);
    for (size_t i = param_policy_first; i < param_count; i++) {
        const struct param *p = &param_table[i];
        size_t len = strlen(p->suffix);

        if (p->name[0] != '\0' && len > best_len && name.len > len + 1 &&
            name.ptr[name.len - len - 1] == '_' &&
            slice_equal(slice_skip(name, name.len - len), slice_string(p->suffix))) {
            best = p;
            best_len = len;
        }
    }
    if (best != NULL) {
        *ret_transport = slice_of(name.ptr, name.len - best_len - 1);
    }
    return best;
}

/* Parameters of Postfix without a parameter of that name here, and their replacement. */
static const struct {
    const char *name, *ours;
} translations[] = {
    {"smtpd_use_tls", "smtpd_tls_security_level, and tls_cert (and tls_key)"},
    {"smtpd_tls_cert_file", "tls_cert"},
    {"smtpd_tls_chain_files", "tls_cert"},
    {"smtpd_tls_key_file", "tls_key"},
    {"smtp_use_tls", "smtp_tls_security_level"},
    {"inet_interfaces", "listen"},
    {"queue_directory", "state_directory"},
    {"home_mailbox", "maildir= in a clause local/*"},
    {"default_privs", "user= in a clause"},
};

const char *param_translation(struct slice name)
{
    for (size_t i = 0; i < sizeof translations / sizeof translations[0]; i++) {
        if (slice_equal_nocase(name, slice_string(translations[i].name))) {
            return translations[i].ours;
        }
    }
    return NULL;
}

bool param_is_harmless(struct slice name)
{
    static const char *const names[] = {
        /* ---- places of Postfix's own files, and names of its programs */
        "alias_database",
        "command_directory",
        "daemon_directory",
        "data_directory",
        "html_directory",
        "mailq_path",
        "manpage_directory",
        "meta_directory",
        "newaliases_path",
        "readme_directory",
        "sample_directory",
        "sendmail_path",
        "setgid_group",
        "shlib_directory",
        "smtp_tls_session_cache_database",
        "smtpd_tls_session_cache_database",
        "tls_random_source",
        /* ---- behaviour that is always so here, or never */
        "append_at_myorigin",
        "append_dot_mydomain",
        "biff",
        "compatibility_level",
        "debug_peer_level",
        "debugger_command",
        "smtp_sasl_auth_enable",
        "smtp_sasl_security_options",
        "smtp_sasl_tls_security_options",
        "smtp_tls_loglevel",
        "smtp_tls_note_starttls_offer",
        "smtpd_delay_reject",
        "smtpd_helo_required",
        "smtpd_tls_loglevel",
        "smtpd_tls_received_header",
        "smtputf8_enable",
        "unknown_local_recipient_reject_code",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (slice_equal(name, slice_string(names[i]))) {
            return true;
        }
    }
    return false;
}

void param_add_nearest(struct buf *out, struct slice name, bool in_clause)
{
    const char *translation = in_clause ? NULL : param_translation(name);
    struct nearest n;

    if (translation != NULL) {
        (void)buf_addf(out, ", see %s", translation); /* errors are sticky */
        return;
    }

    nearest_init(&n, name);
    for (size_t i = in_clause ? param_policy_first : 0; i < param_count; i++) {
        const char *known = in_clause ? param_table[i].suffix : param_table[i].name;

        if (known[0] != '\0') {
            nearest_try(&n, known);
        }
    }
    if (n.name != NULL) {
        (void)buf_addf(out, ", did you mean `%s'?", n.name); /* errors are sticky */
    }
}

bool param_is_idle(const struct param *p)
{
    return slice_starts(slice_string(p->meaning), SLICE(NO_EFFECT));
}

/* ---- valid texts ---------------------------------------------------------------------------- */

static bool network_ok(struct slice text)
{
    struct cidr c;

    return cidr_parse(text, &c);
}

bool param_is_table(struct slice text)
{
    size_t len = 0;

    while (len < text.len && (ascii_is_alnum(text.ptr[len]))) {
        len++;
    }
    return len > 0 && len < text.len && text.ptr[len] == ':';
}

/* A domain has no slash; a text with a slash is a file that Postfix would read. */
static bool domain_pattern_ok(struct slice text)
{
    return glob_error(text) == NULL && !param_is_table(text) && slice_find(text, '/') == text.len;
}

/* Tables of these two types are made from a text file of their name, which is read here. */
static bool file_ok(struct slice text)
{
    return !param_is_table(text) || slice_starts(text, SLICE("hash:")) ||
           slice_starts(text, SLICE("texthash:"));
}

/* A table of networks is a file in order, or a hash. */
static bool network_file_ok(struct slice text)
{
    return file_ok(text) || slice_starts(text, SLICE("cidr:"));
}

static bool pattern_file_ok(struct slice text)
{
    return !param_is_table(text) || slice_starts(text, SLICE("pcre:"));
}

static bool recipients_ok(struct slice text)
{
    return callout_element(text) || slice_equal(text, SLICE(RECIPIENTS_USERS)) || file_ok(text);
}

static bool mail_address_ok(struct slice text)
{
    size_t at = slice_find_last(text, '@');

    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.ptr[i] <= ' ' || strchr("<>(),;", text.ptr[i]) != NULL) {
            return false;
        }
    }
    return at > 0 && at + 1 < text.len && text.len <= ADDRESS_MAX;
}

/* Is the text valid in a greeting and after an `@`? Underscores and 8-bit names are in use. */
static bool name_ok(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        if (!isalnum(c) && c < 0x80 && strchr("-._[]:", c) == NULL) {
            return false;
        }
    }
    return true;
}

static bool nexthop_ok(struct slice text)
{
    struct nexthop n;

    return nexthop_parse(text, &n);
}

static bool listen_ok(struct slice text)
{
    struct listen_options options = {.login = false};
    struct listen_address l;

    return listen_parse(text, &l) || listen_option_parse(text, &options);
}

/* RFC 5322, 2.2: printable, no blank, no colon. */
static bool field_name_ok(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~' || text.ptr[i] == ':') {
            return false;
        }
    }
    return true;
}

static bool address_port_ok(struct slice text)
{
    struct nexthop n;

    return nexthop_parse(text, &n) && n.is_address;
}

static bool ipv4_ok(struct slice text)
{
    unsigned char ip[16];

    return ip_parse(text, ip) && slice_find(text, ':') == text.len;
}

static bool ipv6_ok(struct slice text)
{
    unsigned char ip[16];

    return ip_parse(text, ip) && slice_find(text, ':') < text.len;
}

static bool multiple_ok(struct slice text)
{
    unsigned long long n;

    return slice_number(text, UINT32_MAX, &n);
}

static bool interval_ok(struct slice text)
{
    int64_t us;

    return interval_parse(text, US_PER_S, &us) && us <= PARAM_LIFETIME_MAX;
}

static bool protocol_ok(struct slice text)
{
    return choice_parse(text, "ipv4|ipv6|all") >= 0;
}

static bool notify_class_ok(struct slice text)
{
    return choice_parse(text, "bounce|2bounce|data|delay|policy|protocol|resource|software") >= 0;
}

static bool filter_class_ok(struct slice text)
{
    return choice_parse(text, "bounce|notify") >= 0;
}

static bool spool_ok(struct slice text)
{
    return (slice_starts(text, SLICE(CONF_SPOOL_SQLITE)) && text.len > strlen(CONF_SPOOL_SQLITE)) ||
           (slice_starts(text, SLICE(CONF_SPOOL_CLUSTER)) &&
            text.len > strlen(CONF_SPOOL_CLUSTER)) ||
           dialects_know_spool(text);
}

static bool log_ok(struct slice text)
{
    return slice_equal(text, SLICE("stderr")) || slice_equal(text, SLICE("syslog")) ||
           (slice_starts(text, SLICE("postlog:/")) && text.len > 9) ||
           (slice_starts(text, SLICE("file:")) && text.len > 5);
}

static bool maildir_ok(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '%') {
            i++;
            if (i == text.len || (text.ptr[i] != 'u' && text.ptr[i] != 'd' && text.ptr[i] != '%')) {
                return false;
            }
        }
    }
    return text.len > 0;
}

/* Unit of a list in which a 0 is valid only alone. A lone 0 makes mail due again at once. */
#define MULTIPLES_UNIT "positive numbers, or 0 alone"

/* Units of STRING and LIST with a syntax. An empty STRING is always valid, except where
 * `needed`. */
static const struct {
    const char *unit;
    bool (*ok)(struct slice);
    size_t elements_max; /* maximum elements of a LIST; 0: no limit */
    bool needed;
} syntaxes[] = {
    {"address/bits", network_ok, 0, false},
    {"domain pattern", domain_pattern_ok, 0, false},
    {"file", file_ok, 0, false},
    {"file or cidr:file", network_file_ok, 0, false},
    {"file or pcre:file", pattern_file_ok, 0, false},
    {RECIPIENTS_UNIT, recipients_ok, 0, false},
    {"mail address", mail_address_ok, 0, false},
    {"host name", name_ok, 0, false},
    {"domain name", name_ok, 0, false},
    {"nexthop", nexthop_ok, 0, false},
    {LISTEN_UNIT, listen_ok, 0, false},
    {"name of a header field", field_name_ok, 0, false},
    {"address:port", address_port_ok, 0, false},
    {FILTER_CLASS_UNIT, filter_class_ok, 0, false},
    {"IPv4 address", ipv4_ok, 0, false},
    {"IPv6 address", ipv6_ok, 0, false},
    {MULTIPLES_UNIT, multiple_ok, 100, false},
    {"interval", interval_ok, 4, false},
    {"ipv4, ipv6 or all", protocol_ok, 2, false},
    {"bounce, 2bounce, data, delay, policy, protocol, resource or software", notify_class_ok, 0,
     false},
    {"sqlite:PATH, postgresql:URL, postoffice:DIR or postfix:DIR", spool_ok, 0, true},
    {"stderr, syslog, postlog:PATH or file:PATH", log_ok, 0, true},
    {"mailbox path", maildir_ok, 0, true},
};

static bool text_ok(const struct param *p, struct slice text, size_t elements)
{
    for (size_t i = 0; i < sizeof syntaxes / sizeof syntaxes[0]; i++) {
        if (strcmp(p->unit, syntaxes[i].unit) == 0) {
            return (syntaxes[i].elements_max == 0 || elements <= syntaxes[i].elements_max) &&
                   ((text.len == 0 && !syntaxes[i].needed) || syntaxes[i].ok(text));
        }
    }
    return true;
}

static bool is_octal(const struct param *p)
{
    return strcmp(p->unit, "octal") == 0;
}

static void add_number(struct buf *out, const struct param *p, int64_t n)
{
    switch (p->type) {
    case PARAM_TIME:
        interval_print(out, n);
        break;
    case PARAM_SIZE:
        size_print(out, n);
        break;
    case PARAM_INT:
        (void)buf_addf(out, is_octal(p) ? "0%03llo" : "%lld", (long long)n);
        break;
    case PARAM_STRING:
    case PARAM_LIST:
    case PARAM_BOOL:
    case PARAM_CHOICE:
    case PARAM_FEEDBACK:
        UNREACHABLE("not a number");
    }
}

static void add_choices(struct buf *out, const char *choices)
{
    struct slice rest = slice_string(choices);

    for (bool first = true; rest.ptr != NULL; first = false) {
        struct slice word = slice_cut(&rest, '|');

        (void)buf_addf(out, "%s%.*s",
                       first              ? ""
                       : rest.ptr == NULL ? " or "
                                          : ", ",
                       SLICE_ARGS(word));
    }
}

void param_add_expected(struct buf *out, const struct param *p)
{
    switch (p->type) {
    case PARAM_STRING:
        (void)buf_addf(out, "%s",
                       p->unit[0] == '\0' || strcmp(p->unit, "raw") == 0 ? "a text" : p->unit);
        return;
    case PARAM_LIST:
        (void)buf_addf(out, "a list of %s", p->unit);
        return;
    case PARAM_BOOL:
        (void)buf_add_string(out, "yes or no");
        return;
    case PARAM_CHOICE:
        add_choices(out, p->unit);
        return;
    case PARAM_FEEDBACK:
        (void)buf_add_string(out, "a number from 0 to 1, alone or divided by a number, concurrency "
                                  "or sqrt_concurrency");
        return;
    case PARAM_INT:
        (void)buf_addf(out, is_octal(p) ? "an octal number" : "a number of %s", p->unit);
        break;
    case PARAM_SIZE:
        (void)buf_add_string(out, "a size in bytes, k, M or G");
        break;
    case PARAM_TIME:
        (void)buf_addf(out, "a time in s, m, h, d or w (%s when it has no unit)", p->unit);
        break;
    }
    if (p->min != INT64_MIN) {
        (void)buf_add_string(out, p->max == PARAM_NO_MAX ? ", at least " : " from ");
        add_number(out, p, p->min);
        if (p->max != PARAM_NO_MAX) {
            (void)buf_add_string(out, " to ");
            add_number(out, p, p->max);
        }
    }
}

/* ---- values --------------------------------------------------------------------------------- */

static struct slice next_element(struct slice *rest)
{
    size_t len = 0;

    while (rest->len > 0 && memchr(", \t\r\n", rest->ptr[0], 5) != NULL) {
        *rest = slice_skip(*rest, 1);
    }
    while (len < rest->len && memchr(", \t\r\n", rest->ptr[len], 5) == NULL) {
        len++;
    }
    struct slice element = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len);
    return element;
}

static bool is_zero(struct slice number)
{
    unsigned long long n;

    return slice_number(number, 0, &n);
}

static bool parse_list(const struct param *p, struct slice text, struct pool *pool,
                       struct conf_list *ret_list, struct slice *ret_bad)
{
    size_t count = 0;
    struct slice rest = text, element;

    while ((element = next_element(&rest)).len > 0) {
        bool alone = count == 0 && slice_trim(rest).len == 0;

        count++;
        if (!text_ok(p, element, count) ||
            (!alone && strcmp(p->unit, MULTIPLES_UNIT) == 0 && is_zero(element))) {
            *ret_bad = element;
            return false;
        }
    }
    const char **items = pool_new(pool, count * sizeof *items);
    rest = text;
    for (size_t i = 0; i < count; i++) {
        items[i] = pool_string(pool, next_element(&rest));
    }
    *ret_list = (struct conf_list){items, count};
    return true;
}

static bool parse_octal(struct slice text, int64_t *ret_value)
{
    int64_t n = 0;

    if (text.len == 0 || text.len > 6) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '7') {
            return false;
        }
        n = n * 8 + (text.ptr[i] - '0');
    }
    *ret_value = n;
    return true;
}

/* Parses yes or no, or a number: some files use any number except 0 for yes. */
static bool parse_bool(struct slice text, bool *ret_value)
{
    int64_t n;

    if (yes_no_parse(text, ret_value)) {
        return true;
    }
    if (!integer_parse(text, &n)) {
        return false;
    }
    *ret_value = n != 0;
    return true;
}

static int64_t unit_us(const struct param *p)
{
    switch (p->unit[0]) {
    case 's':
        return US_PER_S;
    case 'h':
        return US_PER_HOUR;
    case 'd':
        return US_PER_DAY;
    default:
        UNREACHABLE("a unit of time that the table does not use");
    }
}

static bool parse_number(const struct param *p, struct slice text, int64_t *ret_value)
{
    int64_t n;
    bool ok = p->type == PARAM_TIME   ? interval_parse(text, unit_us(p), &n)
              : p->type == PARAM_SIZE ? size_parse(text, &n)
              : is_octal(p)           ? parse_octal(text, &n)
                                      : integer_parse(text, &n);

    if (!ok || n < p->min || n > p->max) {
        return false;
    }
    *ret_value = p->min == INT64_MIN && n < 0 ? 0 : n; /* negative values mean 0 */
    return true;
}

bool param_parse(const struct param *p, struct slice text, struct pool *pool, void *base,
                 struct slice *ret_bad)
{
    void *member = (char *)base + p->offset;
    int choice;

    *ret_bad = text;
    switch (p->type) {
    case PARAM_STRING:
        if (!text_ok(p, text, 1)) {
            return false;
        }
        *(const char **)member = pool_string(pool, text);
        return true;
    case PARAM_LIST:
        return parse_list(p, text, pool, member, ret_bad);
    case PARAM_BOOL:
        return parse_bool(text, member);
    case PARAM_INT:
    case PARAM_SIZE:
    case PARAM_TIME:
        return parse_number(p, text, member);
    case PARAM_CHOICE:
        choice = choice_parse(text, p->unit);
        if (choice < 0) {
            return false;
        }
        *(int *)member = choice;
        return true;
    case PARAM_FEEDBACK:
        return feedback_parse(text, member);
    }
    UNREACHABLE("no such type");
}

void param_print(struct buf *out, const struct param *p, const void *base)
{
    const void *member = (const char *)base + p->offset;
    const struct conf_list *list;

    switch (p->type) {
    case PARAM_STRING:
        (void)buf_add_string(out, *(const char *const *)member);
        return;
    case PARAM_LIST:
        list = member;
        for (size_t i = 0; i < list->count; i++) {
            (void)buf_addf(out, "%s%s", i > 0 ? " " : "", list->items[i]);
        }
        return;
    case PARAM_BOOL:
        (void)buf_add_string(out, *(const bool *)member ? "yes" : "no");
        return;
    case PARAM_INT:
    case PARAM_SIZE:
    case PARAM_TIME:
        add_number(out, p, *(const int64_t *)member);
        return;
    case PARAM_CHOICE:
        (void)buf_add(out, choice_name(p->unit, *(const int *)member));
        return;
    case PARAM_FEEDBACK:
        feedback_print(out, member);
        return;
    }
    UNREACHABLE("no such type");
}
