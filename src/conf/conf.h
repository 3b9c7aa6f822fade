/*
 * The configuration: one typed value per parameter, the clauses, the routing tables.
 *
 *     conf_load --ok--> struct conf, which never changes; to reload, load another and swap.
 *         |
 *         +--> struct conf_problems: all errors and warnings, with file, line and column.
 *
 * grammar.h describes the grammar and params.h has the parameters. policy.h returns the values of a
 * destination, route.h its routes. Everything borrowed from a conf lasts until conf_free.
 *
 * Paths: state_directory is relative to the directory of the configuration file. All other paths
 * are relative to state_directory, except `include` and files of maps, which are relative to the
 * directory of the configuration file. Members have the resulting path; only `raw` ones stay as
 * written.
 */
#ifndef CONF_CONF_H
#define CONF_CONF_H

#include <stdint.h>

#include "buf.h"
#include "params.h"
#include "policy.h"
#include "slice.h"

#define CONF_FILE_MAX     (4u << 20) /* bytes of one file */
#define CONF_LINE_MAX     65536u     /* bytes of one line, one value, and one expanded value */
#define CONF_CLAUSES_MAX  10000u
#define CONF_INCLUDES_MAX 100u /* maximum number of files */
#define CONF_DEPTH_MAX    16u  /* maximum depth of includes, and of $name within $name */
#define CONF_PROBLEMS_MAX 100u /* maximum of stored problems; more are only counted */

struct conf {
#define CONF_MEMBER(type, name, unit, preset, min, max, meaning) PARAM_MEMBER_##type(name)
    CONF_PARAMS(CONF_MEMBER)
#undef CONF_MEMBER
    struct policy defaults;     /* values of rule 5 of policy.h: default_name, smtp_name */
    uint64_t route_generation;  /* fingerprint of the routes (route_address) */
    uint64_t route_tables;      /* fingerprint that machines of a cluster share (route_address) */
    struct conf_private *inner; /* private to this room */
};

enum conf_severity { CONF_WARNING, CONF_ERROR };

struct conf_problem {
    enum conf_severity severity;
    char *file;            /* owned */
    unsigned line, column; /* from 1; 0: the whole file */
    char *text;            /* owned; "found .., expected .." */
};

/* Errors and warnings, in the order of discovery. */
struct conf_problems {
    struct conf_problem at[CONF_PROBLEMS_MAX];
    size_t count;   /* stored problems */
    size_t dropped; /* problems found when the table was full */
    size_t errors;  /* errors, stored and dropped */
};

/* Environment of a configuration. */
struct conf_world {
    const char *hostname; /* default of myhostname; NULL: that of the system */
    bool check_users;     /* true to check that user= and group= of clauses exist. Confined
                           * processes can't look them up and rely on their parent's check */
    bool as_root;         /* true if the daemon runs as root (with check_users): deliveries into
                           * maildirs and by commands then need a user */

    /* Reads a file: appends all of `path` to *out. Returns 0 or a negative errno, -EFBIG beyond
     * `max` bytes. NULL: the file system is read. The parent of the daemon stores what it reads, so
     * that confined processes read from that. */
    int (*read)(void *arg, const char *path, size_t max, struct buf *out);
    void *arg;
};

/* Loads the file `path`, or conf_default_text with paths below the working directory if `path` is
 * NULL. Returns NULL after an error, also if the file can't be read. Initializes `problems`;
 * release them with conf_problems_fini in any case. */
struct conf *conf_load(const char *path, const struct conf_world *world,
                       struct conf_problems *problems);

/* Loads a text in memory, as conf_load. `name` replaces the file name in problems; `directory` is
 * the start of relative paths. */
struct conf *conf_load_text(struct slice text, const char *name, const char *directory,
                            const struct conf_world *world, struct conf_problems *problems);

/* Loads a configuration for tools, which must work while an operator edits the file of the daemon.
 * Without errors the result is that of conf_load.
 *
 * After errors (problems->errors > 0) only state_directory, maildrop, control_socket, spool and
 * message_size_limit are as in the file; all else is built in. Those of the five that are in
 * `needed` (which ends with NULL) must be valid: returns NULL if one has an error, or if the file
 * can't be read. An invalid one of the others is built in, too, except spool ("") and
 * message_size_limit (0 without a valid value). A mistyped name counts as the similar name of
 * `needed`, if the file does not set that. An include that can't be read is ignored if
 * state_directory is set. */
