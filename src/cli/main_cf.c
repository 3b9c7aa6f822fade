/*
 * Rounds of an import (main_cf_private.h). One round imports everything into an empty report. If
 * the check of the whole configuration refuses lines, the next round leaves them out.
 */
#include "main_cf.h"

#include <string.h>

#include "conf.h"
#include "main_cf_private.h"
#include "mem.h"
#include "param.h"

#define FAULTS_MAX (1u << 20)
#define ROUNDS_MAX 50
#define TEXT_MAX   (16u << 20)

/* ---- lines and notes ------------------------------------------------------------------------ */

const char *import_text(struct main_cf *im, const char *format, ...)
{
    struct buf out;
    const char *text;
    va_list args;

    buf_init(&out, TEXT_MAX);
    va_start(args, format);
    (void)buf_addv(&out, format, args); /* or is cut */
    va_end(args);
    text = pool_string(&im->f.pool, buf_slice(&out));
    buf_fini(&out);
    return text;
}

const char *import_place(struct main_cf *im, const char *file, unsigned line)
{
    return line == 0 ? file : import_text(im, "%s:%u", file, line);
}

const char *import_refused(const struct main_cf *im, const char *name)
{
    for (size_t i = 0; i < im->rejected_count; i++) {
        if (strcmp(im->rejected[i].name, name) == 0) {
            return im->rejected[i].why;
        }
    }
    return NULL;
}

void import_lost(struct main_cf *im, enum import_danger danger, const char *place,
                 const struct postfix_param *from, const char *why)
{
    import_note(im->report, IMPORT_LOST, danger, place, from->name, from->value, why);
}

void import_fine(struct main_cf *im, enum import_outcome outcome, const char *place,
                 const struct postfix_param *from, const char *why)
{
    import_note(im->report, outcome, DANGER_OTHER, place, from->name, from->value, why);
}

bool import_parses(const struct param *p, const char *value, struct pool *pool,
                   struct slice *ret_bad)
{
    union {
        struct conf conf;
        struct policy policy;
    } *room = mem_new(sizeof *room);
    bool good = param_parse(p, slice_string(value), pool, room, ret_bad);

    mem_free(room);
    return good;
}

/* Returns the fault of a value of ours; NULL: none. */
const char *import_fault(struct main_cf *im, const char *name, const char *value)
{
    struct slice transport, unknown, bad;
    const struct param *p = param_find(slice_string(name));
    const char *expanded = postfix_expand(&im->f, NULL, slice_string(value), false, &unknown);
    const char *fault;
    struct buf why;

    p = p != NULL ? p : param_find_override(slice_string(name), &transport);
    if (strlen(name) + strlen(value) > CONF_LINE_MAX - sizeof " = ") {
        return "the line would be longer than 65536 bytes";
    }
    if (p == NULL || (strcmp(p->unit, "raw") != 0 && expanded == NULL) ||
        strpbrk(value, "\r\n") != NULL) {
        return "there is nothing like it here";
    }
    if (import_parses(p, strcmp(p->unit, "raw") == 0 ? value : expanded, &im->f.pool, &bad)) {
        return NULL;
    }
    buf_init(&why, CONF_LINE_MAX);
    (void)buf_add_string(&why, "expected "); /* sticky, like the others */
    param_add_expected(&why, p);
    (void)buf_addf(&why, ", got `%.*s'", SLICE_ARGS(bad));
    why.failed = false;
    fault = import_text(im, "%s", buf_cstr(&why));
    buf_fini(&why);
    return fault;
}

const char *import_why_not(struct main_cf *im, const char *name, const char *value)
{
    const char *why = import_refused(im, name);

    return why != NULL ? why : import_fault(im, name, value);
}

bool import_put(struct main_cf *im, const char *name, const char *value, const char *place,
                const struct postfix_param *from, const char **ret_why)
{
    const char *why = import_why_not(im, name, value);

    if (why != NULL) {
        *ret_why = why;
        return false;
    }
    import_line(im->report, name,
                import_text(im, "%s =%s%s", name, value[0] == '\0' ? "" : " ", value), place,
                from == NULL ? SLICE("") : from->name, from == NULL ? SLICE("") : from->value);
    return true;
}

