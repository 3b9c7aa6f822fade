/*
 * The class of a message, as the configuration determines it from the message's header (read by
 * classify.h), listener and sender.
 */
#ifndef TUNING_MAIL_CLASS_H
#define TUNING_MAIL_CLASS_H

#include <stdbool.h>

#include "class_name.h"
#include "conf.h"
#include "slice.h"

/* A class and its source; the name is empty without a class. */
struct classified {
    struct slice name;
    enum class_source source;
};

/* Can mail have a class at all with this configuration? */
bool classes_are_used(const struct conf *conf);

/* Returns the class of mail from `sender`; `given` is the result of classify_end. The name is that
 * of `given`, static, or in `room`. */
struct classified class_decide(const struct conf *conf, struct classified given,
                               struct slice sender, char room[CLASS_NAME_MAX]);

/* Returns the class of our own report from `sender`; its name lasts as that of class_decide. */
struct classified class_of_report(const struct conf *conf, struct slice sender,
                                  char room[CLASS_NAME_MAX]);

/* Returns the class under which a stored message takes turns: its own, or, if it was stored without
 * one, `personal` with default_class = auto. */
struct slice class_in_force(const struct conf *conf, struct slice stored);

#endif
