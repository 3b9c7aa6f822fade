/*
 * Configurations of Postfix made of arbitrary bytes: main.cf, master.cf and one table, with a NUL
 * between them.
 *
 * Wanted, beside no crash: the import ends, and its result loads. Every fault that the check finds
 * belongs to a line that can be left out.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "conf.h"
#include "main_cf.h"

#define TEXT_MAX (64u << 20)

static struct slice parts[3];

static int read_part(void *arg, const char *path, size_t max, struct buf *out)
{
    struct slice part = parts[2];

    (void)arg;
    if (strncmp(path, "/etc/postfix/", 13) != 0 ||
        strcmp(path, "/etc/postfix/main.cf/main.cf") == 0) {
        return -ENOENT;
    }
    part = strcmp(path, "/etc/postfix/main.cf") == 0     ? parts[0]
           : strcmp(path, "/etc/postfix/master.cf") == 0 ? parts[1]
                                                         : part;
    return part.len <= max && buf_add(out, part) ? 0 : -EFBIG;
}

static bool loads(struct slice text, struct buf *ret_faults)
{
    static const struct conf_world world = {.hostname = "mail.example.org", .read = read_part};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(text, "/etc/sluice.conf", "/etc", &world, &problems);
    bool ok = conf != NULL;

    conf_print_problems(ret_faults, &problems);
    conf_problems_fini(&problems);
    conf_free(conf);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct main_cf_world world = {.hostname = "mail.example.org",
                                        .read = read_part,
                                        .check = loads,
                                        .check_path = "/etc/sluice.conf"};
    struct slice rest = slice_of(data, size);
    struct import_report report;
    struct buf out, faults;

    parts[0] = slice_cut(&rest, '\0');
    parts[1] = slice_cut(&rest, '\0');
    parts[2] = rest;
    buf_init(&out, TEXT_MAX);
    buf_init(&faults, TEXT_MAX);
    CHECK(main_cf_import("/etc/postfix", &world, &out, &report) == 0);
    CHECK(loads(buf_slice(&out), &faults));
    for (size_t i = 0; i < report.note_count; i++) {
        CHECK(strcmp(report.notes[i].name, "config check") != 0);
    }
    import_report_fini(&report);
    buf_fini(&out);
    buf_fini(&faults);
    return 0;
}
