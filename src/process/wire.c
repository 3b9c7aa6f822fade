#include "wire_fields.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "check.h"
#include "frame.h"
#include "mem.h"

const char *wire_role_name(enum wire_role role)
{
    static const char *const names[ROLE_COUNT] = {
        [ROLE_PARENT] = "parent",   [ROLE_RECEIVE] = "receive", [ROLE_QUEUE] = "queue",
        [ROLE_DELIVER] = "deliver", [ROLE_LOCAL] = "local",     [ROLE_CONTROL] = "control",
        [ROLE_AGENTS] = "agents",   [ROLE_PICKUP] = "pickup",   [ROLE_AUTH] = "auth",
        [ROLE_FETCH] = "fetch",     [ROLE_HOOK] = "hook",       [ROLE_FILTER] = "filter",
        [ROLE_WHATIF] = "whatif",   [ROLE_RESOLVE] = "resolve",
    };

    CHECK(role < ROLE_COUNT);
    return names[role];
}

const char *wire_proof_name(enum wire_proof proof)
{
    static const char *const names[] = {
        [WIRE_PROOF_NONE] = "",
        [WIRE_PROOF_CLEAR] = "clear",
        [WIRE_PROOF_ANONYMOUS] = "anonymous",
        [WIRE_PROOF_UNTRUSTED] = "untrusted",
        [WIRE_PROOF_TRUSTED] = "trusted",
        [WIRE_PROOF_VERIFIED] = "verified",
        [WIRE_PROOF_DANE_TA] = "dane-ta",
        [WIRE_PROOF_DANE_EE] = "dane-ee",
    };

    CHECK(proof < WIRE_PROOF_COUNT);
    return names[proof];
}

bool wire_fd_is_sealed(int fd, uint64_t size)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & wanted) == wanted && fstat(fd, &st) == 0 &&
           (uint64_t)st.st_size == size;
}

/* ---- rules for fields of a frame ------------------------------------------------------------- */

#define NO_RULE(m) true

static bool peer_holds(const struct wire_peer *m)
{
    return m->index < m->count;
}

static bool submit_holds(const struct wire_submit *m)
{
    return m->class_name.len == 0 || class_name_valid(m->class_name);
}

static bool auth_answer_holds(const struct wire_auth_answer *m)
{
    return m->class_name.len == 0 || class_name_valid(m->class_name);
}

static bool auth_key_holds(const struct wire_auth_key *m)
{
    return m->bytes.len == WIRE_AUTH_KEY_SIZE;
}

/* A path is present only if the agent gets no content. */
static bool deliver_holds(const struct wire_deliver *m)
{
    return m->place == CONTENT_NONE ? m->path.len > 0 && m->content.len == 0 : m->path.len == 0;
}

static bool verdict_holds(const struct wire_verdict *m)
{
    return m->report == WIRE_REPORT_DUE || m->kind == VERDICT_SENT ||
           (m->report == WIRE_REPORT_WRITTEN && m->kind == VERDICT_BOUNCED);
}

static bool is_ascii(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < ' ' || s.ptr[i] > '~') {
            return false;
        }
    }
    return true;
}

/* Texts must be ASCII: terminals and readers of JSON get them unchanged. */
static bool dialogue_holds(const struct wire_dialogue *m)
{
    return is_ascii(m->process) && is_ascii(m->text) && is_ascii(m->peer) && is_ascii(m->source) &&
           is_ascii(m->tls) && is_ascii(m->destination) && is_ascii(m->id);
}

/* ---- fields --------------------------------------------------------------------------------- */

/* The smallest size of each kind of field, in bytes. */
#define LEAST_U32(...)   +4
#define LEAST_BELOW(...) +4
#define LEAST_U64(...)   +8
#define LEAST_I64(...)   +8
#define LEAST_WALL(...)  +8
#define LEAST_BOOL(...)  +1
#define LEAST_ENUM(...)  +1
#define LEAST_BYTES(...) +4
#define LEAST_SOME(...)  +5
#define LEAST(kind, ...) LEAST_##kind(__VA_ARGS__)

