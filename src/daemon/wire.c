#include "wire.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "check.h"
#include "frame.h"
#include "mem.h"
#include "ta.h"

const char *wire_role_name(enum wire_role role)
{
    static const char *const names[ROLE_COUNT] = {
        [ROLE_PARENT] = "parent",   [ROLE_RECEIVE] = "receive", [ROLE_QUEUE] = "queue",
        [ROLE_DELIVER] = "deliver", [ROLE_LOCAL] = "local",     [ROLE_CONTROL] = "control",
        [ROLE_AGENTS] = "agents",
    };

    CHECK(role < ROLE_COUNT);
    return names[role];
}

/* Enumerations travel as u8; anything beyond the last value fails the frame. */
static unsigned get_enum(struct frame_reader *r, unsigned count)
{
    unsigned value = frame_get_u8(r);

    if (value >= count) {
        r->failed = true;
        return 0;
    }
    return value;
}

/* Every wire_get_x with an array ends here: the array goes with a frame that does not decode. */
static bool end_with_array(const struct frame_reader *r, void *array)
{
    if (!frame_reader_end(r)) {
        mem_free(array);
        return false;
    }
    return true;
}

/* ---- parent and children -------------------------------------------------------------------- */

void wire_put_conf(struct channel *ch, const struct wire_conf *m)
{
    struct buf *b = channel_begin(ch, WIRE_CONF);

    frame_put_u64(b, m->generation);
    frame_put_u32(b, m->file_count);
    for (uint32_t i = 0; i < m->file_count; i++) {
        frame_put_bytes(b, m->files[i].path);
        frame_put_bytes(b, m->files[i].bytes);
    }
    channel_end(ch, -1);
}

bool wire_get_conf(struct slice body, struct wire_conf *ret, struct wire_file **ret_files)
{
    struct frame_reader r;
    struct wire_file *files;

    frame_reader_init(&r, body);
    ret->generation = frame_get_u64(&r);
    ret->file_count = frame_get_count(&r, 8, WIRE_FILES_MAX);
    files = mem_array(ret->file_count, sizeof *files);
    for (uint32_t i = 0; i < ret->file_count; i++) {
        files[i].path = frame_get_bytes(&r, WIRE_URL_MAX * 8);
        files[i].bytes = frame_get_bytes(&r, WIRE_FILE_MAX);
    }
    if (!end_with_array(&r, files)) {
        return false;
    }
    ret->files = *ret_files = files;
    return true;
}

void wire_put_listener(struct channel *ch, const struct wire_listener *m, int fd)
{
    frame_put_bytes(channel_begin(ch, WIRE_LISTENER), m->url);
    channel_end(ch, fd);
}

bool wire_get_listener(struct slice body, struct wire_listener *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->url = frame_get_bytes(&r, WIRE_URL_MAX);
    return frame_reader_end(&r);
}

void wire_put_peer(struct channel *ch, const struct wire_peer *m, int fd)
{
    struct buf *b = channel_begin(ch, WIRE_PEER);

    frame_put_u8(b, (uint8_t)m->role);
    frame_put_u32(b, m->index);
    frame_put_u32(b, m->count);
    channel_end(ch, fd);
}

bool wire_get_peer(struct slice body, struct wire_peer *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->role = (enum wire_role)get_enum(&r, ROLE_COUNT);
    ret->index = frame_get_u32(&r);
    ret->count = frame_get_u32(&r);
    return frame_reader_end(&r) && ret->index < ret->count;
}

void wire_put_reloaded(struct channel *ch, const struct wire_reloaded *m)
{
    struct buf *b = channel_begin(ch, WIRE_RELOADED);

    frame_put_u64(b, m->token);
    frame_put_bool(b, m->ok);
    frame_put_bytes(b, m->text);
    channel_end(ch, -1);
}

void wire_put_authfile(struct channel *ch, const struct wire_authfile *m)
{
    struct buf *b = channel_begin(ch, WIRE_AUTHFILE);

    frame_put_bytes(b, m->text);
    channel_end(ch, -1);
}

bool wire_get_authfile(struct slice body, struct wire_authfile *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->text = frame_get_bytes(&r, WIRE_FILE_MAX);
    return frame_reader_end(&r);
}

