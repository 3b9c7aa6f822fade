/*
 * What TLS mail for a domain would get, for people (`sluice tls`).
 */
#ifndef CLI_TLS_PRINT_H
#define CLI_TLS_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* The answer of operation "tls". `now`: seconds since 1970. */
void tls_print(FILE *out, const json_t *answer, double now);

#endif
