/*
 * Shared declarations of the import from Postfix (main_cf.h): import_params.c has the table of
 * parameters, import_domains.c makes domains and mailboxes of several of them, import_lists.c reads
 * lists and tables, import_master.c makes listeners and transports of master.cf,
 * import_restrictions.c reads the restrictions.
 *
 * Every line that goes into our configuration passes `put`, which puts the value through the parser
 * that will read it. A check of the whole result finds faults of files, users and addresses of this
 * machine. The import is then repeated without the lines that failed, so that lines that depend on
 * them change, too.
 */
#ifndef CLI_MAIN_CF_PRIVATE_H
#define CLI_MAIN_CF_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

#include "import_report.h"
#include "main_cf.h"
#include "postfix_files.h"

struct param;

#define IMPORT_REJECTED_MAX 200u

/* A line of ours that the check of the whole configuration refused. */
struct import_rejected {
    const char *name; /* our parameter, a listener, or the pattern of a clause */
    const char *why;
};

struct main_cf {
    struct postfix_files f;
    const struct main_cf_world *world;
    struct import_report *report;
    const struct import_rejected *rejected;
    size_t rejected_count;

    /* ---- of this round */
    const struct postfix_service *mx; /* service of port 25; NULL: none */
    bool networks_may_relay;          /* clients of mynetworks, without conditions */
    bool has_cert, has_dovecot;       /* lines tls_cert and auth_dovecot exist */
    const char *local_domains;        /* value of that line */
    size_t policies;                  /* lines of tables of TLS policies that are clauses now */
    const char *smtp_transports;      /* NULL: not made yet */
    const char *access;               /* elements of all access tables that are taken over */
};

/* Is the text this value? */
static inline bool is(struct slice text, const char *value)
{
    return slice_equal(text, slice_string(value));
}

/* Returns "main.cf:LINE" or "master.cf:LINE"; from the pool. */
const char *import_place(struct main_cf *im, const char *file, unsigned line);

/* Returns a text made by a format; from the pool. */
const char *import_text(struct main_cf *im, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the reason why the whole configuration can't have this line; NULL: it can. */
const char *import_refused(const struct main_cf *im, const char *name);

/* Returns the reason why there can't be the line "name = value"; NULL: there can. */
const char *import_why_not(struct main_cf *im, const char *name, const char *value);

/* Adds the line "name = value" of our configuration, which is made of the setting. Returns false if
 * its parser refuses the value, or the check did: *ret_why is the reason. */
bool import_put(struct main_cf *im, const char *name, const char *value, const char *place,
                const struct postfix_param *from, const char **ret_why);

/* Adds a line as import_put and a note about the result. */
bool import_put_noted(struct main_cf *im, const char *name, const char *value, const char *place,
                      const struct postfix_param *from);

/* Adds a note about a setting that has no line. */
void import_lost(struct main_cf *im, enum import_danger danger, const char *place,
                 const struct postfix_param *from, const char *why);

/* Adds a note about a setting that loses nothing, or is another program's. */
void import_fine(struct main_cf *im, enum import_outcome outcome, const char *place,
                 const struct postfix_param *from, const char *why);

/* Adds a note about a setting whose line `name` is missing. Mail to others must wait if it would go
 * the wrong way without that line. */
void import_lose(struct main_cf *im, const char *name, const char *place,
                 const struct postfix_param *from, const char *why);

/* Parses a value of ours. Returns false if it is invalid: *ret_bad is the invalid part. */
bool import_parses(const struct param *p, const char *value, struct pool *pool,
                   struct slice *ret_bad);

/* Returns the fault of a value of ours; NULL: none. */
const char *import_fault(struct main_cf *im, const char *name, const char *value);

/* Returns the danger when the parameter, ours or one of Postfix, is missing. */
enum import_danger import_danger_of(const char *name);

/* Is that type of tables a database or server? */
bool import_is_database(struct slice type);

/* Returns the words of a list with those of files put in, without tables that have none. Each word
 * must be valid for `name`, a list parameter of ours. Words that are not are noted as lost.
 * Networks that contain a negated one are left out. */
const char *import_list(struct main_cf *im, const char *name, const char *place,
                        const struct postfix_param *from, const char *value);

/* Is the network, or the address, a part of this machine's loopback networks? */
bool import_is_loopback(struct slice network);

/* Returns the list with one more word. For short lists: the list is copied. */
const char *import_with_word(struct main_cf *im, const char *list, struct slice word);

/* Begins a list, whose words import_add_word appends, and returns it. The error of *list is
 * sticky. */
void import_begin_list(struct buf *list);
void import_add_word(struct buf *list, struct slice word);
const char *import_end_list(struct main_cf *im, struct buf *list);

/* Has the list this word, in any case? */
bool import_has_word(const char *list, struct slice wanted);

/* Notes a table that our lists can't use. */
void import_lose_table(struct main_cf *im, const char *name, const char *place,
                       const struct postfix_param *from, struct slice table);

/* Adds the line of a list of tables, and a note. */
void import_put_tables(struct main_cf *im, const char *name, const struct postfix_param *p,
                       const char *place, const char *value);

/* Finds a parameter of main.cf, or puts Postfix's default into *room and returns that. */
const struct postfix_param *import_param_or(struct main_cf *im, const char *name,
                                            struct postfix_param *room, const char **ret_place);

/* Returns the expanded value of a parameter with $myhostname and $mydomain; "" if a $name is not
 * known. */
const char *import_kept(struct main_cf *im, const char *name);

/* Returns the value of a transport parameter in our form: sockets are absolute. */
const char *import_transport_value(struct main_cf *im, const char *value);

/* Imports a parameter of main.cf. */
void import_param(struct main_cf *im, const struct postfix_param *p);

/* Adds tls_cert and tls_key, and sets has_cert. */
void import_certificate(struct main_cf *im);

/* Adds auth_dovecot, and sets has_dovecot. */
void import_dovecot(struct main_cf *im);

/* Adds domains, networks, mailboxes and lists of recipients. */
void import_domains(struct main_cf *im);

/* Reads the restrictions of port 25: sets networks_may_relay, adds access tables. */
void import_restrictions(struct main_cf *im);

/* Clients of a service that may send to any domain without a condition. */
struct import_rights {
    bool networks, logins; /* those of mynetworks, and those that have logged in */
};

/* Returns the rights that the restrictions of a service give. */
struct import_rights import_rights_at(struct main_cf *im, const struct postfix_service *s);

/* Adds notes about restrictions of a listener that differ from those of port 25, which count at all
 * listeners here. `logins_only`: only users who have logged in may use it. */
void import_restrictions_at(struct main_cf *im, const struct postfix_service *s,
                            const struct postfix_param *listener, const char *place,
                            bool logins_only);

/* Is the parameter a list of restrictions, which import_restrictions notes? */
bool import_is_restriction(struct slice name);

/* Do the restrictions of a service admit clients that have logged in only? */
bool import_needs_login(struct main_cf *im, const struct postfix_service *s);

/* Finds im->mx. */
void import_find_mx(struct main_cf *im);

/* Adds the line `listen', and notes for all services that accept mail. */
void import_listeners(struct main_cf *im);

/* Returns the names of the transports by SMTP that something uses: smtp, relay and others. */
const char *import_smtp_transports(struct main_cf *im);

/* Adds the line defer_transports: those of main.cf, and if mail to others must wait for a decision,
 * the transports that it takes. */
void import_deferred(struct main_cf *im);

/* Adds a clause for each transport of master.cf that something names, and notes for other
 * services. */
void import_transports(struct main_cf *im);

#endif
