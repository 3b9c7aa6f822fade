#include "agent_table.h"

#include <string.h>

#include "check.h"
#include "frame.h"
#include "mem.h"

/* ---- reports -------------------------------------------------------------------------------- */

void agent_report_write(struct buf *b, const struct agent_report *m)
{
    frame_put_u32(b, m->pid);
    frame_put_bytes(b, m->transport);
    frame_put_bytes(b, m->host);
    frame_put_u32(b, m->ring);
    frame_put_u32(b, m->state);
    frame_put_u32(b, m->owed);
    frame_put_i64(b, m->hungry.us);
    frame_put_i64(b, m->fed.us);
    frame_put_bool(b, m->ended);
}

bool agent_report_read(struct slice body, struct agent_report *ret)
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

/* ---- threads -------------------------------------------------------------------------------- */

#define KEY_MAX ((size_t)2 * WIRE_HOST_MAX + 1)

static size_t make_key(struct slice transport, struct slice host, char key[KEY_MAX])
{
    CHECK(transport.len <= WIRE_HOST_MAX && host.len <= WIRE_HOST_MAX);
    memcpy(key, transport.ptr, transport.len);
    key[transport.len] = '\0';
    memcpy(key + transport.len + 1, host.ptr, host.len);
    return transport.len + 1 + host.len;
}

static struct agent_thread *find_thread(const struct agent_table *t, const char *key, size_t len)
{
    struct agent_thread *thread;

    HASH_FIND(hh, t->threads, key, len, thread);
    return thread;
}

const struct agent_thread *agent_table_of(const struct agent_table *t, struct slice transport,
                                          struct slice host)
{
    char key[KEY_MAX];

    if (transport.len > WIRE_HOST_MAX || host.len > WIRE_HOST_MAX) {
        return NULL; /* no agent has such names */
    }
    return find_thread(t, key, make_key(transport, host, key));
}

static void leave_thread(struct agent_table *t, struct agent_row *row)
{
    struct agent_thread *thread = row->thread;

    if (thread != NULL) {
        TAILQ_REMOVE(&thread->agents, row, of_thread);
        row->thread = NULL;
        if (TAILQ_EMPTY(&thread->agents)) {
            HASH_DEL(t->threads, thread);
            mem_free(thread);
        }
    }
}

static void join_thread(struct agent_table *t, struct agent_row *row)
{
    char key[KEY_MAX];
    size_t len = make_key(slice_string(row->transport), slice_string(row->host), key);
    struct agent_thread *thread = find_thread(t, key, len);

    if (thread == NULL) {
        thread = mem_new(sizeof *thread + len);
        TAILQ_INIT(&thread->agents);
        thread->key_len = len;
        memcpy(thread->key, key, len);
        HASH_ADD_KEYPTR(hh, t->threads, thread->key, len, thread);
    }
    TAILQ_INSERT_TAIL(&thread->agents, row, of_thread);
    row->thread = thread;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void row_free(struct agent_table *t, struct agent_row *row)
{
    leave_thread(t, row);
    t->idle -= row->state == TA_IDLE;
    HASH_DEL(t->rows, row);
    mem_free(row->transport);
    mem_free(row->host);
    mem_free(row);
}

static void replace(char **text, struct slice with)
{
    if (*text == NULL || !slice_equal(slice_string(*text), with)) {
        mem_free(*text);
        *text = mem_copy(with.ptr, with.len);
    }
}

void agent_table_take(struct agent_table *t, const struct agent_report *m)
{
    struct agent_row *row;

    HASH_FIND(hh, t->rows, &m->pid, sizeof m->pid, row);
    if (m->ended) {
        if (row != NULL) {
            row_free(t, row);
        }
        return;
    }
    if (row == NULL) {
        if (HASH_COUNT(t->rows) >= AGENT_TABLE_MAX) {
            return;
        }
        row = mem_new(sizeof *row);
        row->pid = m->pid;
        HASH_ADD(hh, t->rows, pid, sizeof row->pid, row);
        t->starts++;
    } else {
        leave_thread(t, row);
        t->idle -= row->state == TA_IDLE;
    }
    replace(&row->transport, m->transport);
    replace(&row->host, m->host);
    row->ring = m->ring;
    row->owed = m->owed;
    row->state = (enum ta_state)m->state;
    row->hungry = m->hungry;
    row->fed = m->fed;
    t->idle += row->state == TA_IDLE;
    if (row->state != TA_IDLE && m->host.len > 0) {
        join_thread(t, row);
    }
}

void agent_table_clear(struct agent_table *t)
{
    struct agent_row *row, *next;

    HASH_ITER(hh, t->rows, row, next)
    {
        row_free(t, row);
    }
}
