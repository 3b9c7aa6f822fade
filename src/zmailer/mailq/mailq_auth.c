#include "mailq_auth.h"

#include <arpa/inet.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "check.h"
#include "mem.h"

#define RANGES_MAX 100
#define SCRAM_WORD SLICE("{SCRAM-SHA-256}")

const struct mailq_peer mailq_peer_local = {{127, 0, 0, 1}, 4};

struct mailq_range {
    uint8_t address[16];
    unsigned len, bits;
    bool refuse;
};

struct mailq_auth {
    struct mailq_entry *entries;
    size_t count;
};

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
    const char *name;
    struct buf *problems;
    unsigned line;
    const char *line_start;
};

static bool problem(const struct reader *r, struct slice at, const char *expected)
{
    (void)buf_addf(r->problems, "%s:%u:%zu: \"%.*s\": expected %s\n", r->name, r->line,
                   (size_t)(at.ptr - r->line_start) + 1, SLICE_ARGS(at), expected);
    return false;
}

/* Cuts the next word off *s; words are separated by blanks, and by commas if `commas`. Returns an
 * empty slice at the end. */
static struct slice next_word(struct slice *s, bool commas)
{
    size_t from = 0, to;

    while (from < s->len && (s->ptr[from] == ' ' || s->ptr[from] == '\t' || s->ptr[from] == '\r' ||
                             (commas && s->ptr[from] == ','))) {
        from++;
    }
    to = from;
    while (to < s->len && s->ptr[to] != ' ' && s->ptr[to] != '\t' && s->ptr[to] != '\r' &&
           !(commas && s->ptr[to] == ',')) {
        to++;
    }
    struct slice word = slice_of(s->ptr + from, to - from);
    *s = slice_skip(*s, to);
    return word;
}

/* Reads the rights. Unknown words are ignored, as in ZMailer; an entry without a known word is
 * skipped. */
static bool read_rights(const struct reader *r, struct slice text, unsigned *ret_rights)
{
    static const struct {
        const char *word;
        unsigned rights;
    } known[] = {
        {"SNMP", MAILQ_MAY_SNMP}, {"QQ", MAILQ_MAY_QQ},
        {"TT", MAILQ_MAY_TT},     {"ETRN", MAILQ_MAY_ETRN},
        {"KILL", MAILQ_MAY_KILL}, {"REROUTE", MAILQ_MAY_REROUTE},
        {"ALL", MAILQ_MAY_ALL},   {"NONE", 0},
    };
    struct slice rest = text, word;
    bool found = false;

    *ret_rights = 0;
    while ((word = next_word(&rest, false)).len > 0) {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (slice_equal(word, slice_string(known[i].word))) {
                *ret_rights |= known[i].rights;
                found = true;
            }
        }
    }
    return found || problem(r, text, "rights: SNMP, QQ, TT, ETRN, KILL, REROUTE, ALL or NONE");
}

static bool read_range(const struct reader *r, struct slice word, struct mailq_range *range)
{
    struct slice s = word, inside;
    unsigned long long bits;
    char text[INET6_ADDRSTRLEN];
    size_t close;
    int family = AF_INET;

    *range = (struct mailq_range){.len = 4};
    if (s.len > 0 && s.ptr[0] == '!') {
        range->refuse = true;
        s = slice_skip(s, 1);
    }
    close = slice_find(s, ']');
    if (s.len == 0 || s.ptr[0] != '[' || close == s.len) {
        return problem(r, word, "[ADDRESS]/BITS");
    }
    inside = slice_of(s.ptr + 1, close - 1);
    if (slice_starts_nocase(inside, SLICE("IPv6.")) ||
        slice_starts_nocase(inside, SLICE("IPv6:"))) {
        inside = slice_skip(inside, 5);
        family = AF_INET6;
        range->len = 16;
    }
    if (inside.len >= sizeof text) {
        return problem(r, word, "an address of at most 45 characters");
    }
    memcpy(text, inside.ptr, inside.len);
    text[inside.len] = '\0';
    if (strlen(text) != inside.len || inet_pton(family, text, range->address) != 1) {
        return problem(r, word, "[192.0.2.1] or [IPv6.2001:db8::1]");
    }
    range->bits = range->len * 8;
    s = slice_skip(s, close + 1);
    if (s.len > 0) {
        if (s.ptr[0] != '/' || !slice_number(slice_skip(s, 1), range->bits, &bits)) {
            return problem(r, word,
                           family == AF_INET ? "/0 to /32 after the address"
                                             : "/0 to /128 after the address");
        }
        range->bits = (unsigned)bits;
    }
    return true;
}

