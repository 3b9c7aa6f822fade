#include "classify.h"

#include <string.h>

#include "header.h"
#include "log.h"
#include "nexthop.h"

/* Of a value, folding included; the longest name and then some. */
#define VALUE_MAX 1000

struct slice class_of_header(const struct conf *conf, struct slice content, const char *client,
                             char room[CLASS_NAME_MAX])
{
    struct slice name = slice_of(NULL, 0);
    struct header_field field;
    struct buf value;

    if (conf->class_header[0] == '\0' ||
        !header_find(content, slice_string(conf->class_header), &field)) {
        return name;
    }
    buf_init(&value, VALUE_MAX);
    if (!header_unfold(field.value, &value) || !class_name_parse(buf_slice(&value), room, &name)) {
        log_warning("%s: %s: `%.*s' is no name of a class and is ignored", client,
                    conf->class_header, SLICE_ARGS(buf_slice(&value)));
    }
    buf_fini(&value);
    return name;
}

struct slice class_of_listener(const struct conf *conf, const char *url, char room[CLASS_NAME_MAX])
{
    struct slice given, name = slice_of(NULL, 0);
    const char *candidate;

    for (size_t at = 0; listen_next(&conf->listen, &at, &candidate, &given);) {
        if (strcmp(candidate, url) == 0) {
            (void)class_name_parse(given, room, &name); /* conf_load checked it; none: empty */
            break;
        }
    }
    return name;
}

bool classes_are_used(const struct conf *conf)
{
    struct slice given;
    const char *url;

    if (conf->class_header[0] != '\0' || conf->default_class != CONF_DEFAULT_CLASS_NONE) {
        return true;
    }
    for (size_t at = 0; listen_next(&conf->listen, &at, &url, &given);) {
        if (given.len > 0) {
            return true;
        }
    }
    return false;
}

struct slice class_by_default(const struct conf *conf, struct slice sender,
                              char room[CLASS_NAME_MAX])
{
    return conf->default_class == CONF_DEFAULT_CLASS_SENDER ? class_name_of_sender(sender, room)
                                                            : slice_of(NULL, 0);
}
