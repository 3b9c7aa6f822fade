#include "classify.h"

#include <string.h>

#include "log.h"
#include "mem.h"
#include "nexthop.h"

/* Maximum bytes of an unfolded value; more than the longest name, so that a longer name is
 * refused. */
#define VALUE_MAX 1000
/* Maximum bytes of Precedence: a word and a comment. */
#define PRECEDENCE_MAX 40

/* Numbers of the fields in the scanner. */
enum { FIELD_LIST_UNSUBSCRIBE, FIELD_LIST_ID, FIELD_PRECEDENCE, FIELD_CLASS_HEADER };

void classify_begin(struct classify *c, const struct conf *conf)
{
    classify_drop(c);
    (void)header_scan_want(&c->scan, SLICE("List-Unsubscribe"), 0);
    (void)header_scan_want(&c->scan, SLICE("List-Id"), 0);
    (void)header_scan_want(&c->scan, SLICE("Precedence"), PRECEDENCE_MAX);
    if (conf->class_header[0] != '\0') {
        c->class_header = mem_string(conf->class_header);
        (void)header_scan_want(&c->scan, slice_string(c->class_header), VALUE_MAX);
    }
}

void classify_feed(struct classify *c, struct slice content)
{
    header_scan_feed(&c->scan, content);
}

void classify_drop(struct classify *c)
{
    header_scan_fini(&c->scan);
    mem_free(c->class_header);
    c->class_header = NULL;
}

/* Is the value a word for bulk mail, perhaps with a comment or parameters after it? */
static bool is_bulk_precedence(struct slice value)
{
    static const char *const words[] = {"bulk", "list", "junk"};
    size_t len = 0;

    while (len < value.len && ascii_is_alpha(value.ptr[len])) {
        len++;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (slice_equal_nocase(slice_of(value.ptr, len), slice_string(words[i]))) {
            return true;
        }
    }
    return false;
}

static enum class_source bulk_mark(const struct header_scan *scan)
{
    return header_scan_found(scan, FIELD_LIST_UNSUBSCRIBE) ? CLASS_SOURCE_LIST_UNSUBSCRIBE
           : header_scan_found(scan, FIELD_LIST_ID)        ? CLASS_SOURCE_LIST_ID
           : is_bulk_precedence(header_scan_value(scan, FIELD_PRECEDENCE)) ? CLASS_SOURCE_PRECEDENCE
                                                                           : CLASS_SOURCE_NONE;
}

static struct slice class_of_header(const struct classify *c, const char *client,
                                    char room[CLASS_NAME_MAX])
{
    struct slice name = slice_of(NULL, 0), value;

    if (c->class_header == NULL || !header_scan_found(&c->scan, FIELD_CLASS_HEADER)) {
        return name;
    }
    value = header_scan_value(&c->scan, FIELD_CLASS_HEADER);
    if (!class_name_parse(value, room, &name)) {
        log_warning("%s: %s: `%.*s' is no name of a class and is ignored", client, c->class_header,
                    SLICE_ARGS(value));
    }
    return name;
}

static struct slice class_of_listener(const struct conf *conf, const char *url,
                                      char room[CLASS_NAME_MAX])
{
    struct slice given = listen_options_of(&conf->listen, url).class_name, name = slice_of(NULL, 0);

    (void)class_name_parse(given, room, &name); /* conf_load checked it; empty without a class */
    return name;
}

struct classified classify_end(const struct classify *c, const struct conf *conf, bool may_name,
                               struct slice of_login, const char *url, const char *client,
                               char room[CLASS_NAME_MAX])
{
    struct classified class = {.source = CLASS_SOURCE_HEADER};

    if (header_scan_was_cut(&c->scan)) {
        log_info("%s: the header is longer than %u bytes; what follows is not looked at for the "
                 "class of the message",
                 client, HEADER_SCAN_BYTES_MAX);
    }
    if (may_name) {
        class.name = class_of_header(c, client, room);
    }
    if (class.name.len == 0 && of_login.len > 0) {
        class.source = CLASS_SOURCE_LOGIN;
        (void)class_name_parse(of_login, room, &class.name); /* the parent checked it */
    }
    if (class.name.len == 0 && url != NULL) {
        class.source = CLASS_SOURCE_LISTENER;
        class.name = class_of_listener(conf, url, room);
    }
    if (class.name.len == 0) {
        class.source = bulk_mark(&c->scan);
    }
    return class;
}