#define PUT_U32(member)                frame_put_u32(b, m->member);
#define PUT_BELOW(member, values)      frame_put_u32(b, m->member);
#define PUT_U64(member)                frame_put_u64(b, m->member);
#define PUT_I64(member)                frame_put_i64(b, m->member);
#define PUT_WALL(member)               frame_put_i64(b, m->member.us);
#define PUT_BOOL(member)               frame_put_bool(b, m->member);
#define PUT_ENUM(member, type, values) frame_put_u8(b, (uint8_t)m->member);
#define PUT_BYTES(member, max)         frame_put_bytes(b, m->member);
#define PUT_SOME(member, max)          frame_put_bytes(b, m->member);
#define PUT_ARRAY(member, count, element, min, max)                                                \
    frame_put_u32(b, m->count);                                                                    \
    for (uint32_t i = 0; i < m->count; i++) {                                                      \
        put_##element(b, &m->member[i]);                                                           \
    }
#define PUT(kind, ...) PUT_##kind(__VA_ARGS__)

#define GET_U32(member)                m->member = frame_get_u32(r);
#define GET_BELOW(member, values)      m->member = get_below(r, frame_get_u32(r), values);
#define GET_U64(member)                m->member = frame_get_u64(r);
#define GET_I64(member)                m->member = frame_get_i64(r);
#define GET_WALL(member)               m->member = get_wall(r);
#define GET_BOOL(member)               m->member = frame_get_bool(r);
#define GET_ENUM(member, type, values) m->member = (enum type)get_below(r, frame_get_u8(r), values);
#define GET_BYTES(member, max)         m->member = frame_get_bytes(r, max);
#define GET_SOME(member, max)          m->member = get_some(r, max);
#define GET_ARRAY(name, count, element, min, max)                                                  \
    m->count = get_count(r, WIRE_FIELDS_##element(LEAST), min, max);                               \
    m->name = get_##element##s(r, m->count);
#define GET(kind, ...) GET_##kind(__VA_ARGS__)

static uint32_t get_below(struct frame_reader *r, uint32_t value, uint32_t values)
{
    if (value >= values) {
        r->failed = true;
        return 0;
    }
    return value;
}

static struct wall get_wall(struct frame_reader *r)
{
    struct wall t = {frame_get_i64(r)};

    r->failed = r->failed || t.us < 0;
    return t;
}

/* Reads the number of elements that take at least `least` bytes each. */
static uint32_t get_count(struct frame_reader *r, size_t least, uint32_t min, uint32_t max)
{
    uint32_t count = frame_get_count(r, least, max);

    r->failed = r->failed || count < min;
    return count;
}

static struct slice get_some(struct frame_reader *r, size_t max)
{
    struct slice bytes = frame_get_bytes(r, max);

    r->failed = r->failed || bytes.len == 0;
    return bytes;
}

/* ---- elements of arrays ---------------------------------------------------------------------- */

/* Functions for an element. get_NAMEs allocates the array even if the reader fails; the caller
 * frees it. */
#define DEFINE_ELEMENT(name, rule)                                                                 \
    static void put_##name(struct buf *b, const struct wire_##name *m)                             \
    {                                                                                              \
        WIRE_FIELDS_##name(PUT);                                                                   \
    }                                                                                              \
                                                                                                   \
    static struct wire_##name *get_##name##s(struct frame_reader *r, uint32_t count)               \
    {                                                                                              \
        struct wire_##name *array = mem_array(count, sizeof *array);                               \
                                                                                                   \
        for (uint32_t i = 0; i < count; i++) {                                                     \
            struct wire_##name *m = &array[i];                                                     \
                                                                                                   \
            WIRE_FIELDS_##name(GET);                                                               \
            r->failed = r->failed || !rule(m);                                                     \
        }                                                                                          \
        return array;                                                                              \
    }

WIRE_ELEMENTS(DEFINE_ELEMENT)

/* ---- frames --------------------------------------------------------------------------------- */

#define DEFINE_PUT(name, type, parameters, fd)                                                     \
    void wire_put_##name parameters                                                                \
    {                                                                                              \
        struct buf *b = channel_begin(ch, type);                                                   \
                                                                                                   \
        WIRE_FIELDS_##name(PUT);                                                                   \
        channel_end(ch, fd);                                                                       \
    }

#define PARAMETERS(name)    (struct channel * ch, const struct wire_##name *m)
#define PARAMETERS_FD(name) (struct channel * ch, const struct wire_##name *m, int fd)

#define DEFINE_GET(name, rule)                                                                     \
    bool wire_get_##name(struct slice body, struct wire_##name *ret)                               \
    {                                                                                              \
        struct frame_reader reader, *r = &reader;                                                  \
        struct wire_##name *m = ret;                                                               \
                                                                                                   \
        frame_reader_init(r, body);                                                                \
        WIRE_FIELDS_##name(GET);                                                                   \
        return frame_reader_end(r) && rule(m);                                                     \
    }

/* Frees the array if the frame does not decode. */
#define DEFINE_GET_ARRAY(name, rule, array, element)                                               \
    bool wire_get_##name(struct slice body, struct wire_##name *ret,                               \
                         struct wire_##element **ret_##array)                                      \
    {                                                                                              \
        struct frame_reader reader, *r = &reader;                                                  \
        struct wire_##name *m = ret;                                                               \
        bool ok;                                                                                   \
                                                                                                   \
        frame_reader_init(r, body);                                                                \
        WIRE_FIELDS_##name(GET);                                                                   \
        ok = frame_reader_end(r) && rule(m);                                                       \
        *ret_##array = (struct wire_##element *)(uintptr_t)m->array;                               \
        if (!ok) {                                                                                 \
            mem_free(*ret_##array);                                                                \
            *ret_##array = NULL;                                                                   \
        }                                                                                          \
        return ok;                                                                                 \
    }

#define DEFINE_PLAIN(name, type, rule)                                                             \
    DEFINE_PUT(name, type, PARAMETERS(name), -1)                                                   \
    DEFINE_GET(name, rule)
#define DEFINE_FD(name, type, rule)                                                                \
    DEFINE_PUT(name, type, PARAMETERS_FD(name), fd)                                                \
    DEFINE_GET(name, rule)
#define DEFINE_ARRAY(name, type, rule, array, element)                                             \
    DEFINE_PUT(name, type, PARAMETERS(name), -1)                                                   \
    DEFINE_GET_ARRAY(name, rule, array, element)
#define DEFINE_ARRAY_FD(name, type, rule, array, element)                                          \
    DEFINE_PUT(name, type, PARAMETERS_FD(name), fd)                                                \
    DEFINE_GET_ARRAY(name, rule, array, element)
#define DEFINE_FRAME(shape, ...) DEFINE_##shape(__VA_ARGS__)

WIRE_FRAMES(DEFINE_FRAME)

/* ---- frames of one number, or of nothing ----------------------------------------------------- */

void wire_put_number(struct channel *ch, enum wire_type type, uint64_t number)
{
    frame_put_u64(channel_begin(ch, (uint16_t)type), number);
    channel_end(ch, -1);
}

bool wire_get_number(struct slice body, uint64_t *ret_number)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    *ret_number = frame_get_u64(&r);
    return frame_reader_end(&r);
}

void wire_put_empty(struct channel *ch, enum wire_type type)
{
    (void)channel_begin(ch, (uint16_t)type); /* only a header */
    channel_end(ch, -1);
}

bool wire_get_empty(struct slice body)
{
    return body.len == 0;
}

void wire_put_lease(struct channel *ch, int fd)
{
    (void)channel_begin(ch, WIRE_LEASE); /* no body */
    channel_end(ch, fd);
}

void wire_put_break_off(struct channel *ch, uint64_t entry)
{
    wire_put_number(ch, WIRE_BREAK_OFF, entry);
}

void wire_put_go_on(struct channel *ch, uint64_t entry)
{
    wire_put_number(ch, WIRE_GO_ON, entry);
}

void wire_put_need_content(struct channel *ch, uint64_t entry)
{
    wire_put_number(ch, WIRE_NEED_CONTENT, entry);
}

bool wire_get_need_content(struct slice body, uint64_t *ret_entry)
{
    return wire_get_number(body, ret_entry);
}
