#include "report_form.h"

#include "mem.h"

void report_form_init(struct report_form *form, const struct report_layout *layout)
{
    *form = (struct report_form){.layout = layout, .subject = mem_string("")};
    buf_init(&form->headers, REPORT_FORM_WIRE_MAX);
    buf_init(&form->text, REPORT_FORM_WIRE_MAX);
}

void report_form_fini(struct report_form *form)
{
    buf_fini(&form->headers);
    buf_fini(&form->text);
    mem_free(form->subject);
    for (size_t i = 0; i < form->copy_count; i++) {
        mem_free(form->copies[i]);
    }
    *form = (struct report_form){.copy_count = 0};
}

bool report_form_has_header(const struct report_form *form, struct slice name)
{
    struct slice rest = buf_slice(&form->headers);

    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        if (slice_equal_nocase(slice_of(line.ptr, slice_find(line, ':')), name)) {
            return true;
        }
    }
    return false;
}
