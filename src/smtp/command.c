#include "command.h"

#include "envelope.h"
#include "xtext.h"

#define SYNTAX_PARAMETER "5.5.4"
#define SIZE_DIGITS_MAX  20 /* RFC 1870, 4 */

/* ESMTP parameter of a command, found by name in the command's table; `parse` writes its part of
 * the result. */
struct parameter {
    const char *name;
    struct refusal (*parse)(struct slice value, const struct command_rules *rules, void *result);
    bool has_value;
};

static struct slice skip_blanks(struct slice s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s = slice_skip(s, 1);
    }
    return s;
}

static struct refusal bad_value(const char *text)
{
    return (struct refusal){501, SYNTAX_PARAMETER, text, NULL};
}

static struct refusal parse_parameter(struct slice word, const struct parameter *table,
                                      size_t count, const struct command_rules *rules,
                                      unsigned *seen, void *result)
{
    size_t equals = slice_find(word, '=');
    struct slice name = slice_of(word.ptr, equals);
    bool has_value = equals < word.len;

    for (size_t i = 0; i < count; i++) {
        if (!slice_equal_nocase(name, slice_string(table[i].name))) {
            continue;
        }
        if ((*seen & 1u << i) != 0) {
            return bad_value("Parameter given twice");
        }
        *seen |= 1u << i;
        if (has_value != table[i].has_value) {
            return bad_value(has_value ? "Parameter takes no value" : "Parameter needs a value");
        }
        return table[i].parse(slice_skip(word, equals + 1), rules, result);
    }
    return (struct refusal){555, SYNTAX_PARAMETER, "Parameter not recognized", NULL};
}

/* Parses the words after the path. */
static struct refusal parse_parameters(struct slice rest, const struct parameter *table,
                                       size_t count, const struct command_rules *rules,
                                       void *result)
{
    struct refusal refusal = REFUSAL_NONE;
    unsigned seen = 0;

    for (rest = skip_blanks(rest); rest.len > 0 && refusal.code == 0; rest = skip_blanks(rest)) {
        struct slice word = slice_of(rest.ptr, slice_find(rest, ' '));

        word.len = slice_find(word, '\t');
        refusal = parse_parameter(word, table, count, rules, &seen, result);
        rest = slice_skip(rest, word.len);
    }
    return refusal;
}

/* Parses the path after `keyword` ("FROM:" or "TO:"); *ret_rest is the text after it. The caller
 * checks the character set, because SMTPUTF8 comes after the path. */
static enum address_error parse_path(struct slice argument, size_t keyword_len, unsigned options,
                                     const struct command_rules *rules, struct address *ret_address,
                                     struct slice *ret_rest)
{
    struct slice path = slice_skip(argument, keyword_len);
    enum address_error error;
    size_t used;

    options |= ADDRESS_UTF8;
    if (rules->no_domain) {
        options |= ADDRESS_NO_DOMAIN;
    }
    if (!rules->strict_paths) {
        options |= ADDRESS_NO_BRACKETS;
        path = skip_blanks(path);
    }
    error = address_parse_path(path, options, ret_address, &used);
    if (error != ADDRESS_OK) {
        return error;
    }
    *ret_rest = slice_skip(path, used);
    if (ret_rest->len > 0 && ret_rest->ptr[0] != ' ') {
        return ADDRESS_NOT_A_PATH; /* <a@b>c: a blank must precede parameters */
    }
    return ADDRESS_OK;
}

static bool is_utf8_address(const struct address *address)
{
    return !address_is_ascii(address->local) || !address_is_ascii(address->domain);
}

static struct refusal needs_smtputf8(void)
{
    return (struct refusal){553, "5.6.7", address_error_text(ADDRESS_NEEDS_UTF8), NULL};
}

static struct refusal mail_size(struct slice value, const struct command_rules *rules, void *result)
{
    struct command_mail *mail = result;
    unsigned long long size;

    if (value.len == 0 || value.len > SIZE_DIGITS_MAX) {
        return bad_value("Bad SIZE");
    }
    for (size_t i = 0; i < value.len; i++) {
        if (!ascii_is_digit(value.ptr[i])) {
            return bad_value("Bad SIZE");
        }
    }
    if (!slice_number(value, UINT64_MAX, &size)) {
        size = UINT64_MAX;
    }
    if (rules->message_bytes > 0 && size > rules->message_bytes) {
        return (struct refusal){552, "5.3.4", "Message size exceeds fixed limit", NULL};
    }
    mail->size = size;
    return REFUSAL_NONE;
}

