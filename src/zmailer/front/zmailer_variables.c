#include "zmailer_variables.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"
#include "door.h"
#include "zmailer_dialect.h"

#define TEXT_MAX (64u << 10)

/* Appends to the buffers here are sticky; failure is checked at the end. */

char *zmailer_absolute(const char *path, const char *suffix)
{
    char directory[PATH_MAX] = "";
    struct buf b;

    buf_init(&b, 3 * PATH_MAX);
    if (path[0] != '/' && getcwd(directory, sizeof directory - 1) != NULL) {
        (void)strcat(directory, "/"); /* fits */
    }
    (void)buf_addf(&b, "%s%s%s", directory, path, suffix);
    return buf_take(&b);
}

struct conf *zmailer_variables(const char *path, struct buf *messages)
{
    struct conf_problems problems;
    struct conf *conf;
    struct buf text;

    buf_init(&text, TEXT_MAX);
    if (path != NULL) {
        char *full = zmailer_absolute(path, "");

        (void)buf_addf(&text, "zenv_file = %s\n", full);
        mem_free(full);
    }
    /* makes the text a scheduler.conf, whose spool is at POSTOFFICE */
    (void)buf_add_string(&text, "*/* command=none\n");
    zmailer_open_conf();
    conf = conf_load_text(buf_slice(&text), "command line", "/", NULL, &problems);
    conf_print_problems(messages, &problems);
    conf_problems_fini(&problems);
    buf_fini(&text);
    return conf;
}