enum import_danger import_danger_of(const char *name)
{
    struct slice transport;
    const struct param *p = param_find_override(slice_string(name), &transport);
    static const struct {
        const char *name;
        enum import_danger danger;
    } dangers[] = {
        {"relayhost", DANGER_LOSS},
        {"relay_auth", DANGER_LOSS},
        {"transport_maps", DANGER_LOSS},
        {"sender_dependent_relayhost_maps", DANGER_LOSS},
        {"default_transport", DANGER_LOSS},
        {"relay_transport", DANGER_LOSS},
        {"local_transport", DANGER_LOSS},
        {"fallback_transport", DANGER_LOSS},
        {"virtual_alias_maps", DANGER_LOSS},
        {"canonical_maps", DANGER_LOSS},
        {"sender_canonical_maps", DANGER_LOSS},
        {"recipient_canonical_maps", DANGER_LOSS},
        {"alias_maps", DANGER_LOSS},
        {"soft_bounce", DANGER_LOSS},
        {"defer_transports", DANGER_LOSS},
        {"smtp_tls_CAfile", DANGER_LOSS},
        {"maximal_queue_lifetime", DANGER_LOSS},
        {"bounce_queue_lifetime", DANGER_LOSS},
        {"local_domains", DANGER_REFUSAL},
        {"relay_domains", DANGER_REFUSAL},
        {"virtual_alias_domains", DANGER_REFUSAL},
        {"relay_networks", DANGER_REFUSAL},
        {"listen", DANGER_REFUSAL},
        {"message_size_limit", DANGER_REFUSAL},
        {"mydestination", DANGER_REFUSAL},
        {"virtual_mailbox_domains", DANGER_REFUSAL},
        {"virtual_transport", DANGER_LOSS},
        {"mailbox_transport", DANGER_LOSS},
        {"smtp_sasl_password_maps", DANGER_LOSS},
        {"smtp_tls_policy_maps", DANGER_CLEAR},
        {"smtpd_tls_cert_file", DANGER_CLEAR},
        {"smtpd_tls_chain_files", DANGER_CLEAR},
        {"smtpd_sasl_path", DANGER_REFUSAL},
        {"inet_interfaces", DANGER_REFUSAL},
        {"mynetworks", DANGER_RELAY},
        {"smtpd_sender_login_maps", DANGER_ACCEPT},
        {"auth_dovecot", DANGER_REFUSAL},
        {"smtp_tls_security_level", DANGER_CLEAR},
        {"tls_cert", DANGER_CLEAR},
        {"smtpd_tls_security_level", DANGER_CLEAR},
        {"local_recipient_maps", DANGER_ACCEPT},
        {"relay_recipient_maps", DANGER_ACCEPT},
        {"smtpd_milters", DANGER_ACCEPT},
        {"non_smtpd_milters", DANGER_ACCEPT},
        {"content_filter", DANGER_ACCEPT},
        {"header_checks", DANGER_ACCEPT},
        {"body_checks", DANGER_ACCEPT},
    };

    for (size_t i = 0; i < sizeof dangers / sizeof dangers[0]; i++) {
        if (strcmp(dangers[i].name, name) == 0 ||
            (p != NULL && strcmp(dangers[i].name, p->name) == 0)) {
            return dangers[i].danger;
        }
    }
    return import_is_restriction(slice_string(name)) ? DANGER_ACCEPT : DANGER_OTHER;
}

