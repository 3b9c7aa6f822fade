/* Steps of each stage: the packets for a filter, with their macros. */
#include "filters_private.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "header.h"
#include "mem.h"

/* Bytes of body per step: as many as a packet of the protocol has. */
#define PIECE_SIZE MILTER_BODY_MAX
/* Maximum macros of one step. */
#define MACROS_MAX 8

static bool is_new_helo(const struct filters *f, const struct link *l)
{
    size_t len = strlen(f->helo);

    return l->helo == NULL || strncmp(l->helo, f->helo, len) != 0 ||
           strcmp(l->helo + len, f->tls) != 0;
}

static void keep_helo(const struct filters *f, struct link *l)
{
    size_t helo = strlen(f->helo), tls = strlen(f->tls);

    mem_free(l->helo);
    l->helo = mem_array(helo + tls + 1, 1);
    memcpy(l->helo, f->helo, helo);
    memcpy(l->helo + helo, f->tls, tls + 1);
}

/* Returns the word after `marker` in a description of TLS, or the first word if `marker` is NULL;
 * empty without the marker. */
static struct slice word_behind(const char *text, const char *marker)
{
    const char *at = marker == NULL ? text : strstr(text, marker);
    size_t skip = marker == NULL || at == NULL ? 0 : strlen(marker);

    return at == NULL ? SLICE("") : slice_of(at + skip, strcspn(at + skip, " /)"));
}

static void take_connect(struct filters *f, struct link *l)
{
    char client[FILTERS_TEXT_MAX], port[8];
    struct slice ip = slice_string(f->ip);

    (void)snprintf(client, sizeof client, "%s [%s]", f->name, f->ip); /* or is cut */
    (void)snprintf(port, sizeof port, "%u", f->port);                 /* fits */
    const struct milter_macro macros[] = {
        {"j", slice_string(f->set->hostname)},
        {"{daemon_name}", slice_string(f->set->daemon_name)},
        {"v", slice_string(f->set->version)},
        {"_", slice_string(client)},
        {"{client_name}", slice_string(f->name)},
        {"{client_ptr}", slice_string(f->name)},
        {"{client_addr}", ip},
        {"{client_port}", slice_string(port)},
    };
    _Static_assert(sizeof macros / sizeof macros[0] <= MACROS_MAX, "all that are known");

    milter_macros(&l->milter, MILTER_AT_CONNECT, macros, sizeof macros / sizeof macros[0]);
    milter_connect(&l->milter, slice_string(f->name), f->family, ip, f->port, clock_mono());
    l->connected = true;
}

static void take_helo(struct filters *f, struct link *l)
{
    const struct milter_macro macros[] = {
        {"{tls_version}", word_behind(f->tls, NULL)},
        {"{cipher}", word_behind(f->tls, "cipher ")},
        {"{cipher_bits}", word_behind(f->tls, "(")},
    };

    if (f->tls[0] != '\0') {
        milter_macros(&l->milter, MILTER_AT_HELO, macros, sizeof macros / sizeof macros[0]);
    }
    milter_helo(&l->milter, slice_string(f->helo), clock_mono());
    keep_helo(f, l);
}

static void take_mail(struct filters *f, struct link *l)
{
    struct milter_macro macros[MACROS_MAX] = {{"i", slice_string(f->id)},
                                              {"{mail_addr}", slice_string(f->sender)}};
    size_t count = 2;

    if (f->user[0] != '\0') {
        macros[count++] = (struct milter_macro){"{auth_type}", slice_string(f->mechanism)};
        macros[count++] = (struct milter_macro){"{auth_authen}", slice_string(f->user)};
    }
    milter_macros(&l->milter, MILTER_AT_MAIL, macros, count);
    milter_mail(&l->milter, slice_string(f->sender), slice_string(f->parameters), clock_mono());
    l->in_message = true;
}

static void take_rcpt(struct filters *f, struct link *l)
{
    const struct milter_macro macros[] = {{"i", slice_string(f->id)},
                                          {"{rcpt_addr}", slice_string(f->rcpt)}};

    milter_macros(&l->milter, MILTER_AT_RCPT, macros, sizeof macros / sizeof macros[0]);
    milter_rcpt(&l->milter, slice_string(f->rcpt), SLICE(""), clock_mono());
}

static void put_id(const struct filters *f, struct link *l, enum milter_macros_of step)
{
    const struct milter_macro id = {"i", slice_string(f->id)};

    milter_macros(&l->milter, step, &id, 1);
}

/* Advances f->rcpt to the next recipient of a complete message. Returns false after the last. */
static bool next_rcpt(struct filters *f)
{
    struct slice address;

    if (f->draft == NULL) {
        return true; /* f->rcpt is the recipient of the question */
    }
    if (!draft_next_rcpt(f->draft, &f->rcpt_at, &address)) {
        return false;
    }
    mem_free(f->rcpt);
    f->rcpt = mem_copy(address.ptr, address.len);
    return true;
}

static bool take_header(struct filters *f, struct link *l)
{
    struct slice header = draft_header(f->draft), rest = slice_skip(header, f->header_at);
    struct header_field field;

    if (!milter_wants_content(&l->milter) || !header_next(&rest, &field)) {
        return false;
    }
    f->header_at = header.len - rest.len;
    milter_header(&l->milter, field.name, field.value, clock_mono());
    return true;
}

static bool take_body(struct filters *f, struct link *l)
{
    char piece[PIECE_SIZE];
    size_t len = milter_wants_body(&l->milter)
                     ? draft_read_body(f->draft, f->body_at, piece, sizeof piece)
                     : 0;

    if (len == 0) {
        return false;
    }
    f->body_at += len;
    milter_body(&l->milter, slice_of(piece, len), clock_mono());
    return true;
}

bool filter_step(struct filters *f, struct link *l)
{
    switch (f->stage) {
    case STAGE_CONNECT:
        if (l->connected) {
            return false;
        }
        take_connect(f, l);
        return true;
    case STAGE_HELO:
        if (!is_new_helo(f, l)) {
            return false;
        }
        take_helo(f, l);
        return true;
    case STAGE_MAIL:
        if (l->in_message) {
            return false;
        }
        take_mail(f, l);
        return true;
    case STAGE_RCPT:
        if ((f->draft == NULL && f->rcpt_at++ > 0) || !next_rcpt(f)) {
            return false;
        }
        take_rcpt(f, l);
        return true;
    case STAGE_DATA:
        if (f->rcpt_at++ > 0) {
            return false;
        }
        put_id(f, l, MILTER_AT_DATA);
        milter_data(&l->milter, clock_mono());
        return true;
    case STAGE_HEADER:
        return take_header(f, l);
    case STAGE_END_OF_HEADER:
        if (f->rcpt_at++ > 0) {
            return false;
        }
        put_id(f, l, MILTER_AT_END_OF_HEADER);
        milter_end_of_header(&l->milter, clock_mono());
        return true;
    case STAGE_BODY:
        return take_body(f, l);
    case STAGE_END:
        if (f->rcpt_at++ > 0) {
            return false;
        }
        put_id(f, l, MILTER_AT_END);
        milter_end(&l->milter, clock_mono());
        return true;
    case STAGE_DONE:
        break;
    }
    UNREACHABLE("a stage that is none");
}