bool wire_get_reloaded(struct slice body, struct wire_reloaded *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->ok = frame_get_bool(&r);
    ret->text = frame_get_bytes(&r, WIRE_JSON_MAX);
    return frame_reader_end(&r);
}

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
    (void)channel_begin(ch, (uint16_t)type); /* a header is all there is to it */
    channel_end(ch, -1);
}

bool wire_get_empty(struct slice body)
{
    return body.len == 0;
}

/* ---- submission ----------------------------------------------------------------------------- */

bool wire_fd_is_sealed(int fd, uint64_t size)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & wanted) == wanted && fstat(fd, &st) == 0 &&
           (uint64_t)st.st_size == size;
}

void wire_put_submit(struct channel *ch, const struct wire_submit *m, int fd)
{
    struct buf *b = channel_begin(ch, WIRE_SUBMIT);

    frame_put_u64(b, m->token);
    frame_put_bytes(b, m->sender);
    frame_put_bytes(b, m->envid);
    frame_put_u32(b, m->flags);
    frame_put_i64(b, m->arrived.us);
    frame_put_bytes(b, m->client);
    frame_put_u32(b, m->pid);
    frame_put_bytes(b, m->origin);
    frame_put_bytes(b, m->class_name);
    frame_put_u32(b, m->class_source);
    frame_put_bytes(b, m->trace);
    frame_put_u32(b, m->rcpt_count);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        frame_put_bytes(b, m->rcpts[i].address);
        frame_put_bytes(b, m->rcpts[i].orcpt);
        frame_put_u32(b, m->rcpts[i].notify);
    }
    frame_put_bytes(b, m->content);
    frame_put_u64(b, m->fd_size);
    channel_end(ch, fd);
}

bool wire_get_submit(struct slice body, struct wire_submit *ret, struct wire_rcpt **ret_rcpts)
{
    struct frame_reader r;
    struct wire_rcpt *rcpts;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->sender = frame_get_bytes(&r, ADDRESS_MAX);
    ret->envid = frame_get_bytes(&r, DSN_ENVID_MAX * 3);
    ret->flags = frame_get_u32(&r);
    ret->arrived.us = frame_get_i64(&r);
    ret->client = frame_get_bytes(&r, WIRE_HOST_MAX);
    ret->pid = frame_get_u32(&r);
    ret->origin = frame_get_bytes(&r, WIRE_URL_MAX);
    ret->class_name = frame_get_bytes(&r, CLASS_NAME_MAX);
    ret->class_source = frame_get_u32(&r);
    ret->trace = frame_get_bytes(&r, WIRE_TRACE_MAX);
    ret->rcpt_count = frame_get_count(&r, 12, WIRE_RCPTS_MAX);
    rcpts = mem_array(ret->rcpt_count, sizeof *rcpts);
    for (uint32_t i = 0; i < ret->rcpt_count; i++) {
        rcpts[i].address = frame_get_bytes(&r, ADDRESS_MAX);
        rcpts[i].orcpt = frame_get_bytes(&r, DSN_ORCPT_MAX);
        rcpts[i].notify = frame_get_u32(&r);
        if (rcpts[i].address.len == 0) {
            r.failed = true;
        }
    }
    ret->content = frame_get_bytes(&r, WIRE_CONTENT_MAX);
    ret->fd_size = frame_get_u64(&r);
    if (ret->rcpt_count == 0 || ret->arrived.us < 0 ||
        (ret->class_name.len > 0 && !class_name_valid(ret->class_name)) ||
        ret->class_source > CLASS_SOURCE_MAX) {
        r.failed = true;
    }
    if (!end_with_array(&r, rcpts)) {
        return false;
    }
    ret->rcpts = *ret_rcpts = rcpts;
    return true;
}

void wire_put_submit_done(struct channel *ch, const struct wire_submit_done *m)
{
    struct buf *b = channel_begin(ch, WIRE_SUBMIT_DONE);

    frame_put_u64(b, m->token);
    frame_put_u32(b, m->code);
    frame_put_bytes(b, m->status);
    frame_put_bytes(b, m->text);
    frame_put_bytes(b, m->id);
    channel_end(ch, -1);
}

bool wire_get_submit_done(struct slice body, struct wire_submit_done *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->code = frame_get_u32(&r);
    ret->status = frame_get_bytes(&r, 16);
    ret->text = frame_get_bytes(&r, WIRE_TEXT_MAX);
    ret->id = frame_get_bytes(&r, 64);
    return frame_reader_end(&r);
}

