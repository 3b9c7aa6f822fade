/*
 * Returns recipients to the router, at an operator's request for new routes. A file as submitters
 * write it is made for each group of recipients, because groups differ in their headers. It has the
 * original envelope.
 *
 * The recipients' tags are set after those files are safe (postoffice_engine.h, step 4).
 */
#include <errno.h>
#include <unistd.h>

#include "envelope.h"
#include "mem.h"
#include "postoffice_engine.h"

/* Largest content that is kept in memory; larger messages are copied through a file. */
#define CONTENT_MAX ((size_t)1 << 20)

/* A recipient to be rerouted. */
struct pick {
    uint32_t index, group;
};

static bool can_go(const struct control_rcpt *line)
{
    return (line->tag == ' ' || line->tag == '~') && lock_holder(line) == 0 &&
           line->address.user.len <= ADDRESS_MAX && envelope_is_mailbox(line->address.user);
}

static int choose(struct postoffice *po, struct msg_id id, const uint32_t *ns, size_t count,
                  struct post_part *p, struct pick *picks, size_t *ret_count)
{
    struct post_view *view;
    int err;

    cache_drop(&po->cache, p->file->number); /* locks change too fast for the file's time of
                                              * change */
    err = view_of(po, p->file, true, &view);
    *ret_count = 0;
    for (size_t i = 0; err == 0 && i < count; i++) {
        const struct control_rcpt *line;
        uint32_t index;

        err = need_rcpt(po, id, ns[i], &p, &index);
        if (err == 0 && p->file->rcpts[index].state != SPOOL_RCPT_PENDING) {
            err = spool_fail(&po->base, -ENOENT, "recipient %u is not pending", (unsigned)ns[i]);
        }
        line = err == 0 ? control_file_find(&view->control, p->file->rcpts[index].offset) : NULL;
        if (line != NULL && can_go(line)) {
            picks[(*ret_count)++] = (struct pick){.index = index, .group = line->group};
        }
    }
    return err;
}

static struct slice sender_of(const struct control_address *sender)
{
    bool is_null = slice_equal(sender->channel, SLICE("error")) ||
                   slice_equal(sender->user, SLICE("-")) || slice_equal(sender->user, SLICE("<>"));

    return is_null ? SLICE("") : sender->user;
}

/* Writes the router file for recipients of one group. */
static int write_one(struct postoffice *po, const struct post_file *file,
                     const struct post_view *view, const struct pick *picks, size_t count,
                     const struct spool_content *content)
{
    const struct spool_message m = {.sender =
                                        sender_of(&view->control.groups[picks[0].group].sender),
                                    .envid = post_envid(file),
                                    .flags = file->flags};
    struct spool_rcpt *rcpts = mem_array(count, sizeof *rcpts);
    const struct spool_new n = {
        .m = &m, .rcpts = rcpts, .rcpt_count = (uint32_t)count, .content = content};
    int err;

    for (size_t i = 0; i < count; i++) {
        const struct control_rcpt *line =
            control_file_find(&view->control, file->rcpts[picks[i].index].offset);
        struct slice orcpt = control_dsn_word(line->dsn, SLICE("ORCPT"));

        rcpts[i] = (struct spool_rcpt){.address = line->address.user,
                                       .orcpt = orcpt.len <= DSN_ORCPT_MAX ? orcpt : SLICE(""),
                                       .notify = control_notify(line->dsn)};
    }
    err = router_file_write(po, (struct msg_id){table_next_id(&po->table)}, &n, true);
    mem_free(rcpts);
    return err;
}

/* Marks the recipients as done, once the router file is safe. */
static void hand_over(struct postoffice *po, struct post_file *file, const struct post_view *view,
                      const struct pick *picks, size_t count)
{
    struct post_work *work = work_on(po, file);
    size_t before = work->mark_count;

    for (size_t i = 0; i < count; i++) {
        uint32_t index = picks[i].index;
        const struct control_rcpt *line =
            control_file_find(&view->control, file->rcpts[index].offset);
        uint8_t state = POST_DONE;

        work_mark(work, line->offset, '+');
        if (line->alternative) {
            end_alternative(po, file, index, view, line, false, &state);
        }
        end_rcpt(po, file, index, state, '+');
    }
    work_handed(work, before);
}

static int send_group(struct postoffice *po, struct post_file *file, const struct pick *picks,
                      size_t count)
{
    struct spool_content content = {.fd = -1};
    struct post_view *view;
    struct buf bytes;
    uint64_t size;
    int err;

    buf_init(&bytes, CONTENT_MAX);
    err = original_read(po, file, picks[0].index, &bytes, &content.fd, &size);
    err = err != 0 ? err : view_of(po, file, false, &view);
    if (err == 0) {
        content.bytes = buf_slice(&bytes);
        content.fd_size = content.fd >= 0 ? size : 0;
        err = write_one(po, file, view, picks, count, &content);
    }
    if (err == 0) {
        hand_over(po, file, view, picks, count);
    }
    if (content.fd >= 0) {
        (void)po->io->close(content.fd); /* it has no name */
    }
    buf_fini(&bytes);
    return err;
}

int reroute_rcpts(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  size_t *ret_count)
{
    struct postoffice *po = postoffice_of(sp);
    struct post_part *p;
    struct pick *picks;
    size_t pick_count, sent = 0, end;
    int err = need_part(po, id, &p);

    if (err == 0 && po->options.keep_files) {
        err = spool_fail(sp, -ENOTSUP, "reroute: nothing is handed on");
    }
    if (err != 0 || count == 0) {
        return err;
    }
    picks = mem_array(count, sizeof *picks);
    err = choose(po, id, ns, count, p, picks, &pick_count);
    while (err == 0 && sent < pick_count) {
        for (end = sent + 1; end < pick_count && picks[end].group == picks[sent].group; end++) {
        }
        err = send_group(po, p->file, &picks[sent], end - sent);
        sent = err == 0 ? end : sent;
    }
    mem_free(picks);
    if (err != 0) {
        return sent > 0 ? spool_batch_failed(sp, err) : err;
    }
    arrange_root(po, p->file);
    *ret_count = sent;
    return 0;
}
