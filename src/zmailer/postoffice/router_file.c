#include "router_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NAME_MAX_SHOWN 200

/* Is the word without line ends? Words are from addresses, which may contain anything; none may
 * begin a new line. */
static bool is_one_line(struct slice word)
{
    return slice_find(word, '\n') == word.len && slice_find(word, '\0') == word.len;
}

bool router_file_begin(struct buf *out, const struct router_envelope *e)
{
    (void)buf_addf(out, "rcvdfrom STDIN (\"%s\"@%s)\n", e->program, e->host); /* sticky */
    if (e->via != NULL) {
        (void)buf_addf(out, "via %s\n", e->via);
    }
    if (e->eight_bit) {
        (void)buf_add_string(out, "bodytype 8BITMIME\n");
    }
    if (e->sender.len == 0) {
        (void)buf_add_string(out, "channel error\nerrormsg\n");
    } else {
        (void)buf_addf(out, "from <%.*s>\n", SLICE_ARGS(e->sender));
    }
    if (e->envid.len > 0) {
        (void)buf_addf(out, "envid %.*s\n", SLICE_ARGS(e->envid));
    }
    if (e->ret != CONTROL_RET_UNKNOWN) {
        (void)buf_addf(out, "notaryret %s\n", e->ret == CONTROL_RET_FULL ? "FULL" : "HDRS");
    }
    return is_one_line(e->sender) && is_one_line(e->envid);
}

bool router_file_rcpt(struct buf *out, struct slice address, struct slice dsn)
{
    if (dsn.len > 0) {
        (void)buf_addf(out, "todsn %.*s\n", SLICE_ARGS(dsn));
    }
    (void)buf_addf(out, "to <%.*s>\n", SLICE_ARGS(address));
    return is_one_line(address) && is_one_line(dsn);
}

void router_file_end(struct buf *out)
{
    (void)buf_add_string(out, "env-end\n");
}

void router_file_tell(int socket, const char *path, const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char text[NAME_MAX_SHOWN];
    int len = snprintf(text, sizeof text, "NEW router %s", name);

    if (strlen(path) < sizeof to.sun_path && len > 0 && (size_t)len < sizeof text) {
        (void)strcpy(to.sun_path, path); /* the length was checked */
        (void)sendto(socket, text, (size_t)len, 0, (const struct sockaddr *)&to, sizeof to);
    }
}