void wire_put_etrn(struct channel *ch, const struct wire_etrn *m)
{
    struct buf *b = channel_begin(ch, WIRE_ETRN);

    frame_put_u64(b, m->token);
    frame_put_bytes(b, m->domain);
    channel_end(ch, -1);
}

bool wire_get_etrn(struct slice body, struct wire_etrn *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->domain = frame_get_bytes(&r, WIRE_HOST_MAX);
    return frame_reader_end(&r);
}

void wire_put_etrn_done(struct channel *ch, const struct wire_etrn_done *m)
{
    struct buf *b = channel_begin(ch, WIRE_ETRN_DONE);

    frame_put_u64(b, m->token);
    frame_put_u32(b, m->code);
    frame_put_bytes(b, m->text);
    channel_end(ch, -1);
}

bool wire_get_etrn_done(struct slice body, struct wire_etrn_done *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->code = frame_get_u32(&r);
    ret->text = frame_get_bytes(&r, WIRE_TEXT_MAX);
    return frame_reader_end(&r);
}

void wire_put_flow(struct channel *ch, const struct wire_flow *m)
{
    struct buf *b = channel_begin(ch, WIRE_FLOW);

    frame_put_bool(b, m->storage_ok);
    frame_put_bool(b, m->space_ok);
    frame_put_u64(b, m->free_bytes);
    frame_put_bool(b, m->behind);
    channel_end(ch, -1);
}

bool wire_get_flow(struct slice body, struct wire_flow *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->storage_ok = frame_get_bool(&r);
    ret->space_ok = frame_get_bool(&r);
    ret->free_bytes = frame_get_u64(&r);
    ret->behind = frame_get_bool(&r);
    return frame_reader_end(&r);
}

/* ---- delivery ------------------------------------------------------------------------------- */

void wire_put_deliver(struct channel *ch, const struct wire_deliver *m, int fd)
{
    struct buf *b = channel_begin(ch, WIRE_DELIVER);

    frame_put_u64(b, m->entry);
    frame_put_bytes(b, m->transport);
    frame_put_bytes(b, m->nexthop);
    frame_put_bytes(b, m->id);
    frame_put_bytes(b, m->path);
    frame_put_bytes(b, m->sender);
    frame_put_bytes(b, m->envid);
    frame_put_u32(b, m->flags);
    frame_put_i64(b, m->arrived.us);
    frame_put_bool(b, m->cache_load);
    frame_put_bool(b, m->cache_store);
    frame_put_u32(b, m->rcpt_count);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        frame_put_u32(b, m->rcpts[i].n);
        frame_put_bytes(b, m->rcpts[i].address);
        frame_put_bytes(b, m->rcpts[i].orcpt);
        frame_put_u32(b, m->rcpts[i].notify);
    }
    frame_put_u64(b, m->size);
    frame_put_u8(b, (uint8_t)m->place);
    frame_put_bytes(b, m->content);
    channel_end(ch, fd);
}

bool wire_get_deliver(struct slice body, struct wire_deliver *ret,
                      struct wire_deliver_rcpt **ret_rcpts)
{
    struct frame_reader r;
    struct wire_deliver_rcpt *rcpts;

