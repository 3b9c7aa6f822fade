#include "ta_zenv.h"

#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "buf.h"
#include "door.h"
#include "zmailer_dialect.h"

#define TEXT_MAX 65536

struct conf *ta_zenv_load(const char *program)
{
    const char *path = getenv("ZCONFIG");
    struct conf_problems problems;
    struct conf *conf;
    struct buf text;

    buf_init(&text, TEXT_MAX);
    /* with a postoffice as spool the compiled-in file is read, too */
    (void)buf_add_string(&text, "spool = postoffice:..\n");
    if (path != NULL && path[0] != '\0') {
        (void)buf_addf(&text, "zenv_file = %s\n", path);
    }
    zmailer_open_conf();
    conf = conf_load_text(buf_slice(&text), "ZCONFIG", ".", NULL, &problems);
    if (conf == NULL || text.failed) {
        buf_clear(&text);
        conf_print_problems(&text, &problems);
        fprintf(stderr, "# %s: %s", program, text.failed ? "ZCONFIG\n" : buf_cstr(&text));
        exit(EX_CONFIG);
    }
    conf_problems_fini(&problems);
    buf_fini(&text);
    return conf;
}
