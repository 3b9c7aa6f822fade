/*
 * The pipe agent: one command per delivery. The message is its standard input, the result its exit
 * status.
 *
 * Command line. Blanks separate words. Text in single quotes is literal. In double quotes and
 * without quotes, `$name` and `${name}` are replaced, and a backslash makes the next byte literal.
 * The names:
 *
 *     $sender $nexthop $size $queue_id                     of the delivery; the null sender is
 *                                                          MAILER-DAEMON
 *     $recipient $user $extension $mailbox $domain         of a recipient: a word with one of these
 *                                                          is repeated for each recipient
 *
 * There is no shell, so no address can inject a command: a value stays within one word, whatever
 * bytes it has. For a shell, write `/bin/sh -c 'script'`. Nothing is replaced in single quotes; the
 * script gets the values from its environment ("$SENDER", "$RECIPIENT" ..) and must quote them
 * itself. A value at the beginning of a word that starts with `-` would be an option of the
 * command, so that delivery is refused.
 *
 * Exit status: sysexits(3), see status.h. If the first word of the output is an enhanced status
 * code of a matching class, it replaces that of the exit status, and the output's text is the
 * reason. A death by signal and a timeout are temporary failures.
 */
#ifndef DELIVER_PIPE_H
#define DELIVER_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "status.h"

/* Limits of a command line after replacement: words, and bytes of all words. */
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
    PIPE_BAD_COMMAND, /* syntax error in the command line; *ret_why */
    PIPE_BAD_ADDRESS, /* an address can't be used; *ret_why */
};

/* Splits the command line and replaces names. Initializes `ret_words` in any case. */
enum pipe_outcome pipe_command(struct slice command, const struct pipe_delivery *delivery,
                               struct pipe_words *ret_words, const char **ret_why);

/* Makes the environment: PATH, SHELL, LANG, and the values above in upper case. RECIPIENT has all
 * recipients, separated by blanks; other values of a recipient are those of the first. `user` may
 * be NULL. */
void pipe_environment(const struct pipe_delivery *delivery, const char *user, const char *home,
                      struct pipe_words *ret_words);

void pipe_words_fini(struct pipe_words *words);

/* The end of a command. */
struct pipe_end {
    int wait_status;     /* from waitpid */
    bool timed_out;      /* the command was killed at its time limit */
    struct slice output; /* output, as far as it was kept */
    const char *name;    /* first word of the command */
    const char *service; /* name of the transport */
};

/* Returns the status for the end of a command. Appends a text with Postfix's wording to `text`, in
 * printable bytes. */
struct status pipe_result(const struct pipe_end *end, struct buf *text);

#endif
