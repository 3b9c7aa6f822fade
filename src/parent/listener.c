#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "extension.h"
#include "mem.h"
#include "nexthop.h"

#define BACKLOG 1024                   /* the kernel limits it to net.core.somaxconn */
#define WHY_MAX (CONF_LINE_MAX + 1024) /* a URL and an error */

/* One listener of a configuration. */
struct wish {
    enum wire_role role;
    const char *url;
    char *owned_url; /* owned; NULL if `url` belongs to the configuration */
    const char *parameter;
    bool listens_later; /* listens only when the socket is shared */
};

static const struct listener *find(const struct listeners *list, enum wire_role role,
                                   const char *url)
{
    const struct listener *l;

    TAILQ_FOREACH(l, list, next)
    {
        if (l->role == role && strcmp(l->url, url) == 0) {
            return l;
        }
    }
    return NULL;
}

/* ---- listeners of a configuration ------------------------------------------------------------ */

static char *join(const char *prefix, const char *text)
{
    struct buf b;

    buf_init(&b, CONF_LINE_MAX + 64);
    (void)buf_addf(&b, "%s%s", prefix, text); /* a value is at most CONF_LINE_MAX long */
    return buf_take(&b);
}

static size_t list_wishes(const struct conf *conf, struct wish wishes[LISTENERS_MAX])
{
    size_t count = 0;
    bool later = slice_starts(slice_string(conf->spool), SLICE(CONF_SPOOL_CLUSTER));
    struct listen_options options;
    const char *url_as_given;

    for (size_t at = 0;
         count < LISTENERS_MAX && listen_next(&conf->listen, &at, &url_as_given, &options);) {
        wishes[count++] = (struct wish){ROLE_RECEIVE, url_as_given, NULL, "listen", later};
    }
    if (conf->control_socket[0] != '\0' && count < LISTENERS_MAX) {
        char *url = join("unix:", conf->control_socket);
        wishes[count++] = (struct wish){ROLE_CONTROL, url, url, "control_socket", false};
    }
    for (size_t i = 0; i < conf->control_listen.count && count < LISTENERS_MAX; i++) {
        wishes[count++] = (struct wish){ROLE_CONTROL, conf->control_listen.items[i], NULL,
                                        "control_listen", false};
    }
    for (size_t i = 0; extension_at(i) != NULL && count < LISTENERS_MAX; i++) {
        char *url = extension_at(i)->url(conf);

        if (url != NULL) {
            wishes[count++] =
                (struct wish){ROLE_CONTROL, url, url, extension_at(i)->parameter, false};
        }
    }
    return count;
}

static void free_wishes(struct wish *wishes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(wishes[i].owned_url);
    }
}

/* Returns the extension with this socket, or NULL. */
static const struct extension *extension_for(const struct wish *wish)
{
    return wish->role == ROLE_CONTROL ? extension_of(slice_string(wish->url)) : NULL;
}

static bool is_optional(const struct wish *wish, const struct conf *conf)
{
    const struct extension *extension = extension_for(wish);

    return extension != NULL && extension->is_optional(conf);
}

/* ---- opening ----------------------------------------------------------------------------------
 *
 * Without a list nothing is opened: only what is known before is looked at, names, addresses,
 * lengths of paths, groups.
 */

static void add(struct listeners *list, const struct wish *wish, const char *path, int fd)
{
    struct listener *l = mem_new(sizeof *l);

    l->role = wish->role;
    l->url = mem_string(wish->url);
    l->path = path == NULL ? NULL : mem_string(path);
    l->fd = fd;
    l->listens = !wish->listens_later;
    l->fresh = true;
    TAILQ_INSERT_TAIL(list, l, next);
}

static bool fail(struct buf *error, const char *url, const char *why)
{
    (void)buf_addf(error, "%s: %s", url, why); /* sticky */
    return false;
}

