#include "mail_class.h"

#include "nexthop.h"

bool classes_are_used(const struct conf *conf)
{
    struct listen_options options;
    const char *url;

    if (conf->class_header[0] != '\0' || conf->default_class != CONF_DEFAULT_CLASS_NONE) {
        return true;
    }
    for (size_t at = 0; listen_next(&conf->listen, &at, &url, &options);) {
        if (options.class_name.len > 0) {
            return true;
        }
    }
    return false;
}

struct classified class_decide(const struct conf *conf, struct classified given,
                               struct slice sender, char room[CLASS_NAME_MAX])
{
    if (given.name.len > 0) {
        return given;
    }
    switch ((enum conf_default_class)conf->default_class) {
    case CONF_DEFAULT_CLASS_SENDER:
        return (struct classified){class_name_of_sender(sender, room), CLASS_SOURCE_SENDER};
    case CONF_DEFAULT_CLASS_AUTO:
        return given.source != CLASS_SOURCE_NONE
                   ? (struct classified){SLICE(CLASS_NAME_BULK), given.source}
                   : (struct classified){SLICE(CLASS_NAME_PERSONAL), CLASS_SOURCE_DEFAULT};
    case CONF_DEFAULT_CLASS_NONE:
        break;
    }
    return (struct classified){.source = CLASS_SOURCE_NONE};
}

struct classified class_of_report(const struct conf *conf, struct slice sender,
                                  char room[CLASS_NAME_MAX])
{
    struct classified class =
        class_decide(conf, (struct classified){.source = CLASS_SOURCE_NONE}, sender, room);

    if (class.source == CLASS_SOURCE_DEFAULT) {
        class.source = CLASS_SOURCE_REPORT;
    }
    return class;
}

struct slice class_in_force(const struct conf *conf, struct slice stored)
{
    return stored.len == 0 && conf->default_class == CONF_DEFAULT_CLASS_AUTO
               ? SLICE(CLASS_NAME_PERSONAL)
               : stored;
}
