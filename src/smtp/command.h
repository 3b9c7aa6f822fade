/*
 * Arguments of MAIL, RCPT, BDAT and HELO: functions of the text alone, without a session.
 *
 * Errors are returned as a refusal: a static reply for the client. Slices in results point into the
 * argument.
 */
#ifndef SMTP_COMMAND_H
#define SMTP_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "slice.h"

/* A reply that refuses a command. */
struct refusal {
    unsigned code;
    const char *status; /* enhanced status code */
    const char *text;   /* text, continued by `detail` if that is not NULL */
    const char *detail; /* NULL, or the text after a colon */
};

#define REFUSAL_NONE ((struct refusal){0})

/* Extensions and requirements of the session. */
struct command_rules {
    bool smtputf8;
    bool dsn;
    bool auth;              /* AUTH= of MAIL is accepted and ignored */
    bool no_domain;         /* addresses without a domain are accepted */
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

/* Parses `FROM:<path> [parameters]`. The result is untouched if refused (code != 0). */
struct refusal command_parse_mail(struct slice argument, const struct command_rules *rules,
                                  struct command_mail *ret_mail);

/* Parses `TO:<path> [parameters]`. `smtputf8`: whether MAIL had that parameter. */
struct refusal command_parse_rcpt(struct slice argument, const struct command_rules *rules,
                                  bool smtputf8, struct command_rcpt *ret_rcpt);

/* Parses `size [LAST]`. */
bool command_parse_bdat(struct slice argument, uint64_t *ret_size, bool *ret_last);

/* Is this acceptable as a client's name? RFC 5321 requires a domain or literal, but clients are
 * careless, so any printable ASCII word is accepted. */
bool command_helo_valid(struct slice name);

#endif