    frame_reader_init(&r, body);
    ret->entry = frame_get_u64(&r);
    ret->transport = frame_get_bytes(&r, WIRE_HOST_MAX);
    ret->nexthop = frame_get_bytes(&r, WIRE_HOST_MAX);
    ret->id = frame_get_bytes(&r, 64);
    ret->path = frame_get_bytes(&r, WIRE_PATH_MAX);
    ret->sender = frame_get_bytes(&r, ADDRESS_MAX);
    ret->envid = frame_get_bytes(&r, DSN_ENVID_MAX * 3);
    ret->flags = frame_get_u32(&r);
    ret->arrived.us = frame_get_i64(&r);
    ret->cache_load = frame_get_bool(&r);
    ret->cache_store = frame_get_bool(&r);
    ret->rcpt_count = frame_get_count(&r, 16, WIRE_RCPTS_MAX);
    rcpts = mem_array(ret->rcpt_count, sizeof *rcpts);
    for (uint32_t i = 0; i < ret->rcpt_count; i++) {
        rcpts[i].n = frame_get_u32(&r);
        rcpts[i].address = frame_get_bytes(&r, ADDRESS_MAX);
        rcpts[i].orcpt = frame_get_bytes(&r, DSN_ORCPT_MAX);
        rcpts[i].notify = frame_get_u32(&r);
    }
    ret->size = frame_get_u64(&r);
    ret->place = (enum wire_content_place)get_enum(&r, CONTENT_NONE + 1);
    ret->content = frame_get_bytes(&r, WIRE_CONTENT_MAX);
    /* Whoever gets no content gets a path instead. */
    if (ret->rcpt_count == 0 || (ret->place == CONTENT_NONE) != (ret->path.len > 0) ||
        (ret->place == CONTENT_NONE && ret->content.len > 0)) {
        r.failed = true;
    }
    if (!end_with_array(&r, rcpts)) {
        return false;
    }
    ret->rcpts = *ret_rcpts = rcpts;
    return true;
}

void wire_put_need_content(struct channel *ch, uint64_t entry)
{
    wire_put_number(ch, WIRE_NEED_CONTENT, entry);
}

bool wire_get_need_content(struct slice body, uint64_t *ret_entry)
{
    return wire_get_number(body, ret_entry);
}

void wire_put_content(struct channel *ch, const struct wire_content *m, int fd)
{
    struct buf *b = channel_begin(ch, WIRE_CONTENT);

    frame_put_u64(b, m->entry);
    frame_put_bool(b, m->ok);
    frame_put_bytes(b, m->content);
    channel_end(ch, fd);
}

bool wire_get_content(struct slice body, struct wire_content *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->entry = frame_get_u64(&r);
    ret->ok = frame_get_bool(&r);
    ret->content = frame_get_bytes(&r, WIRE_CONTENT_MAX);
    return frame_reader_end(&r);
}

void wire_put_result(struct channel *ch, const struct wire_result *m)
{
    struct buf *b = channel_begin(ch, WIRE_RESULT);

    frame_put_u64(b, m->entry);
    frame_put_u8(b, (uint8_t)m->outcome);
    frame_put_bytes(b, m->reason);
    frame_put_i64(b, m->setup_us);
    frame_put_i64(b, m->transmit_us);
    frame_put_u32(b, m->conn_use);
    frame_put_bytes(b, m->tls);
    frame_put_bool(b, m->maybe_duplicate);
    frame_put_bool(b, m->resync);
    frame_put_bool(b, m->thread_stops);
    frame_put_i64(b, m->thread_until.us);
    frame_put_u32(b, m->pid);
    frame_put_u32(b, m->verdict_count);
    for (uint32_t i = 0; i < m->verdict_count; i++) {
        frame_put_u32(b, m->verdicts[i].n);
        frame_put_u8(b, (uint8_t)m->verdicts[i].kind);
        frame_put_bytes(b, m->verdicts[i].status);
        frame_put_bytes(b, m->verdicts[i].text);
        frame_put_bytes(b, m->verdicts[i].relay);
        frame_put_u32(b, m->verdicts[i].word);
        frame_put_bytes(b, m->verdicts[i].notary);
    }
    channel_end(ch, -1);
}

