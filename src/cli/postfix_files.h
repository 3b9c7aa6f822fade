/*
 * The configuration of a Postfix as data: parameters of main.cf, services of master.cf, and the
 * files that both name.
 *
 * Postfix is not needed on this machine. Values expand as in Postfix: by main.cf, else by those
 * of Postfix's defaults that postfix_files.c has. A $name without either can't be expanded, because
 * its default could change the meaning.
 */
#ifndef CLI_POSTFIX_FILES_H
#define CLI_POSTFIX_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "pool.h"
#include "slice.h"

#define POSTFIX_FILE_MAX     (4u << 20) /* bytes of main.cf, master.cf, and of a list in a file */
#define POSTFIX_PARAMS_MAX   10000u
#define POSTFIX_SERVICES_MAX 1000u
#define POSTFIX_OPTIONS_MAX  100u /* -o options of a service */

/* A setting of main.cf, or of an option -o. */
struct postfix_param {
    struct slice name, value; /* as written; from the pool */
    unsigned line;            /* of its file */
    bool hidden;              /* true if a later line sets it, too */
};

/* A service of master.cf. */
struct postfix_service {
    struct slice name, type, command, maxproc; /* from the pool */
    struct slice arguments;                    /* without -o options and -v */
    bool chroot;
    unsigned line;
    struct postfix_param options[POSTFIX_OPTIONS_MAX];
    size_t option_count;
};

/* A part of main.cf or master.cf that was passed over. */
struct postfix_fault {
    const char *file;  /* "main.cf" or "master.cf" */
    struct slice name; /* of the parameter; else "(a line)" or the service's name; from the pool */
    unsigned line;
    const char *why;
    bool is_limit; /* true if later parts were passed over, too */
};

/* A file that was read. */
struct postfix_file {
    const char *path, *content; /* from the pool; NULL: not readable */
};

/* Reads a file: appends all of `path` to *out. Returns 0 or a negative errno. */
typedef int postfix_read(void *arg, const char *path, size_t max, struct buf *out);

struct postfix_files {
    struct pool pool;
    const char *directory; /* directory of main.cf; absolute */
    const char *hostname;  /* Postfix's default of myhostname; borrowed */
    postfix_read *read;
    void *arg;
    struct postfix_param *params; /* owned; in the order of the file */
    size_t param_count;
    struct postfix_service **services; /* owned array; its elements are from the pool */
    size_t service_count;
    struct postfix_file *files; /* owned; all that postfix_content was called for */
    size_t file_count, file_size;
    struct postfix_fault *faults; /* owned */
    size_t fault_count, fault_size;
    bool has_master;  /* true if there is a master.cf */
    bool in_mydomain; /* true while the default of mydomain is made of myhostname */
};

/* Reads main.cf and master.cf; `path` is the directory or a main.cf, and a missing master.cf is no
 * error. `f` has hostname, read and arg, and is otherwise empty. Returns 0 or a negative errno of
 * main.cf. Call postfix_files_fini in any case. */
int postfix_files_read(struct postfix_files *f, const char *path);
void postfix_files_fini(struct postfix_files *f);

/* Finds the parameter that counts; NULL: main.cf does not set it. */
const struct postfix_param *postfix_find(const struct postfix_files *f, const char *name);

/* Finds an option -o of a service, the last of that name; NULL: none. */
const struct postfix_param *postfix_option(const struct postfix_service *s, const char *name);

/* Expands a value of main.cf or, with `service` (may be NULL), of its options. `keep_names` leaves
 * $myhostname and $mydomain as they are, which have the same meaning here. Returns NULL
 * if a $name is not known, which is then *ret_unknown. The result is from the pool. */
const char *postfix_expand(struct postfix_files *f, const struct postfix_service *service,
                           struct slice value, bool keep_names, struct slice *ret_unknown);

/* Returns the expanded value of a parameter, by an option of `service` (may be NULL), main.cf or
 * the default; "" if a $name is not known. */
const char *postfix_value(struct postfix_files *f, const struct postfix_service *service,
                          const char *name);

/* Returns Postfix's value of a yes/no parameter. */
bool postfix_is_yes(struct postfix_files *f, const struct postfix_service *service,
                    const char *name);

/* Does a value of main.cf or master.cf name the parameter as `$name'? */
bool postfix_is_named(const struct postfix_files *f, struct slice name);

/* Returns the next word of a list, or of a group in braces with its braces. Words end with blanks
 * or commas. Returns false at the end. */
bool postfix_word(struct slice *rest, struct slice *ret_word);

/* Is the word a group in braces? *ret_inside is then the trimmed text between them. */
bool postfix_group(struct slice word, struct slice *ret_inside);

/* Returns the readable path of a file that Postfix's configuration names: the path itself, or the
 * file of that name next to main.cf if a copy of /etc/postfix is imported. NULL: not readable. */
const char *postfix_path(struct postfix_files *f, struct slice path);

/* Returns the content of a file that `postfix_path` found, which is read once; NULL: not
 * readable. */
const char *postfix_content(struct postfix_files *f, const char *path);

/* Returns the absolute path of a Unix socket, whose relative paths start at the queue directory, as
 * do all paths of a service with chroot. From the pool. */
const char *postfix_socket(struct postfix_files *f, bool chroot, struct slice path);

/* Returns the path of the text file of a table ("hash:/etc/aliases", "proxy:lmdb:..",
 * "texthash:.."), which our tables read. *ret_type is its type without `proxy:'. An empty result:
 * tables of that type have no such file. */
struct slice postfix_table(struct slice table, struct slice *ret_type);

#endif
