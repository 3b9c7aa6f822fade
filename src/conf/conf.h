/*
 * The configuration: one typed value per parameter, the clauses, the routing tables.
 *
 *     conf_load --ok--> struct conf, which never changes; to reload, load another and swap.
 *         |
 *         +--> struct conf_problems: everything that is wrong, with file, line and column.
 *
 * The grammar is described in grammar.h, the parameters stand in params.h, the values of a
 * destination come from policy.h and its routes from route.h. Whatever is borrowed from a conf
 * lasts until conf_free.
 *
 * Paths: state_directory is relative to the directory of the configuration file, every other path
 * to state_directory, except that `include` and files of maps are relative to the directory
 * of the configuration file. Members hold the result; only `raw` ones stay as written.
 */
#ifndef CONF_CONF_H
#define CONF_CONF_H

#include <stdint.h>

#include "buf.h"
#include "params.h"
#include "policy.h"
#include "slice.h"

#define CONF_FILE_MAX     (4u << 20) /* bytes of one file */
#define CONF_LINE_MAX     65536u /* bytes of one line, of one value, and of one expanded value */
#define CONF_CLAUSES_MAX  10000u
#define CONF_INCLUDES_MAX 100u /* files in all */
#define CONF_DEPTH_MAX    16u  /* include within include, $name within $name */
#define CONF_PROBLEMS_MAX 100u /* kept; more are counted */

struct conf {
#define CONF_MEMBER(type, name, unit, preset, min, max, meaning) PARAM_MEMBER_##type(name)
    CONF_PARAMS(CONF_MEMBER)
#undef CONF_MEMBER
    struct policy defaults;     /* rule 5 of policy.h: what default_name and smtp_name say */
    uint64_t route_generation;  /* see route.h */
    uint64_t route_tables;      /* likewise */
    struct conf_private *inner; /* conf.c's own */
};

enum conf_severity { CONF_WARNING, CONF_ERROR };

struct conf_problem {
    enum conf_severity severity;
    char *file;            /* owned */
    unsigned line, column; /* from 1; 0: the file as a whole */
    char *text;            /* owned; what was found and what was expected */
};

/* Everything found wrong, in the order of discovery. */
struct conf_problems {
    struct conf_problem at[CONF_PROBLEMS_MAX];
    size_t count;   /* kept */
    size_t dropped; /* found after the table was full */
    size_t errors;  /* kept and dropped */
};

/* What the world tells a configuration. */
struct conf_world {
    const char *hostname; /* default of myhostname; NULL: ask the system */
    bool check_users;     /* user= and group= of clauses must exist here: confined processes, which
                           * can't look them up, rely on their parent's look */
    bool as_root;         /* with that: the daemon runs as root, so what delivers into maildirs and
                           * by commands must say as which user */

    /* How files are read: all of `path` is appended to *out, -EFBIG beyond `max` bytes. 0 or
     * negative errno. NULL: from the file system. So the parent of the daemon remembers what was
     * read, and confined processes read from what it remembered. */
    int (*read)(void *arg, const char *path, size_t max, struct buf *out);
    void *arg;
};

/* Read the file `path`; without one, conf_default_text with paths below the working directory. NULL
 * when a problem is an error (or the file can't be read, which is one, too). `problems` is
 * initialised here; release it with conf_problems_fini in any case. */
struct conf *conf_load(const char *path, const struct conf_world *world,
                       struct conf_problems *problems);

/* The same for a text in memory; `name` stands for the file in problems, `directory` is where
 * relative paths start. */
struct conf *conf_load_text(struct slice text, const char *name, const char *directory,
                            const struct conf_world *world, struct conf_problems *problems);

/* For tools, which must work while the file that the daemon runs with is being edited: conf_load,
 * and when there are errors (problems->errors > 0) a configuration with state_directory, maildrop,
 * control_socket, spool and message_size_limit as the file has them and all else as built in. Those
 * of the five that are in `needed` (which ends with NULL) have to be right: NULL when one has an
 * error, as when the file can't be read. The others then are as built in, too, but for spool ("")
 * and message_size_limit (0 unless the file has a good one). A mistyped name stands for the one of
 * `needed` that it is near to, where the file does not set that. An included file that can't be
 * read is passed over where state_directory is set. */
struct conf *conf_load_places(const char *path, const char *const *needed,
                              struct conf_problems *problems);

/* NULL is fine. */
void conf_free(struct conf *conf);
void conf_problems_fini(struct conf_problems *problems);

/* The configuration that holds when no file is named: everything under ./run, SMTP on
 * 127.0.0.1:2525, mail for localhost and *.test into maildirs. */
extern const char conf_default_text[];

/* What follows it where root tries it out: nothing is delivered as root. */
extern const char conf_default_root_text[];

/* ---- the spool, and the mail system that it belongs to (dialect.h) --------------------------- */

#define CONF_SPOOL_SQLITE  "sqlite:"
#define CONF_SPOOL_CLUSTER "postgresql://" /* of several machines */

/* What stands behind the prefix of `spool`, where that is a path on this machine: of a directory
 * (*ret_is_directory), or of a file whose directory is the spool's. NULL: it is none. Borrowed from
 * `conf`. */
const char *conf_spool_path(const struct conf *conf, bool *ret_is_directory);

/* The store's files belong to programs of many users: the process that holds it must be able to
 * read and write those of each of them. */
bool conf_spool_is_shared(const struct conf *conf);

/* The store says where each recipient goes, in names of its own: every name is a transport, and all
 * of them are served by agents of that system. */
bool conf_spool_routes(const struct conf *conf);

/* The process that holds it talks to services of that mail system, on Unix sockets. */
bool conf_spool_uses_services(const struct conf *conf);

/* Where the store routes: is each mailbox of a transport with a recipient limit of 1 a destination?
 */
bool conf_spool_routes_by_mailbox(const struct conf *conf);

/* Append the names of what differs between two configurations and has its effect at the next start
 * only, of what belongs to that mail system: a line each. */
void conf_put_delayed(const struct conf *old, const struct conf *new, struct buf *out);

/* ---- texts for the command line ------------------------------------------------------------- */

/* Where the value of `parameter`, a name of the table, stands: "FILE:LINE:COLUMN: ", as in
 * problems; nothing for a default. *out is sticky. */
void conf_put_place(const struct conf *conf, const char *parameter, struct buf *out);

/* Each problem as "FILE:LINE:COLUMN: error: TEXT\n", then a line with the sums of several. */
void conf_print_problems(struct buf *out, const struct conf_problems *problems);

/* "name = value\n" of each of `names` (NULL: of all parameters, in the table's order, then
 * TRANSPORT_name settings and clauses as they were given). `only_changed`: those that the file
 * sets. False when a name is unknown; the line then says so and what is near. */
bool conf_print(struct buf *out, const struct conf *conf, const char *const *names, size_t count,
                bool only_changed);

/* Meaning, type, unit, default, range and scope of a parameter; `conf` (may be NULL) adds its
 * value. False when the name is unknown; out then says so and what is near. */
bool conf_explain(struct buf *out, const struct conf *conf, const char *name);

/* The manual page sluice.conf(5), in mdoc. */
void conf_print_man(struct buf *out);

#endif
