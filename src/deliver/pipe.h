/*
 * The pipe agent: a command per delivery, the message on its standard input, the result in its exit
 * status.
 *
 * Command line. Words are separated by blanks. Single quotes take everything as it is; in double
 * quotes and outside, `$name` and `${name}` are filled in and a backslash takes the next byte as it
 * is. The names:
 *
 *     $sender $nexthop $size $queue_id                     of the delivery; the null sender is
 *                                                          MAILER-DAEMON
 *     $recipient $user $extension $mailbox $domain         of a recipient: a word that holds one of
 *                                                          them is repeated for each recipient
 *
 * There is never a shell in between, so nothing in an address can become one: what is filled in is
 * part of one word, whatever bytes it has. For a shell write `/bin/sh -c 'script'`; in the
 * single quotes nothing is filled in, and the script finds the values in its environment, as
 * "$SENDER", "$RECIPIENT" and so on, where quoting is the shell's own business. A value that fills
 * a word from its beginning and starts with `-` would be an option to the command: that delivery is
 * refused.
 *
 * Exit status: sysexits(3), see status.h. Output whose first word is an enhanced status code of a
 * fitting class overrides that code, and its text is the reason. Death by a signal and running out
 * of time are temporary.
 */
#ifndef DELIVER_PIPE_H
#define DELIVER_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "status.h"

/* Words of a command line, and all their bytes, after filling in. */
#define PIPE_WORDS_MAX 4096
#define PIPE_BYTES_MAX 131072

struct pipe_delivery {
    struct slice sender, nexthop, queue_id;
    uint64_t size_bytes;
    struct slice delimiters; /* between user and extension; may be empty */
    const struct slice *recipients;
    size_t recipient_count;
};

/* A NULL-terminated array of strings in one piece of memory. */
struct pipe_words {
    char **words; /* owned array; the strings are in `bytes` */
    size_t count;
    struct buf bytes;
};

enum pipe_outcome {
    PIPE_OK,
    PIPE_BAD_COMMAND, /* the command line can't be read; *ret_why */
    PIPE_BAD_ADDRESS, /* an address can't be filled in; *ret_why */
};

/* Split the command line and fill it in. `ret_words` is initialised in any case. */
enum pipe_outcome pipe_command(struct slice command, const struct pipe_delivery *delivery,
                               struct pipe_words *ret_words, const char **ret_why);

/* The environment: PATH, SHELL, LANG, and the values above in upper case (RECIPIENT: all, separated
 * by blanks; the others of a recipient are the first one's). `user` may be NULL. */
void pipe_environment(const struct pipe_delivery *delivery, const char *user, const char *home,
                      struct pipe_words *ret_words);

void pipe_words_fini(struct pipe_words *words);

/* How a command ended. */
struct pipe_end {
    int wait_status;     /* of waitpid */
    bool timed_out;      /* it was killed for that */
    struct slice output; /* what it wrote, as far as kept */
    const char *name;    /* its first word */
    const char *service; /* the transport */
};

/* What that means. The text, in Postfix's words, is appended to `text`, made printable. */
struct status pipe_result(const struct pipe_end *end, struct buf *text);

#endif
