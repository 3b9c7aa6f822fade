/*
 * Extensions of the parent: sockets and files that a service of the control process (service.h)
 * needs from the only process that may open them. A program registers them before the parent
 * begins. Programs that only read a configuration register them too, so that they find what the
 * daemon would find.
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
    const char *name; /* name of the service */

    /* Returns the URL for a listener, if the configuration has one: NAME, a colon and more. The
     * caller frees it. NULL: none. */
    char *(*url)(const struct conf *conf);

    const char *parameter; /* name of the parameter with the URL, for errors; NULL without a URL */

    /* Appends the address of the URL to *out: HOST:PORT or a path. */
    enum extension_address (*address)(const struct conf *conf, const char *url, struct buf *out);

    /* Does the daemon start without that socket, which is tried again later? May all users of the
     * machine connect to it? */
    bool (*is_optional)(const struct conf *conf);

    /* Adds files to the configuration (bundle_add). Appends errors to *out, one per line as
     * bundle_load. Returns false on an error. */
    bool (*add_files)(struct bundle *b, struct buf *out);

    /* Handles a request of the service; sends the answer on its channel. Returns false if the
     * service must not make that request. */
    bool (*heard)(const struct conf *conf, const struct wire_service *m, struct channel *control);
};

/* Registers an extension, which is borrowed until the program ends. Call it once for each. */
void extension_register(const struct extension *extension);

/* Returns extension `i`, from 0; NULL after the last. */
const struct extension *extension_at(size_t i);

/* Returns the extension with this name, which a colon and more may follow, or NULL. */
const struct extension *extension_of(struct slice name);

#endif
