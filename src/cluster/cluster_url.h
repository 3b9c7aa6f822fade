/*
 * Where the database is: "//USER@/DATABASE?host=DIRECTORY&port=N&schema=NAME", what follows
 * "postgresql:".
 *
 * XXX Hosts by name, a password file and TLS are missing.
 */
#ifndef CLUSTER_CLUSTER_URL_H
#define CLUSTER_CLUSTER_URL_H

#include <stdbool.h>

#include "link.h"

struct cluster_url {
    char *text; /* owned: where the others point */
    struct link_target target;
    char options[200];
};

/* False: it is not of that form. cluster_url_fini is to be called all the same. */
bool cluster_url_parse(struct cluster_url *u, const char *where);
void cluster_url_fini(struct cluster_url *u);

#endif