/* Reads the addresses. A list without an item that can't be parsed would admit others than
 * intended, so the whole entry is skipped. */
static bool read_ranges(const struct reader *r, struct slice text, struct mailq_entry *e)
{
    struct slice rest = text, word;

    while ((word = next_word(&rest, true)).len > 0) {
        if (e->range_count == RANGES_MAX) {
            return problem(r, word, "at most 100 addresses in a list");
        }
        e->ranges = mem_resize(e->ranges, e->range_count + 1, sizeof *e->ranges);
        if (!read_range(r, word, &e->ranges[e->range_count])) {
            return false;
        }
        e->range_count++;
    }
    return true;
}

static bool read_password(const struct reader *r, struct slice text, struct mailq_entry *e)
{
    if (!slice_starts(text, SCRAM_WORD)) {
        e->password = mem_copy(text.ptr, text.len);
        return memchr(text.ptr, '\0', text.len) == NULL || problem(r, text, "no NUL in a password");
    }
    return scram_parse(slice_skip(text, SCRAM_WORD.len), &e->secret) ||
           problem(r, text.len > SCRAM_WORD.len ? slice_of(text.ptr, SCRAM_WORD.len) : text,
                   "ROUNDS,SALT,STORED-KEY,SERVER-KEY after it");
}

static void entry_fini(struct mailq_entry *e)
{
    mem_free(e->user);
    if (e->password != NULL) {
        OPENSSL_cleanse(e->password, strlen(e->password));
    }
    mem_free(e->password);
    mem_free(e->ranges);
}

static void read_line(const struct reader *r, struct slice line, struct mailq_auth *auth)
{
    struct mailq_entry e = {0};
    struct slice field[4], rest = line;

    if (line.len == 0 || line.ptr[0] == '#' || line.ptr[0] == '*' || slice_trim(line).len == 0) {
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        field[i] = slice_cut(&rest, ':');
        if (rest.ptr == NULL) {
            (void)problem(r, slice_of(line.ptr + line.len, 0), "user:password:rights:addresses");
            return;
        }
    }
    field[3] = rest;
    if (field[0].len == 0 || memchr(field[0].ptr, '\0', field[0].len) != NULL) {
        (void)problem(r, field[0], "a user's name");
        return;
    }
    if (read_password(r, field[1], &e) && read_rights(r, field[2], &e.rights) &&
        read_ranges(r, field[3], &e)) {
        e.user = mem_copy(field[0].ptr, field[0].len);
        auth->entries = mem_resize(auth->entries, auth->count + 1, sizeof *auth->entries);
        auth->entries[auth->count++] = e;
    } else {
        entry_fini(&e);
    }
}

struct mailq_auth *mailq_auth_parse(const char *name, struct slice text, struct buf *problems)
{
    struct mailq_auth *auth = mem_new(sizeof *auth);
    struct reader r = {.name = name, .problems = problems};
    struct slice rest = text;

    while (rest.ptr != NULL) {
        struct slice line = slice_cut(&rest, '\n');

        r.line++;
        r.line_start = line.ptr;
        if (auth->count == MAILQ_AUTH_ENTRIES_MAX) {
            (void)problem(&r, slice_of(line.ptr, 0), "at most 1000 entries");
            break;
        }
        read_line(&r, line, auth);
    }
    return auth;
}