static bool bind_and_listen(const struct wish *wish, int fd, const struct sockaddr *address,
                            socklen_t len)
{
    return bind(fd, address, len) == 0 && (wish->listens_later || listen(fd, BACKLOG) == 0);
}

/* Binds to another port, which is free: is it an address of this machine? */
static bool bind_anywhere(int fd, const struct addrinfo *address)
{
    struct sockaddr_storage any = {0};

    CHECK(address->ai_addrlen <= sizeof any);
    memcpy(&any, address->ai_addr, address->ai_addrlen);
    if (address->ai_family == AF_INET6) {
        ((struct sockaddr_in6 *)&any)->sin6_port = 0;
    } else {
        ((struct sockaddr_in *)&any)->sin_port = 0;
    }
    return bind(fd, (const struct sockaddr *)&any, address->ai_addrlen) == 0;
}

static bool open_address(struct listeners *list, const struct wish *wish,
                         const struct addrinfo *address, struct buf *error)
{
    static const int on = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return fail(error, wish->url, strerror(errno));
    }
    /* Without SO_REUSEADDR a restart would wait for the end of old connections; without IPV6_V6ONLY
     * `*` would conflict with itself. A failure of either is acceptable. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (list == NULL ? !bind_anywhere(fd, address)
                     : !bind_and_listen(wish, fd, address->ai_addr, address->ai_addrlen)) {
        int why = errno;
        (void)close(fd); /* never used */
        return fail(error, wish->url, strerror(why));
    }
    if (list == NULL) {
        (void)close(fd); /* only a check */
        return true;
    }
    add(list, wish, NULL, fd);
    return true;
}

/* Splits "host:port" or "[v6]:port"; host is NULL for "*". Without a port *ret_port stays. Returns
 * false if the text has another form. */
static bool split_host_port(char *text, char **ret_host, const char **ret_port)
{
    char *colon = strrchr(text, ':');
    size_t len;

    if (*ret_port != NULL && (colon == NULL || strchr(colon, ']') != NULL)) {
        colon = NULL;
    } else if (colon == NULL || colon == text || colon[1] == '\0') {
        return false;
    } else {
        *colon = '\0';
        *ret_port = colon + 1;
    }
    len = strlen(text);
    if (text[0] == '[' && text[len - 1] == ']') {
        text[len - 1] = '\0';
        text++;
    }
    *ret_host = strcmp(text, "*") == 0 ? NULL : text;
    return true;
}

/* Opens sockets for HOST:PORT. `port` is the default; NULL: a port is required. */
static bool open_tcp(struct listeners *list, const struct wish *wish, const char *host_port,
                     const char *port, struct buf *error)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char *text = mem_string(host_port), *host;
    bool ok = true;
    int result;

    if (!split_host_port(text, &host, &port)) {
        mem_free(text);
        return fail(error, wish->url, "not HOST:PORT");
    }
    result = getaddrinfo(host, port, &hints, &found);
    mem_free(text);
    if (result != 0) {
        return fail(error, wish->url, gai_strerror(result));
    }
    for (const struct addrinfo *a = found; a != NULL && ok; a = a->ai_next) {
        ok = open_address(list, wish, a, error);
    }
    freeaddrinfo(found);
    return ok;
}

/* Removes a socket without a listening process, which a crash has left. Other files with this name
 * stay. */
