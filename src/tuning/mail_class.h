/*
 * The class of a message, decided by the configuration from what its header, its listener and its
 * sender say (classify.h reads the header).
 */
#ifndef TUNING_MAIL_CLASS_H
#define TUNING_MAIL_CLASS_H

#include <stdbool.h>

#include "class_name.h"
#include "conf.h"
#include "slice.h"

/* A class; the name is empty for none. */
struct classified {
    struct slice name;
    enum class_source source;
};

/* May mail have a class at all? */
bool classes_are_used(const struct conf *conf);

/* The class of mail from `sender` for which classify_end has said this; likewise. */
struct classified class_decide(const struct conf *conf, struct classified given,
                               struct slice sender, char room[CLASS_NAME_MAX]);

/* The class of a report of ours from `sender`; likewise. */
struct classified class_of_report(const struct conf *conf, struct slice sender,
                                  char room[CLASS_NAME_MAX]);

/* The class whose turns a stored message takes: its own, or, where it was stored without one,
 * `personal` if that is the class of unmarked mail. */
struct slice class_in_force(const struct conf *conf, struct slice stored);

#endif