static struct refusal mail_body(struct slice value, const struct command_rules *rules, void *result)
{
    struct command_mail *mail = result;

    (void)rules; /* 8BITMIME is always offered */
    if (slice_equal_nocase(value, SLICE("8BITMIME"))) {
        mail->flags |= ENVELOPE_8BIT;
    } else if (!slice_equal_nocase(value, SLICE("7BIT"))) {
        return bad_value("BODY is neither 7BIT nor 8BITMIME");
    }
    return REFUSAL_NONE;
}

static struct refusal mail_smtputf8(struct slice value, const struct command_rules *rules,
                                    void *result)
{
    struct command_mail *mail = result;

    (void)value; /* no value */
    if (!rules->smtputf8) {
        return (struct refusal){555, SYNTAX_PARAMETER, "SMTPUTF8 is not offered", NULL};
    }
    mail->flags |= ENVELOPE_SMTPUTF8;
    return REFUSAL_NONE;
}

static struct refusal dsn_not_offered(void)
{
    return (struct refusal){555, SYNTAX_PARAMETER, "DSN is not offered", NULL};
}

static struct refusal mail_ret(struct slice value, const struct command_rules *rules, void *result)
{
    struct command_mail *mail = result;

    if (!rules->dsn) {
        return dsn_not_offered();
    }
    if (slice_equal_nocase(value, SLICE("FULL"))) {
        mail->flags |= ENVELOPE_RET_FULL;
    } else if (slice_equal_nocase(value, SLICE("HDRS"))) {
        mail->flags |= ENVELOPE_RET_HDRS;
    } else {
        return bad_value("RET is neither FULL nor HDRS");
    }
    return REFUSAL_NONE;
}

static struct refusal mail_envid(struct slice value, const struct command_rules *rules,
                                 void *result)
{
    struct command_mail *mail = result;

    if (!rules->dsn) {
        return dsn_not_offered();
    }
    if (value.len == 0 || value.len > DSN_ENVID_MAX || !xtext_valid(value)) {
        return bad_value("ENVID is empty, too long or not xtext");
    }
    mail->envid = value;
    return REFUSAL_NONE;
}

/* Checks the original submitter of the message (RFC 4954, 5). No client is trusted with this value,
 * so it is treated as "<>"; it must be accepted where AUTH is offered. */
static struct refusal mail_auth(struct slice value, const struct command_rules *rules, void *result)
{
    (void)result;
    if (!rules->auth) {
        return (struct refusal){555, SYNTAX_PARAMETER, "AUTH is not offered", NULL};
    }
    return xtext_valid(value) ? REFUSAL_NONE : bad_value("AUTH is not xtext");
}

struct refusal command_parse_mail(struct slice argument, const struct command_rules *rules,
                                  struct command_mail *ret_mail)
{
    static const struct parameter parameters[] = {
        {"SIZE", mail_size, true}, {"BODY", mail_body, true},   {"SMTPUTF8", mail_smtputf8, false},
        {"RET", mail_ret, true},   {"ENVID", mail_envid, true}, {"AUTH", mail_auth, true},
    };
    struct command_mail mail = {.envid = slice_of("", 0)};
    enum address_error error;
    struct refusal refusal;
    struct slice rest;

    if (!slice_starts_nocase(argument, SLICE("FROM:"))) {
        return bad_value("Syntax: MAIL FROM:<address>");
    }
    error = parse_path(argument, 5, ADDRESS_NULL, rules, &mail.sender, &rest);
    if (error != ADDRESS_OK) {
        return (struct refusal){501, "5.1.7", "Bad sender address", address_error_text(error)};
    }
    refusal =
        parse_parameters(rest, parameters, sizeof parameters / sizeof parameters[0], rules, &mail);
    if (refusal.code != 0) {
        return refusal;
    }
    if (is_utf8_address(&mail.sender) && (mail.flags & ENVELOPE_SMTPUTF8) == 0) {
        return needs_smtputf8();
    }
    *ret_mail = mail;
    return REFUSAL_NONE;
}

/* Result of RCPT's parameters. MAIL determines whether ORCPT may contain UTF-8. */
struct rcpt_result {
    struct command_rcpt rcpt;
    bool smtputf8;
};

