/*
 * What would be different in a Postfix if sluice-qmgr was its queue manager, as
 * `sluice postfix check` says it.
 */
#ifndef POSTFIX_POSTFIX_CHECK_H
#define POSTFIX_POSTFIX_CHECK_H

#include <stdio.h>

/* Look at the configuration in `directory` (of main.cf), and print what there is to know. Returns
 * an exit status: EX_OK; EX_CONFIG when the queue manager would not start, with the reason. */
int postfix_check(const char *directory, FILE *out);

#endif
