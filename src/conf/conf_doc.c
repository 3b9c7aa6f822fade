/* Prints the manual page sluice.conf(5). */
#include <stdio.h>

#include "buf.h"
#include "conf.h"
#include "door.h"
#include "postfix_dialect.h"

#define PAGE_MAX (1u << 20) /* bytes */

int main(void)
{
    struct buf page;
    bool ok;

    zmailer_open_conf();
    postfix_dialect_register();
    buf_init(&page, PAGE_MAX);
    conf_print_man(&page);
    ok = !page.failed && fputs(buf_cstr(&page), stdout) >= 0 && fflush(stdout) == 0;
    buf_fini(&page);
    return ok ? 0 : 1;
}