static struct refusal rcpt_notify(struct slice value, const struct command_rules *rules,
                                  void *result)
{
    static const struct {
        const char *name;
        unsigned notify;
    } words[] = {
        {"NEVER", NOTIFY_NEVER},
        {"SUCCESS", NOTIFY_SUCCESS},
        {"FAILURE", NOTIFY_FAILURE},
        {"DELAY", NOTIFY_DELAY},
    };
    struct rcpt_result *to = result;
    unsigned notify = 0;

    if (!rules->dsn) {
        return dsn_not_offered();
    }
    /* RFC 3461, 4.1: a list of RFC 822, whose elements may be empty, or repeated. */
    while (value.ptr != NULL) {
        struct slice word = slice_cut(&value, ',');
        bool known = word.len == 0;

        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            if (slice_equal_nocase(word, slice_string(words[i].name))) {
                notify |= words[i].notify;
                known = true;
            }
        }
        if (!known) {
            return bad_value("Bad word in NOTIFY");
        }
    }
    if (notify == 0) {
        return bad_value("NOTIFY is empty");
    }
    if ((notify & NOTIFY_NEVER) != 0 && notify != NOTIFY_NEVER) {
        return bad_value("NOTIFY=NEVER stands alone");
    }
    to->rcpt.notify = notify;
    return REFUSAL_NONE;
}

/* Is this an address type (RFC 3461, 4.2), an atom? */
static bool is_address_type(struct slice type)
{
    for (size_t i = 0; i < type.len; i++) {
        if (!ascii_is_alnum(type.ptr[i]) && type.ptr[i] != '-') {
            return false;
        }
    }
    return type.len > 0;
}

static struct refusal rcpt_orcpt(struct slice value, const struct command_rules *rules,
                                 void *result)
{
    struct rcpt_result *to = result;
    size_t semicolon = slice_find(value, ';');
    struct slice type = slice_of(value.ptr, semicolon);
    struct slice text = slice_skip(value, semicolon + 1);

    if (!rules->dsn) {
        return dsn_not_offered();
    }
    if (value.len > DSN_ORCPT_MAX || !is_address_type(type) || text.len == 0) {
        return bad_value("ORCPT is too long or not of the form type;address");
    }
    if (!xtext_valid(text)) {
        /* RFC 6533, section 3: with type utf-8 and SMTPUTF8, UTF-8 may be unencoded. */
        if (!to->smtputf8 || !slice_equal_nocase(type, SLICE("utf-8")) ||
            !address_utf8_valid(text)) {
            return bad_value("ORCPT is not xtext");
        }
    }
    to->rcpt.orcpt = value;
    return REFUSAL_NONE;
}

struct refusal command_parse_rcpt(struct slice argument, const struct command_rules *rules,
                                  bool smtputf8, struct command_rcpt *ret_rcpt)
{
    static const struct parameter parameters[] = {
        {"NOTIFY", rcpt_notify, true},
        {"ORCPT", rcpt_orcpt, true},
    };
    struct rcpt_result result = {.rcpt.orcpt = slice_of("", 0), .smtputf8 = smtputf8};
    enum address_error error;
    struct refusal refusal;
    struct slice rest;

    if (!slice_starts_nocase(argument, SLICE("TO:"))) {
        return bad_value("Syntax: RCPT TO:<address>");
    }
    error = parse_path(argument, 3, ADDRESS_POSTMASTER, rules, &result.rcpt.recipient, &rest);
    if (error != ADDRESS_OK) {
        return (struct refusal){501, "5.1.3", "Bad recipient address", address_error_text(error)};
    }
    if (is_utf8_address(&result.rcpt.recipient) && !smtputf8) {
        return needs_smtputf8();
    }
    refusal = parse_parameters(rest, parameters, sizeof parameters / sizeof parameters[0], rules,
                               &result);
    if (refusal.code == 0) {
        *ret_rcpt = result.rcpt;
    }
    return refusal;
}

bool command_parse_bdat(struct slice argument, uint64_t *ret_size, bool *ret_last)
{
    size_t digits = slice_find(argument, ' ');
    struct slice last = slice_trim(slice_skip(argument, digits));
    unsigned long long size;

    if (!slice_number(slice_of(argument.ptr, digits), UINT64_MAX, &size) ||
        (last.len > 0 && !slice_equal_nocase(last, SLICE("LAST")))) {
        return false;
    }
    *ret_size = size;
    *ret_last = last.len > 0;
    return true;
}

bool command_helo_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] <= ' ' || name.ptr[i] > '~') {
            return false;
        }
    }
    return name.len > 0;
}
