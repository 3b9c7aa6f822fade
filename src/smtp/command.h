/*
 * The arguments of MAIL, RCPT, BDAT and HELO: a function of the text alone, without a session.
 *
 * What is wrong comes back as a refusal: a static reply for the client. Slices in results point
 * into the argument.
 */
#ifndef SMTP_COMMAND_H
#define SMTP_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "slice.h"

/* A reply that says no. */
struct refusal {
    unsigned code;
    const char *status; /* enhanced status code */
    const char *text;   /* may have a full second half in `detail` */
    const char *detail; /* NULL, or what follows a colon */
};

#define REFUSAL_NONE ((struct refusal){0})

/* What the session offers or insists on. */
struct command_rules {
    bool smtputf8;
    bool dsn;
    bool auth;              /* AUTH= of MAIL is taken, and means nothing to us */
    bool no_domain;         /* addresses without a domain are fine */
    bool strict_paths;      /* see struct server_config */
    uint64_t message_bytes; /* limit for SIZE; 0 = none */
};

struct command_mail {
    struct address sender;
    struct slice envid; /* xtext as given; empty = none */
    uint64_t size;      /* 0 = not declared */
    unsigned flags;     /* of enum envelope_flag */
};

struct command_rcpt {
    struct address recipient;
    struct slice orcpt; /* `type;xtext` as given; empty = none */
    unsigned notify;    /* of enum notify */
};

/* `FROM:<path> [parameters]`. The result is untouched when refused (code != 0). */
struct refusal command_parse_mail(struct slice argument, const struct command_rules *rules,
                                  struct command_mail *ret_mail);

/* `TO:<path> [parameters]`. `smtputf8` tells whether MAIL had that parameter. */
struct refusal command_parse_rcpt(struct slice argument, const struct command_rules *rules,
                                  bool smtputf8, struct command_rcpt *ret_rcpt);

/* `size [LAST]`. */
bool command_parse_bdat(struct slice argument, uint64_t *ret_size, bool *ret_last);

/* Is it something a client may call itself? A domain or literal, but as clients are careless any
 * printable ASCII word will do. */
bool command_helo_valid(struct slice name);

#endif
