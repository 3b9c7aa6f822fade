#include "cluster_url.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"

bool cluster_url_parse(struct cluster_url *u, const char *where)
{
    const char *schema = "sluice";
    char *at, *rest;

    u->text = mem_string(where);
    if (strncmp(u->text, "//", 2) != 0) {
        return false;
    }
    at = u->text + 2;
    rest = strchr(at, '/');
    if (rest == NULL) {
        return false;
    }
    *rest++ = '\0';
    u->target.database = rest;
    if (strchr(at, '@') != NULL) {
        u->target.user = at;
        at = strchr(at, '@');
        *at++ = '\0';
    }
    u->target.host = at;
    rest = strchr(rest, '?');
    if (rest != NULL) {
        *rest++ = '\0';
    }
    while (rest != NULL) {
        char *word = rest;

        rest = strchr(rest, '&');
        if (rest != NULL) {
            *rest++ = '\0';
        }
        if (strncmp(word, "host=", 5) == 0) {
            u->target.host = word + 5;
        } else if (strncmp(word, "port=", 5) == 0) {
            u->target.port = word + 5;
        } else if (strncmp(word, "schema=", 7) == 0) {
            schema = word + 7;
        } else {
            return false;
        }
    }
    for (const char *c = schema; *c != '\0'; c++) {
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '_') {
            return false;
        }
    }
    (void)snprintf(u->options, sizeof u->options,
                   "-c search_path=%.60s -c idle_in_transaction_session_timeout=2500 "
                   "-c lock_timeout=3000",
                   schema);
    u->target.options = u->options;
    return u->target.database[0] != '\0';
}

void cluster_url_fini(struct cluster_url *u)
{
    mem_free(u->text);
}