void mailq_auth_free(struct mailq_auth *auth)
{
    if (auth == NULL) {
        return;
    }
    for (size_t i = 0; i < auth->count; i++) {
        entry_fini(&auth->entries[i]);
    }
    mem_free(auth->entries);
    mem_free(auth);
}

/* ---- queries --------------------------------------------------------------------------------- */

static bool range_holds(const struct mailq_range *range, const struct mailq_peer *peer)
{
    unsigned whole = range->bits / 8, part = range->bits % 8;

    if (range->len != peer->len || memcmp(range->address, peer->address, whole) != 0) {
        return false;
    }
    return part == 0 ||
           (uint8_t)((range->address[whole] ^ peer->address[whole]) >> (8 - part)) == 0;
}

/* Converts an IPv4-mapped IPv6 address to IPv4. */
static struct mailq_peer plain_peer(const struct mailq_peer *peer)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    struct mailq_peer plain = *peer;

    if (peer->len == 16 && memcmp(peer->address, mapped, sizeof mapped) == 0) {
        plain = (struct mailq_peer){.len = 4};
        memcpy(plain.address, peer->address + 12, 4);
    }
    return plain;
}

static bool entry_admits(const struct mailq_entry *e, const struct mailq_peer *peer)
{
    for (size_t i = 0; i < e->range_count; i++) {
        if (range_holds(&e->ranges[i], peer)) {
            return !e->ranges[i].refuse;
        }
    }
    return e->range_count == 0;
}

bool mailq_auth_has_clear(const struct mailq_auth *auth)
{
    for (size_t i = 0; i < auth->count; i++) {
        const struct mailq_entry *e = &auth->entries[i];

        if (e->password != NULL && strcmp(e->password, e->user) != 0) {
            return true;
        }
    }
    return false;
}

bool mailq_auth_admits(const struct mailq_auth *auth, const struct mailq_peer *peer)
{
    struct mailq_peer plain = plain_peer(peer);

    for (size_t i = 0; i < auth->count; i++) {
        if (entry_admits(&auth->entries[i], &plain)) {
            return true;
        }
    }
    return false;
}

const struct mailq_entry *mailq_auth_find(const struct mailq_auth *auth,
                                          const struct mailq_peer *peer, struct slice user)
{
    struct mailq_peer plain = plain_peer(peer);

    for (size_t i = 0; i < auth->count; i++) {
        if (slice_equal(slice_string(auth->entries[i].user), user) &&
            entry_admits(&auth->entries[i], &plain)) {
            return &auth->entries[i];
        }
    }
    return NULL;
}

void mailq_auth_md5(struct slice challenge, struct slice password, char ret_hex[33])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    CHECK(ctx != NULL);
    CHECK(EVP_DigestInit_ex(ctx, EVP_md5(), NULL) == 1);
    CHECK(EVP_DigestUpdate(ctx, challenge.ptr, challenge.len) == 1);
    CHECK(EVP_DigestUpdate(ctx, password.ptr, password.len) == 1);
    CHECK(EVP_DigestFinal_ex(ctx, sum, &len) == 1 && len == 16);
    EVP_MD_CTX_free(ctx);
    for (unsigned i = 0; i < len; i++) {
        ret_hex[2 * i] = digits[sum[i] >> 4];
        ret_hex[2 * i + 1] = digits[sum[i] & 15];
    }
    ret_hex[32] = '\0';
}

bool mailq_auth_md5_fits(const struct mailq_entry *entry, struct slice challenge, struct slice hex)
{
    char wanted[33];

    if (entry->password == NULL || hex.len != 32) {
        return false;
    }
    mailq_auth_md5(challenge, slice_string(entry->password), wanted);
    return CRYPTO_memcmp(wanted, hex.ptr, 32) == 0;
}