bool wire_get_result(struct slice body, struct wire_result *ret, struct wire_verdict **ret_verdicts)
{
    struct frame_reader r;
    struct wire_verdict *verdicts;

    frame_reader_init(&r, body);
    ret->entry = frame_get_u64(&r);
    ret->outcome = (enum wire_outcome)get_enum(&r, OUTCOME_GIVEN_BACK + 1);
    ret->reason = frame_get_bytes(&r, WIRE_TEXT_MAX);
    ret->setup_us = frame_get_i64(&r);
    ret->transmit_us = frame_get_i64(&r);
    ret->conn_use = frame_get_u32(&r);
    ret->tls = frame_get_bytes(&r, WIRE_TEXT_MAX);
    ret->maybe_duplicate = frame_get_bool(&r);
    ret->resync = frame_get_bool(&r);
    ret->thread_stops = frame_get_bool(&r);
    ret->thread_until.us = frame_get_i64(&r);
    ret->pid = frame_get_u32(&r);
    ret->verdict_count = frame_get_count(&r, 25, WIRE_RCPTS_MAX);
    verdicts = mem_array(ret->verdict_count, sizeof *verdicts);
    for (uint32_t i = 0; i < ret->verdict_count; i++) {
        verdicts[i].n = frame_get_u32(&r);
        verdicts[i].kind = (enum wire_verdict_kind)get_enum(&r, VERDICT_NONE + 1);
        verdicts[i].status = frame_get_bytes(&r, 16);
        verdicts[i].text = frame_get_bytes(&r, WIRE_TEXT_MAX);
        verdicts[i].relay = frame_get_bytes(&r, WIRE_HOST_MAX);
        verdicts[i].word = frame_get_u32(&r);
        verdicts[i].notary = frame_get_bytes(&r, WIRE_NOTARY_MAX);
        if (verdicts[i].word > 1 + TA_RETRYAT) {
            r.failed = true;
        }
    }
    if (ret->thread_until.us < 0) {
        r.failed = true;
    }
    if (!end_with_array(&r, verdicts)) {
        return false;
    }
    ret->verdicts = *ret_verdicts = verdicts;
    return true;
}

void wire_put_agent(struct channel *ch, const struct wire_agent *m)
{
    struct buf *b = channel_begin(ch, WIRE_AGENT);

    frame_put_u32(b, m->pid);
    frame_put_bytes(b, m->transport);
    frame_put_bytes(b, m->host);
    frame_put_u32(b, m->ring);
    frame_put_u32(b, m->state);
    frame_put_u32(b, m->owed);
    frame_put_i64(b, m->hungry.us);
    frame_put_i64(b, m->fed.us);
    frame_put_bool(b, m->ended);
    channel_end(ch, -1);
}

bool wire_get_agent(struct slice body, struct wire_agent *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->pid = frame_get_u32(&r);
    ret->transport = frame_get_bytes(&r, WIRE_HOST_MAX);
    ret->host = frame_get_bytes(&r, WIRE_HOST_MAX);
    ret->ring = frame_get_u32(&r);
    ret->state = frame_get_u32(&r);
    ret->owed = frame_get_u32(&r);
    ret->hungry.us = frame_get_i64(&r);
    ret->fed.us = frame_get_i64(&r);
    ret->ended = frame_get_bool(&r);
    return frame_reader_end(&r) && ret->pid > 0 && ret->state <= TA_ENDING && ret->hungry.us >= 0 &&
           ret->fed.us >= 0;
}

void wire_put_forget(struct channel *ch, const struct wire_forget *m)
{
    struct buf *b = channel_begin(ch, WIRE_FORGET);

    frame_put_bytes(b, m->transport);
    frame_put_bytes(b, m->nexthop);
    channel_end(ch, -1);
}

bool wire_get_forget(struct slice body, struct wire_forget *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->transport = frame_get_bytes(&r, WIRE_HOST_MAX);
    ret->nexthop = frame_get_bytes(&r, WIRE_HOST_MAX);
    return frame_reader_end(&r);
}

/* ---- control -------------------------------------------------------------------------------- */

void wire_put_ask(struct channel *ch, const struct wire_ask *m)
{
    struct buf *b = channel_begin(ch, WIRE_ASK);

    frame_put_u64(b, m->token);
    frame_put_bytes(b, m->json);
    channel_end(ch, -1);
}

bool wire_get_ask(struct slice body, struct wire_ask *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->json = frame_get_bytes(&r, WIRE_JSON_MAX);
    return frame_reader_end(&r);
}

void wire_put_answer(struct channel *ch, const struct wire_answer *m, int fd)
{
    struct buf *b = channel_begin(ch, WIRE_ANSWER);

    frame_put_u64(b, m->token);
    frame_put_u32(b, m->status);
    frame_put_bytes(b, m->json);
    frame_put_bytes(b, m->bytes);
    channel_end(ch, fd);
}

bool wire_get_answer(struct slice body, struct wire_answer *ret)
{
    struct frame_reader r;

    frame_reader_init(&r, body);
    ret->token = frame_get_u64(&r);
    ret->status = frame_get_u32(&r);
    ret->json = frame_get_bytes(&r, WIRE_JSON_MAX);
    ret->bytes = frame_get_bytes(&r, WIRE_CONTENT_MAX);
    return frame_reader_end(&r);
}
