/*
 * Dialects: what a configuration means that was written for another mail system.
 *
 * Grammar, parameters and policies are the same for all. A dialect knows when a configuration is
 * one of its system: the url of the spool begins as that system's store does, or the dialect
 * recognises the configuration by other things. It is then the configuration's dialect (at most
 * one is), gives parameters other built-in defaults, and says how its store differs. A program
 * registers the dialects that it knows before it loads a configuration.
 *
 *     text read --begin, of each dialect--> data of its own, the configuration's dialect known
 *          --values evaluated, with preset of that one; policies computed, with adjust-->
 *          --finish, of each dialect--> its values rewritten, its rules checked
 *
 * A dialect may read what conf_private.h has, and changes only what it says here. Its data are from
 * the configuration's pool. What is wrong goes to `problems`.
 */
#ifndef CONF_DIALECT_H
#define CONF_DIALECT_H

#include <stdbool.h>

#include "slice.h"

struct buf;
struct conf;
struct conf_private;
struct conf_problems;
struct param;
struct policy;

#define CONF_DIALECTS_MAX 4

/* No pointer is NULL. */
struct conf_dialect {
    const char *spool_prefix; /* of its urls; what follows it is the path of a directory */

    /* How its store differs from ours (conf_spool_is_shared, conf_spool_routes in conf.h). */
    bool is_shared;
    bool routes;
    bool by_mailbox;    /* of `routes`: with a recipient limit of 1 each mailbox is a destination */
    bool uses_services; /* its queue process talks to services of that system on Unix sockets */

    /* Where a program of that system's leaves the configuration it has made, for those who look;
     * NULL: nowhere. */
    const char *made_path;

    const char *manual; /* paragraphs for sluice.conf(5), in mdoc, with .Pp before each */
    const char
        *params; /* what may stand behind PARAM, for an error message: "mailqsock or authfile" */

    /* The name in our table of what stands behind PARAM; NULL: none. */
    const char *(*param_named)(struct slice name);
    /* `directory` is that of the configuration file. True: the configuration is one of this
     * system. Only *ret_data, for conf_dialect_data, is to be set. */
    bool (*begin)(struct conf_private *inner, const char *directory, struct conf_problems *problems,
                  void **ret_data);
    /* The built-in default of a parameter in a configuration of this system; NULL: that of the
     * table. */
    const char *(*preset)(const void *data, const struct param *p);
    /* The last word on a policy in a configuration of this system. */
    void (*adjust)(struct policy *policy);
    /* In every configuration: all values, paths and policies are there. */
    void (*finish)(struct conf *conf, struct conf_problems *problems);
    /* As conf_put_delayed in conf.h. */
    void (*put_delayed)(const struct conf *old, const struct conf *new, struct buf *out);
};

/* From now on configurations are read with it. `dialect` lasts as long as the program; registered
 * again it changes nothing. */
void conf_dialect_register(const struct conf_dialect *dialect);

/* The first made_path of a registered dialect where there is a file; NULL: there is none. */
const char *conf_dialect_made(void);

/* The data that `begin` made for this configuration. */
void *conf_dialect_data(const struct conf_private *inner, const struct conf_dialect *dialect);

/* ---- for conf.c and its like ---------------------------------------------------------------- */

void dialects_begin(struct conf_private *inner, const char *directory,
                    struct conf_problems *problems);
void dialects_finish(struct conf *conf, struct conf_problems *problems);
const char *dialects_preset(const struct conf_private *inner, const struct param *p);
/* The parameter that stands behind PARAM under this name; NULL: none. */
const struct param *dialects_param(struct slice name);
/* Does a registered dialect's store have such a url? */
bool dialects_know_spool(struct slice url);
/* The number of a dialect, in the order of registration; NULL behind the last one. */
const struct conf_dialect *dialects_at(size_t n);

#endif
