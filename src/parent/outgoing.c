#include "outgoing.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "callout_target.h"
#include "check.h"
#include "mem.h"
#include "milter_list.h"

/* Addresses of one name that are tried. */
#define ADDRESSES_MAX 8
#define TARGETS_MAX   (2 * MILTER_LIST_MAX + 2)

struct target {
    char text[MILTER_ADDRESS_MAX];
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    socklen_t lengths[ADDRESSES_MAX];
    uint32_t count;
};

struct outgoing {
    struct target targets[TARGETS_MAX];
    size_t count;
};

static const struct target *find(const struct outgoing *o, struct slice text)
{
    for (size_t i = 0; i < o->count; i++) {
        if (slice_equal(slice_string(o->targets[i].text), text)) {
            return &o->targets[i];
        }
    }
    return NULL;
}

static void keep_address(struct target *t, const void *address, size_t len)
{
    if (t->count < ADDRESSES_MAX && len <= sizeof t->addresses[0]) {
        memcpy(&t->addresses[t->count], address, len);
        t->lengths[t->count++] = (socklen_t)len;
    }
}

static bool look_up(struct target *t, const struct milter_address *a, struct buf *why)
{
    const struct addrinfo hints = {.ai_family = a->is_v6 ? AF_INET6 : AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char *host = mem_copy(a->host.ptr, a->host.len), port[8];
    int result;

    (void)snprintf(port, sizeof port, "%u", a->port); /* fits */
    result = getaddrinfo(host, port, &hints, &found);
    mem_free(host);
    if (result != 0) {
        (void)buf_addf(why, "%s: %s", t->text, gai_strerror(result)); /* sticky */
        return false;
    }
    for (const struct addrinfo *i = found; i != NULL; i = i->ai_next) {
        keep_address(t, i->ai_addr, i->ai_addrlen);
    }
    freeaddrinfo(found);
    return true;
}

static bool add(struct outgoing *o, const char *text, struct buf *why)
{
    struct target *t = &o->targets[o->count];
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct milter_address a;

    if (find(o, slice_string(text)) != NULL) {
        return true;
    }
    CHECK(o->count < TARGETS_MAX);
    (void)snprintf(t->text, sizeof t->text, "%s", text);    /* as long */
    CHECK(milter_address_parse(slice_string(t->text), &a)); /* conf_load has */
    o->count++;
    if (!a.is_unix) {
        return look_up(t, &a, why);
    }
    CHECK(a.host.len < sizeof path.sun_path);
    memcpy(path.sun_path, a.host.ptr, a.host.len);
    keep_address(t, &path, sizeof path);
    return true;
}

struct outgoing *outgoing_new(const struct conf *conf, struct buf *ret_error)
{
    const struct {
        const char *parameter, *value;
    } lists[] = {{"smtpd_milters", conf->smtpd_milters},
                 {"non_smtpd_milters", conf->non_smtpd_milters}};
    struct outgoing *o = mem_new(sizeof *o);
    struct callout_target callout;
    struct milter_list list;
    struct buf why;
    bool ok = true;

    buf_init(&why, 1000);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        CHECK(milter_list_parse(conf, lists[i].value, &list, &why)); /* conf_load has */
        for (size_t k = 0; k < list.count; k++) {
            buf_clear(&why);
            if (!add(o, list.at[k].text, &why)) {
                conf_put_place(conf, lists[i].parameter, ret_error);
                (void)buf_addf(ret_error, "error: %s: %s\n", lists[i].parameter,
                               buf_cstr(&why)); /* sticky */
                ok = false;
            }
        }
    }
    for (int local = 0; local <= 1; local++) {
        const char *parameter = local == 1 ? "local_recipient_maps" : "relay_recipient_maps";

        buf_clear(&why);
        if (!callout_target_of(conf, local == 1, &callout, &why) ||
            (callout.text[0] != '\0' && !add(o, callout.text, &why))) {
            conf_put_place(conf, parameter, ret_error);
            (void)buf_addf(ret_error, "error: %s: %s\n", parameter, buf_cstr(&why)); /* sticky */
            ok = false;
        }
    }
    buf_fini(&why);
    if (!ok) {
        outgoing_free(o);
        return NULL;
    }
    return o;
}

void outgoing_free(struct outgoing *o)
{
    mem_free(o);
}

int outgoing_connect(const struct outgoing *o, struct slice address, uint32_t attempt,
                     uint32_t *ret_count, struct buf *ret_error)
{
    const struct target *t = find(o, address);
    const struct sockaddr *to;
    uint32_t i;
    int fd;

    *ret_count = t == NULL ? 0 : t->count;
    if (t == NULL || t->count == 0) {
        (void)buf_add_string(ret_error, "the configuration names no such filter"); /* fits */
        return -1;
    }
    i = attempt % t->count;
    to = (const struct sockaddr *)&t->addresses[i];
    fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, to, t->lengths[i]) == 0 || errno == EINPROGRESS)) {
        return fd;
    }
    (void)buf_add_string(ret_error, strerror(errno)); /* fits */
    if (fd >= 0) {
        (void)close(fd); /* never connected */
    }
    return -1;
}