static bool remove_stale(const struct sockaddr_un *address)
{
    struct stat st;
    int fd;
    bool stale;

    if (lstat(address->sun_path, &st) != 0) {
        return errno == ENOENT;
    }
    if (!S_ISSOCK(st.st_mode)) {
        errno = EEXIST;
        return false;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    stale = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
            errno == ECONNREFUSED;
    (void)close(fd); /* nothing was sent */
    errno = EADDRINUSE;
    return stale && unlink(address->sun_path) == 0;
}

/* Finds the group of a socket; (gid_t)-1 for the daemon's own. */
static bool find_group(const struct wish *wish, const struct conf *conf, gid_t *ret_gid,
                       struct buf *error)
{
    const char *name = wish->role == ROLE_CONTROL ? conf->control_socket_group : "";
    const struct group *group;

    *ret_gid = (gid_t)-1;
    if (name[0] == '\0') {
        return true;
    }
    errno = 0;
    group = getgrnam(name);
    if (group == NULL) {
        (void)buf_addf(error, "control_socket_group: there is no group \"%s\"%s%s", name,
                       errno == 0 ? "" : ": ", errno == 0 ? "" : strerror(errno)); /* sticky */
        return false;
    }
    *ret_gid = group->gr_gid;
    return true;
}

/* Sets the users who may connect. LMTP: all users, because all may send mail. */
static bool set_socket_mode(const struct wish *wish, const struct conf *conf, gid_t group,
                            const char *path)
{
    bool limited = wish->role == ROLE_CONTROL && !is_optional(wish, conf);
    mode_t mode = limited ? (mode_t)conf->control_socket_mode : 0666;

    /* The directory may belong to mail_owner, who could replace the socket by a link to one of
     * root's files. */
    return lchown(path, (uid_t)-1, group) == 0 &&
           fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool open_unix(struct listeners *list, const struct wish *wish, const struct conf *conf,
                      const char *path, struct buf *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mask;
    gid_t group;
    bool ok;
    int fd;

    if (strlen(path) >= sizeof address.sun_path) {
        return fail(error, wish->url, "the path is too long for a Unix socket");
    }
    if (list == NULL) {
        return true;
    }
    if (!find_group(wish, conf, &group, error)) {
        return false;
    }
    (void)strcpy(address.sun_path, path); /* fits */
    if (!remove_stale(&address)) {
        return fail(error, wish->url, strerror(errno));
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail(error, wish->url, strerror(errno));
    }
    mask = umask(0177); /* closed to others until its mode is set */
    ok = bind_and_listen(wish, fd, (const struct sockaddr *)&address, sizeof address);
    (void)umask(mask); /* never fails */
    if (!ok || !set_socket_mode(wish, conf, group, path)) {
        int why = errno;
        (void)close(fd); /* never used */
        if (ok) {
            (void)unlink(path); /* ours; if it stays, the next start removes it */
        }
        return fail(error, wish->url, strerror(why));
    }
    add(list, wish, path, fd);
    return true;
}

static bool open_extension(struct listeners *list, const struct wish *wish,
                           const struct extension *extension, const struct conf *conf,
                           struct buf *error)
{
    struct buf where;
    bool ok = false;

    buf_init(&where, CONF_LINE_MAX + 64);
    switch (extension->address(conf, wish->url, &where)) {
    case EXTENSION_TCP:
        ok = open_tcp(list, wish, buf_cstr(&where), NULL, error);
        break;
    case EXTENSION_UNIX:
        ok = open_unix(list, wish, conf, buf_cstr(&where), error);
        break;
    case EXTENSION_NOWHERE:
        ok = fail(error, wish->url, "not an address to listen on");
        break;
    }
    buf_fini(&where);
    return ok;
}

static bool open_wish(struct listeners *list, const struct wish *wish, const struct conf *conf,
                      struct buf *error)
{
    static const struct {
        const char *scheme, *port;
    } tcp[] = {{"smtp://", NULL},         {"lmtp://", NULL}, {"submission://", "587"},
               {"submissions://", "465"}, {"http://", NULL}, {"https://", NULL}};
    static const char *const local[] = {"lmtp:unix:", "smtp:unix:", "unix:"};
    const struct extension *extension = extension_for(wish);

    if (extension != NULL) {
        return open_extension(list, wish, extension, conf, error);
    }
    for (size_t i = 0; i < sizeof tcp / sizeof tcp[0]; i++) {
        if (strncmp(wish->url, tcp[i].scheme, strlen(tcp[i].scheme)) == 0) {
            return open_tcp(list, wish, wish->url + strlen(tcp[i].scheme), tcp[i].port, error);
        }
    }
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        if (strncmp(wish->url, local[i], strlen(local[i])) == 0) {
            return open_unix(list, wish, conf, wish->url + strlen(local[i]), error);
        }
    }
    return fail(error, wish->url, "not an address to listen on");
}

static void remove_listener(struct listeners *list, struct listener *l)
{
    TAILQ_REMOVE(list, l, next);
    (void)close(l->fd); /* connections belong to others */
    if (l->path != NULL) {
        (void)unlink(l->path); /* if it stays, the next start removes it */
    }
    mem_free(l->path);
    mem_free(l->url);
    mem_free(l);
}

bool listeners_open(struct listeners *list, const struct conf *conf, struct buf *ret_error)
{
    struct wish wishes[LISTENERS_MAX];
    struct listener *l, *following;
    size_t count = list_wishes(conf, wishes);
    bool ok = true;

    TAILQ_FOREACH(l, list, next)
    {
        l->fresh = false;
    }
    for (size_t i = 0; i < count && ok; i++) {
        if (find(list, wishes[i].role, wishes[i].url) == NULL) {
            size_t before = buf_len(ret_error);

            ok = open_wish(list, &wishes[i], conf, ret_error);
            if (!ok && is_optional(&wishes[i], conf)) {
                ok = buf_len(ret_error) == before || buf_add_byte(ret_error, '\n');
            }
        }
    }
    free_wishes(wishes, count);
    for (l = TAILQ_FIRST(list); l != NULL && !ok; l = following) {
        following = TAILQ_NEXT(l, next);
        if (l->fresh) {
            remove_listener(list, l);
        }
    }
    return ok;
}

bool listeners_check(const struct conf *conf, struct buf *ret_error)
{
    struct wish wishes[LISTENERS_MAX];
    size_t count = list_wishes(conf, wishes);
    struct buf why;
    bool ok = true;

    buf_init(&why, WHY_MAX);
    for (size_t i = 0; i < count; i++) {
        buf_clear(&why);
        if (!open_wish(NULL, &wishes[i], conf, &why) && !is_optional(&wishes[i], conf)) {
            conf_put_place(conf, wishes[i].parameter, ret_error);
            (void)buf_addf(ret_error, "error: %s: %s\n", wishes[i].parameter,
                           buf_cstr(&why)); /* sticky */
            ok = false;
        }
    }
    buf_fini(&why);
    free_wishes(wishes, count);
    return ok;
}

bool listeners_complete(const struct listeners *list, const struct conf *conf)
{
    struct wish wishes[LISTENERS_MAX];
    size_t count = list_wishes(conf, wishes);
    bool complete = true;

    for (size_t i = 0; i < count; i++) {
        complete = complete && find(list, wishes[i].role, wishes[i].url) != NULL;
    }
    free_wishes(wishes, count);
    return complete;
}

void listeners_prune(struct listeners *list, const struct conf *conf)
{
    struct wish wishes[LISTENERS_MAX];
    struct listener *l, *following;
    size_t count = conf == NULL ? 0 : list_wishes(conf, wishes);

    for (l = TAILQ_FIRST(list); l != NULL; l = following) {
        bool wanted = false;

        following = TAILQ_NEXT(l, next);
        for (size_t i = 0; i < count; i++) {
            wanted = wanted || (wishes[i].role == l->role && strcmp(wishes[i].url, l->url) == 0);
        }
        if (!wanted) {
            remove_listener(list, l);
        }
    }
    free_wishes(wishes, count);
}

int listener_share(struct listener *l)
{
    int fd;

    if (!l->listens && listen(l->fd, BACKLOG) != 0) {
        return -errno;
    }
    l->listens = true;
    fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 3);

    CHECK(fd >= 0); /* a parent without descriptors can't go on */
    return fd;
}
