#include "mailq_parent.h"

#include <string.h>
#include <unistd.h>

#include "authfile.h"
#include "extension.h"
#include "log.h"
#include "mailq_serve.h"
#include "mem.h"
#include "zmailer_dialect.h"

/* ---- sockets -------------------------------------------------------------------------------- */

static char *url_of(const struct conf *conf)
{
    struct buf url;

    if (conf->mailqsock[0] == '\0') {
        return NULL;
    }
    buf_init(&url, CONF_LINE_MAX + 64);
    (void)buf_addf(&url, MAILQ_SERVICE ":%s", conf->mailqsock); /* fits: values have this limit */
    return buf_take(&url);
}

/* Returns BINDADDR without ZMailer's brackets: 192.0.2.1, [192.0.2.1], [IPv6.2001:db8::1]. */
static struct slice bind_address(const struct conf *conf)
{
    const char *text = conf_zenv(conf, SLICE("BINDADDR"));
    struct slice s = slice_trim(slice_string(text != NULL ? text : ""));

    if (s.len >= 2 && s.ptr[0] == '[' && s.ptr[s.len - 1] == ']') {
        s = slice_of(s.ptr + 1, s.len - 2);
    }
    return slice_skip(s, slice_starts_nocase(s, SLICE("IPv6")) && s.len > 5 ? 5 : 0);
}

/* Does the server have logins, as protocol 2? Decides as mailq_serve does, except when the auth
 * file appears or vanishes in between. */
static bool has_logins(const struct conf *conf)
{
    return conf->mailq_protocol == 2 ||
           (conf->authfile[0] != '\0' && access(conf->authfile, R_OK) == 0);
}

/* Writes the address of TCP:PORT or UNIX:PATH. Protocol 1 shows the queue to every client, so a
 * port without an address listens on localhost only. With logins on a ZMailer site it listens on
 * all addresses, as ZMailer's users expect. */
static enum extension_address address_of(const struct conf *conf, const char *url, struct buf *out)
{
    static const char tcp[] = MAILQ_SERVICE ":TCP:", local[] = MAILQ_SERVICE ":UNIX:";
    struct slice address;

    if (strncmp(url, local, sizeof local - 1) == 0) {
        (void)buf_add_string(out, url + sizeof local - 1); /* sticky: the caller checks `out` */
        return EXTENSION_UNIX;
    }
    if (strncmp(url, tcp, sizeof tcp - 1) != 0) {
        return EXTENSION_NOWHERE;
    }
    address = bind_address(conf);
    if (address.len > 0) {
        (void)buf_addf(out, "[%.*s]:%s", SLICE_ARGS(address), url + sizeof tcp - 1); /* sticky */
    } else {
        (void)buf_addf(out, "%s:%s",
                       conf_postoffice(conf) != NULL && has_logins(conf) ? "*" : "localhost",
                       url + sizeof tcp - 1);
    }
    return EXTENSION_TCP;
}

/* May the daemon run without this socket? On a ZMailer site it may, as ZMailer's scheduler does:
 * the port is reserved for root, and all users may connect. */
static bool is_optional(const struct conf *conf)
{
    return conf_postoffice(conf) != NULL;
}

/* ---- the authfile --------------------------------------------------------------------------- */

static void forget(struct buf *secret)
{
    if (secret->ptr != NULL) {
        explicit_bzero(secret->ptr, secret->size);
    }
    buf_fini(secret);
}

/* Adds the authfile to the bundle. In ZMailer an unreadable file means protocol 1, which admits all
 * clients. Where the spool is not ZMailer's, users do not expect that, so an unreadable file is an
 * error. */
static bool add_files(struct bundle *b, struct buf *out)
{
    const char *path = b->conf->authfile;
    bool is_needed = conf_postoffice(b->conf) == NULL;
    struct buf text, complaints;
    struct slice rest;
    int error;

    if (path[0] == '\0' || bundle_has(b, path)) {
        return true;
    }
    buf_init(&text, (size_t)2 * MAILQ_AUTH_FILE_MAX);
    buf_init(&complaints, 65536);
    error = authfile_read(path, &text, &complaints);
    if (error == 0) {
        error = bundle_add(b, path, buf_slice(&text));
    }
    if (error != 0) {
        (void)buf_addf(out, "%s: PARAMauthfile: %s: %s%s\n", is_needed ? "error" : "warning", path,
                       strerror(-error), is_needed ? "" : ": mailq protocol 1 is served");
    }
    rest = buf_slice(&complaints);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        (void)buf_addf(out, "warning: PARAMauthfile: %.*s\n", SLICE_ARGS(line)); /* sticky */
    }
    forget(&text);
    buf_fini(&complaints);
    return error == 0 || !is_needed;
}

/* Logs the faults of the authfile when they change, not for each client. */
static void tell_of_authfile(struct slice complaints)
{
    static char *told; /* owned: the complaints that were logged last, or NULL */
    struct slice rest = complaints;

    if (told != NULL && slice_equal(slice_string(told), complaints)) {
        return;
    }
    mem_free(told);
    told = mem_copy(complaints.ptr, complaints.len);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        log_warning("PARAMauthfile: %.*s", SLICE_ARGS(line));
    }
}

/* Sends the current authfile to the service, which has a new client or login. */
static bool heard(const struct conf *conf, const struct wire_service *m, struct channel *control)
{
    struct wire_service answer = {.name = SLICE(MAILQ_SERVICE), .what = MAILQ_AUTHFILE};
    struct buf text, complaints;
    int error;

    if (m->what != MAILQ_NEED_AUTHFILE || m->text.len > 0) {
        return false;
    }
    buf_init(&text, (size_t)2 * MAILQ_AUTH_FILE_MAX);
    buf_init(&complaints, 65536);
    error = authfile_read(conf->authfile, &text, &complaints);
    if (error != 0) {
        (void)buf_addf(&complaints, "%s: %s: no client is admitted\n", conf->authfile,
                       strerror(-error));
    }
    tell_of_authfile(buf_slice(&complaints));
    answer.text = error == 0 ? buf_slice(&text) : SLICE("");
    wire_put_service(control, &answer, -1);
    forget(&text);
    buf_fini(&complaints);
    return true;
}

void mailq_parent_register(void)
{
    static const struct extension extension = {
        .name = MAILQ_SERVICE,
        .url = url_of,
        .parameter = "mailqsock",
        .address = address_of,
        .is_optional = is_optional,
        .add_files = add_files,
        .heard = heard,
    };

    extension_register(&extension);
}