struct conf *conf_load_places(const char *path, const char *const *needed,
                              struct conf_problems *problems);

/* Frees the configuration. NULL is allowed. */
void conf_free(struct conf *conf);
void conf_problems_fini(struct conf_problems *problems);

/* Configuration for a start without a file: everything under ./run, SMTP on 127.0.0.1:2525, mail
 * for localhost and *.test into maildirs. */
extern const char conf_default_text[];

/* Text to append to conf_default_text for a trial as root: no delivery runs as root. */
extern const char conf_default_root_text[];

/* ---- the spool, and the mail system that it belongs to (dialect.h) --------------------------- */

#define CONF_SPOOL_SQLITE  "sqlite:"
#define CONF_SPOOL_CLUSTER "postgresql://" /* prefix of a spool for several machines */

/* Returns the path after the prefix of `spool`: a directory (*ret_is_directory), or a file whose
 * directory is the spool's. Returns NULL if the spool has no path on this machine. Borrowed from
 * `conf`. */
const char *conf_spool_path(const struct conf *conf, bool *ret_is_directory);

/* Do files of the store belong to programs of many users? The process that opens the store must
 * then be able to read and write all of them. */
bool conf_spool_is_shared(const struct conf *conf);

/* Does the store determine the route of each recipient? Every name of its routes is a transport,
 * which agents of its mail system serve. */
bool conf_spool_routes(const struct conf *conf);

/* Does the process that opens the store connect to services of the store's mail system, on Unix
 * sockets? */
bool conf_spool_uses_services(const struct conf *conf);

/* Does new mail get the free places of a full active queue, as in the queue manager of the store's
 * mail system? Otherwise new and deferred mail get them alternately. */
bool conf_new_mail_first(const struct conf *conf);

/* Is the store a server, to which the process that opens the store connects? */
bool conf_spool_is_remote(const struct conf *conf);

/* Returns the user of the queue process when started as root: mail_owner or its default (params.h),
 * which depends on the users of this machine. Empty if the process stays root. The next functions
 * do so for the other processes; their result is never empty. Valid as long as `conf`. */
const char *conf_mail_owner(const struct conf *conf);
const char *conf_receive_user(const struct conf *conf);
const char *conf_deliver_user(const struct conf *conf);
const char *conf_auth_user(const struct conf *conf);

/* Is each mailbox of a transport with a recipient limit of 1 a destination? For a store with
 * routes. */
bool conf_spool_routes_by_mailbox(const struct conf *conf);

/* Appends the names of parameters and files that differ between two configurations and have effect
 * only after a restart, one per line. */
void conf_put_delayed(const struct conf *old, const struct conf *new, struct buf *out);

/* ---- texts for the command line ------------------------------------------------------------- */

/* Appends the place of the value of `parameter`, a name of the table, as in problems:
 * "FILE:LINE:COLUMN: ", or nothing for a default. Errors of *out are sticky. */
void conf_put_place(const struct conf *conf, const char *parameter, struct buf *out);

/* Prints each problem as "FILE:LINE:COLUMN: error: TEXT\n", then a line with sums if there are
 * several. */
void conf_print_problems(struct buf *out, const struct conf_problems *problems);

/* Prints "name = value\n" of each of `names`, or if NULL of all parameters in the table's order,
 * then TRANSPORT_name settings and clauses as given. `only_changed`: only those that the file sets.
 * An unknown name gets a line with similar names, and the result is false. */
bool conf_print(struct buf *out, const struct conf *conf, const char *const *names, size_t count,
                bool only_changed);

/* Prints meaning, type, unit, default, range and scope of a parameter, and its value if `conf` is
 * not NULL. An unknown name gets a line with similar names, and the result is false. */
bool conf_explain(struct buf *out, const struct conf *conf, const char *name);

/* Prints the manual page sluice.conf(5), in mdoc. */
void conf_print_man(struct buf *out);

#endif
