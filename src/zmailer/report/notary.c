#include "notary.h"

#include "status.h"

#define SEPARATOR '\1'

void notary_parse(struct slice text, struct notary *ret_notary)
{
    *ret_notary = (struct notary){.address = slice_cut(&text, SEPARATOR)};
    ret_notary->action = slice_cut(&text, SEPARATOR);
    ret_notary->status = slice_cut(&text, SEPARATOR);
    ret_notary->diagnostic = slice_cut(&text, SEPARATOR);
    ret_notary->host = slice_cut(&text, SEPARATOR);
    ret_notary->agent = text;
}

static void put_field(struct buf *out, struct slice field)
{
    for (size_t i = 0; i < field.len; i++) {
        char c = field.ptr[i];
        bool ends = c == SEPARATOR || c == '\n' || c == '\t' || c == '\0';

        (void)buf_add_byte(out, ends ? ' ' : c); /* the caller checks the limit */
    }
}

void notary_put(struct buf *out, const struct notary *n)
{
    const struct slice fields[] = {n->address, n->action, n->status, n->diagnostic, n->host};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (i > 0) {
            (void)buf_add_byte(out, SEPARATOR);
        }
        put_field(out, fields[i]);
    }
    if (n->agent.len > 0) {
        (void)buf_add_byte(out, SEPARATOR);
        put_field(out, n->agent);
    }
}

struct slice notary_status(const struct notary *n)
{
    struct status status;
    size_t len = 0;

    return status_prefix(n->status, &status, &len) ? slice_of(n->status.ptr, len) : slice_of("", 0);
}

struct slice notary_host(const struct notary *n)
{
    struct slice host = n->host, type = slice_cut(&host, ';');

    host = slice_trim(host.ptr == NULL ? type : host);
    return slice_of(host.ptr, slice_find(host, ' '));
}
