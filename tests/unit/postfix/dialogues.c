#include "dialogues.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "check.h"

#define MESSAGE_MAX ((size_t)1 << 20)

static void finish(struct dialogue_message *m, struct buf *bytes,
                   void (*each)(void *arg, const struct dialogue_message *m), void *arg)
{
    if (m->service[0] != '\0' && buf_len(bytes) > 0) {
        m->bytes = buf_slice(bytes);
        each(arg, m);
    }
    m->service[0] = '\0';
    buf_clear(bytes);
}

/* "> name = value" into bytes. */
static void add_line(struct buf *bytes, char *text)
{
    char *equals = strstr(text, " = "), *comment = strstr(text, "   # ");

    if (strncmp(text, "<end of list", strlen("<end of list")) == 0) {
        CHECK(buf_add_byte(bytes, '\0'));
        return;
    }
    if (comment != NULL) {
        *comment = '\0';
    }
    CHECK(equals != NULL);
    CHECK(buf_add(bytes, slice_of(text, (size_t)(equals - text))));
    CHECK(buf_add_byte(bytes, '\0'));
    CHECK(buf_add(bytes, slice_string(equals + 3)));
    CHECK(buf_add_byte(bytes, '\0'));
}

static void read_file(const char *path, void (*each)(void *arg, const struct dialogue_message *m),
                      void *arg)
{
    struct dialogue_message m = {.file = strrchr(path, '/') + 1};
    FILE *f = fopen(path, "r");
    struct buf bytes;
    char *line = NULL;
    size_t size = 0;
    unsigned number = 0;
    char what[8];

    CHECK(f != NULL);
    buf_init(&bytes, MESSAGE_MAX);
    while (getline(&line, &size, f) > 0) {
        char *text = line + strspn(line, " ");

        number++;
        line[strcspn(line, "\n")] = '\0';
        if ((text[0] == '>' || text[0] == '<') && text[1] == ' ' && m.service[0] != '\0') {
            add_line(&bytes, text + 2);
            continue;
        }
        finish(&m, &bytes, each, arg);
        if (sscanf(text, "%*f %7s fd %*d [%63[^]#]#%*d] %zu bytes", what, m.service,
                   &m.recorded_len) == 3 &&
            (strcmp(what, "write") == 0 || strcmp(what, "read") == 0)) {
            m.written = what[0] == 'w';
            m.line = number;
        } else {
            m.service[0] = '\0';
        }
    }
    finish(&m, &bytes, each, arg);
    free(line);
    buf_fini(&bytes);
    CHECK(fclose(f) == 0);
}

void dialogues_read(void (*each)(void *arg, const struct dialogue_message *m), void *arg)
{
    glob_t found;

    CHECK(glob(TEST_DATA_DIR "/captures/*.txt", 0, NULL, &found) == 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        read_file(found.gl_pathv[i], each, arg);
    }
    globfree(&found);
}