/* Does mail to others go the wrong way without this parameter of ours? */
static bool leads_mail_out(const char *name)
{
    static const char *const names[] = {"relay_transport",
                                        "smtp_sasl_password_maps",
                                        "smtp_tls_policy_maps",
                                        "relayhost",
                                        "relay_auth",
                                        "transport_maps",
                                        "sender_dependent_relayhost_maps",
                                        "default_transport",
                                        "smtp_tls_security_level"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds a note about a setting whose line `name` is missing. */
void import_lose(struct main_cf *im, const char *name, const char *place,
                 const struct postfix_param *from, const char *why)
{
    im->report->hold_outgoing = im->report->hold_outgoing || leads_mail_out(name);
    import_lost(im, import_danger_of(name), place, from, why);
}

bool import_put_noted(struct main_cf *im, const char *name, const char *value, const char *place,
                      const struct postfix_param *from)
{
    const char *why;

    if (!import_put(im, name, value, place, from, &why)) {
        import_lose(im, name, place, from, why);
        return false;
    }
    import_fine(im,
                is(from->name, name) && is(from->value, value) ? IMPORT_SAME : IMPORT_TRANSLATED,
                place, from, "");
    return true;
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* Is there a note about this setting, or a line that was made of it? */
static bool is_noted(const struct import_report *r, struct slice name)
{
    for (size_t i = 0; i < r->note_count; i++) {
        if (is(name, r->notes[i].name)) {
            return true;
        }
    }
    for (size_t i = 0; i < r->line_count; i++) {
        if (is(name, r->lines[i].source)) {
            return true;
        }
    }
    return false;
}

/* Adds a note for each setting that belongs to others which main.cf does not have, or which were
 * lost. */
static void note_unused(struct main_cf *im)
{
    for (size_t i = 0; i < im->f.param_count; i++) {
        const struct postfix_param *p = &im->f.params[i];

        if (!p->hidden && !is_noted(im->report, p->name)) {
            import_fine(im, IMPORT_NEEDLESS, import_place(im, "main.cf", p->line), p,
                        "has no effect without the settings that it belongs to");
        }
    }
}

/* Adds a note for each option -o whose value can't be expanded. */
static void note_unknown(struct main_cf *im)
{
    for (size_t i = 0; i < im->f.service_count; i++) {
        const struct postfix_service *s = im->f.services[i];

        for (size_t k = 0; k < s->option_count; k++) {
            const struct postfix_param *o = &s->options[k];
            struct slice unknown;

            if (postfix_expand(&im->f, s, o->value, false, &unknown) == NULL) {
                import_lose(im, pool_string(&im->f.pool, o->name),
                            import_place(im, "master.cf", s->line), o,
                            import_text(im, "$%.*s is not known", SLICE_ARGS(unknown)));
            }
        }
    }
}

static void import_round(struct main_cf *im)
{
    import_find_mx(im);
    for (size_t i = 0; i < im->f.fault_count; i++) {
        const struct postfix_fault *fault = &im->f.faults[i];
        const struct postfix_param from = {.name = fault->name, .value = SLICE("")};
        const char *place = import_place(im, fault->file, fault->line);

        if (fault->is_limit) {
            im->report->hold_outgoing = true;
            import_lost(im, DANGER_LOSS, place, &from, fault->why);
        } else {
            import_lose(im, pool_string(&im->f.pool, fault->name), place, &from, fault->why);
        }
    }
    import_certificate(im);
    import_dovecot(im);
    import_restrictions(im);
    for (size_t i = 0; i < im->f.param_count; i++) {
        if (!im->f.params[i].hidden) {
            import_param(im, &im->f.params[i]);
        }
    }
    note_unknown(im);
    import_listeners(im);
    import_transports(im);
    import_domains(im);
    import_deferred(im);
    note_unused(im);
}

/* Rejections, which last as long as the rounds. */
struct rejections {
    struct pool pool;
    struct import_rejected at[IMPORT_REJECTED_MAX];
    size_t count;
};

static bool reject(struct rejections *r, struct slice name, struct slice why)
{
    for (size_t i = 0; i < r->count; i++) {
        if (is(name, r->at[i].name)) {
            return false;
        }
    }
    if (name.len == 0 || r->count == IMPORT_REJECTED_MAX) {
        return false;
    }
    r->at[r->count++] =
        (struct import_rejected){pool_string(&r->pool, name), pool_string(&r->pool, why)};
    return true;
}

/* Rejects the listeners that a fault of `listen' names, else all. */
static bool reject_listener(struct rejections *r, const char *line, struct slice why)
{
    struct slice rest = slice_string(line), word;
    bool found = false;

    while (postfix_word(&rest, &word)) {
        if (slice_find(word, '/') < word.len &&
            memmem(why.ptr, why.len, word.ptr, word.len) != NULL) {
            found = reject(r, word, why) || found;
        }
    }
    return found || reject(r, SLICE("listen"), why);
}

/* Finds the line that a fault is about, and rejects it. Returns false if there is none. */
static bool reject_fault(struct rejections *r, const struct import_report *report,
                         const struct main_cf_world *world, struct slice fault)
{
    struct slice path = slice_string(world->check_path), rest = fault;
    const char *mark = memmem(fault.ptr, fault.len, "error: ", 7);
    const struct import_line *line = NULL;
    struct slice why = mark == NULL ? fault : slice_skip(fault, (size_t)(mark - fault.ptr) + 7);
    unsigned long long number;

    if (slice_starts(fault, path) && fault.len > path.len && fault.ptr[path.len] == ':') {
        rest = slice_skip(fault, path.len + 1);
        if (slice_number(slice_cut(&rest, ':'), UINT32_MAX, &number)) {
            line = import_line_at(report, (unsigned)number);
        }
    }
    for (size_t i = 0; line == NULL && i < report->line_count; i++) {
        struct slice name = slice_string(report->lines[i].name);
        struct slice file = slice_of(fault.ptr, slice_find(fault, ':'));

        if ((slice_starts(why, name) && why.len > name.len && why.ptr[name.len] == ':') ||
            (file.len > 1 && file.ptr[0] == '/' && !slice_equal(file, path) &&
             memmem(report->lines[i].text, strlen(report->lines[i].text), file.ptr, file.len) !=
                 NULL)) {
            line = &report->lines[i];
            why = slice_starts(why, name) ? why : fault;
        }
    }
    if (line == NULL) {
        return false;
    }
    return strcmp(line->name, "listen") == 0 ? reject_listener(r, line->text, why)
                                             : reject(r, slice_string(line->name), why);
}

/* Checks the result of a round, perhaps the last. Returns true if lines were rejected, so that
 * another round is due. */
static bool reject_faults(struct rejections *r, struct import_report *report,
                          const struct main_cf_world *world, const char *source, struct slice text,
                          bool is_last)
{
    const struct postfix_param whole = {.name = SLICE("config check"), .value = SLICE("")};
    struct slice rest;
    struct buf faults;
    bool again = false;

    buf_init(&faults, FAULTS_MAX);
    if (world->check == NULL || world->check(text, &faults)) {
        buf_fini(&faults);
        return false;
    }
    rest = buf_slice(&faults);
    while (rest.len > 0) {
        struct slice fault = slice_cut(&rest, '\n');

        if (memmem(fault.ptr, fault.len, "error: ", 7) != NULL) {
            again = reject_fault(r, report, world, fault) || again;
        }
    }
    again = again && !is_last;
    if (!again) { /* nothing that can be left out explains the faults, or there are too many */
        import_note(report, IMPORT_LOST, DANGER_LOSS, source, whole.name, whole.value,
                    buf_cstr(&faults));
    }
    buf_fini(&faults);
    return again;
}

int main_cf_import(const char *path, const struct main_cf_world *world, struct buf *out,
                   struct import_report *ret_report)
{
    struct rejections *rejections = mem_new(sizeof *rejections);
    bool again = true;
    int error = 0;

    import_report_init(ret_report);
    for (int round = 0; again && error == 0 && round < ROUNDS_MAX; round++) {
        struct main_cf im = {
            .world = world,
            .report = ret_report,
            .rejected = rejections->at,
            .rejected_count = rejections->count,
            .f = {.hostname = world->hostname, .read = world->read, .arg = world->arg},
        };

        import_report_fini(ret_report);
        import_report_init(ret_report);
        error = postfix_files_read(&im.f, path);
        if (error == 0) {
            buf_clear(out);
            import_round(&im);
            import_print(ret_report, path, out);
            again = reject_faults(rejections, ret_report, world, path, buf_slice(out),
                                  round == ROUNDS_MAX - 1);
            buf_clear(out);
            import_print(ret_report, path, out); /* with faults that nothing explains */
        }
        postfix_files_fini(&im.f);
    }
    pool_fini(&rejections->pool);
    mem_free(rejections);
    return error;
}
