/*
 * Dialects: the meaning of configurations that were written for other mail systems.
 *
 * Grammar, parameters and policies are common to all. A dialect recognizes a configuration of its
 * system by the prefix of the spool's URL, or by other properties. A configuration has at most one
 * dialect. It gives parameters other built-in defaults, and describes the properties of its store.
 * A program registers its dialects before it loads a configuration.
 *
 *     text parsed --begin, of each dialect--> its own data; the configuration's dialect is known
 *          --values evaluated, with preset of that dialect; policies computed, with adjust-->
 *          --finish, of each dialect--> its values rewritten, its rules checked
 *
 * A dialect may read everything in conf_private.h, but changes only what this file permits. Its
 * data are in the configuration's pool. Errors go to `problems`.
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
struct pool;

#define CONF_DIALECTS_MAX 4

/* A pointer is NULL only where its comment permits that. */
struct conf_dialect {
    const char *spool_prefix; /* prefix of the spool's URLs; the path of a directory follows */

    /* ---- properties of its store (conf_spool_is_shared, conf_spool_routes in conf.h) */
    bool is_shared;
    bool routes;
    bool by_mailbox;    /* with `routes`: each mailbox is a destination if the recipient limit is
                         * 1 */
    bool uses_services; /* true if its queue process connects to services of that system on Unix
                         * sockets */
    bool new_first;     /* true if new mail gets the free places of a full active queue */

    /* file with the configuration that a program of that system has made; NULL: none */
    const char *made_path;

    const char *manual; /* paragraphs for sluice.conf(5), in mdoc, each with .Pp before it */
    const char *params; /* names after PARAM, for an error message: "mailqsock or authfile" */

    /* Returns our name for a name after PARAM; NULL: none. */
    const char *(*param_named)(struct slice name);
    /* Returns true if the configuration is one of this system. `directory` is that of the
     * configuration file. Sets only *ret_data, for conf_dialect_data. */
    bool (*begin)(struct conf_private *inner, const char *directory, struct conf_problems *problems,
                  void **ret_data);
    /* Returns the built-in default of a parameter in a configuration of this system; NULL: that of
     * the table. */
    const char *(*preset)(const void *data, const struct param *p);
    /* Returns false if this system's programs refuse a `value`, as we do. If they accept it, sets
     * *ret_value to a valid text from the pool with their meaning, or to NULL if they ignore the
     * line. A NULL pointer: they refuse what we refuse. */
    bool (*tolerate)(const struct param *p, struct slice value, struct pool *pool,
                     const char **ret_value);
    /* Returns a valid pattern in place of an invalid half of a clause's pattern; it may match
     * nothing. Not NULL if `tolerate` is set. */
    struct slice (*tolerate_pattern)(struct slice pattern, struct pool *pool);
    /* Makes the last change of a policy in a configuration of this system. */
    void (*adjust)(struct policy *policy);
    /* Ends the loading of any configuration, when all values, paths and policies exist. */
    void (*finish)(struct conf *conf, struct conf_problems *problems);
    /* Appends names, as conf_put_delayed in conf.h. */
    void (*put_delayed)(const struct conf *old, const struct conf *new, struct buf *out);
};

/* Registers a dialect for later configurations. `dialect` lasts as long as the program. A second
 * call has no effect. */
void conf_dialect_register(const struct conf_dialect *dialect);

/* Returns the first made_path of a registered dialect that exists; NULL: none. */
const char *conf_dialect_made(void);

/* Returns the data that `begin` made for this configuration. */
void *conf_dialect_data(const struct conf_private *inner, const struct conf_dialect *dialect);

/* ---- for files of this room ----------------------------------------------------------------- */

void dialects_begin(struct conf_private *inner, const char *directory,
                    struct conf_problems *problems);
void dialects_finish(struct conf *conf, struct conf_problems *problems);
const char *dialects_preset(const struct conf_private *inner, const struct param *p);
/* Returns the parameter with this name after PARAM; NULL: none. */
const struct param *dialects_param(struct slice name);
/* Returns the first registered dialect with `tolerate`; NULL: none. */
const struct conf_dialect *dialects_tolerant(void);
/* Does the URL belong to the store of a registered dialect? */
bool dialects_know_spool(struct slice url);
/* Returns dialect number `n`, in the order of registration; NULL after the last. */
const struct conf_dialect *dialects_at(size_t n);

/* Does this parameter, a name of the table, have another value in the second configuration? */
bool conf_differs(const struct conf *a, const struct conf *b, const char *parameter);

#endif
