/*
 * Extensions of the parent: what a service of the control process (service.h) needs of the one
 * process that may open sockets and files. A program registers them before the parent begins; those
 * that only read a configuration, too, so that they find what the daemon would.
 */
#ifndef PARENT_EXTENSION_H
#define PARENT_EXTENSION_H

#include <stdbool.h>

#include "buf.h"
#include "bundle.h"
#include "channel.h"
#include "conf.h"
#include "wire.h"

#define EXTENSIONS_MAX 4

enum extension_address { EXTENSION_NOWHERE, EXTENSION_TCP, EXTENSION_UNIX };

struct extension {
    const char *name; /* the service's */

    /* The URL that a configuration wants to be listened on, NAME, a colon and more, to be freed;
     * NULL: none. */
    char *(*url)(const struct conf *conf);

    const char *parameter; /* that says so, for complaints; NULL where there is no URL */

    /* Where that is: HOST:PORT or a path, appended to *out. */
    enum extension_address (*address)(const struct conf *conf, const char *url, struct buf *out);

    /* Does the daemon start without that socket (it is tried again), and may all users of the
     * machine connect to it? */
    bool (*is_optional)(const struct conf *conf);

    /* Add files to the configuration (bundle_add). What is wrong with them is appended to *out, a
     * line each as of bundle_load. False: with an error. */
    bool (*add_files)(struct bundle *b, struct buf *out);

    /* The service asks for something; the answer goes into its channel. False: it must not. */
    bool (*heard)(const struct conf *conf, const struct wire_service *m, struct channel *control);
};

/* Borrowed for good. Once for each. */
void extension_register(const struct extension *extension);

/* By number, from 0; NULL behind the last. */
const struct extension *extension_at(size_t i);

/* By the name, which may have a colon and more behind it; NULL: there is none. */
const struct extension *extension_of(struct slice name);

#endif
