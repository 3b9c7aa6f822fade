/*
 * Prints the TLS that mail for a domain would get (`sluice tls`).
 */
#ifndef CLI_TLS_PRINT_H
#define CLI_TLS_PRINT_H

#include <stdio.h>

#include <jansson.h>

/* Prints the answer to operation "tls". `now` is seconds since 1970. */
void tls_print(FILE *out, const json_t *answer, double now);

#endif
