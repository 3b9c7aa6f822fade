#include "child_environment.h"

#include <string.h>
#include <unistd.h>

#include "mem.h"
#include "sanitized.h"

static const char *const for_all[] = {
    "PATH=", /* of commands that agents run until they get their own */
    "TZ=",
    "TMPDIR=",
    "SLUICE_CORE=",
    "SLUICE_SECCOMP=",
    /* libraries: OpenSSL, the allocator, the loader */
    "SSL_CERT_FILE=",
    "SSL_CERT_DIR=",
    "OPENSSL_CONF=",
    "OPENSSL_MODULES=",
    "MALLOC_",
    "GLIBC_TUNABLES=",
    "LD_PRELOAD=",
    "LD_LIBRARY_PATH=",
    /* of Postfix's master, for what it starts in place of its own queue manager */
    "MAIL_LOGTAG=",
    "POSTLOG_HOSTNAME=",
    "POSTLOG_SERVICE=",
};

/* A client of PostgreSQL, and what Postfix's master has for its queue manager. */
static const char *const for_queue[] = {"HOME=", "PG", "GENERATION=", "SLUICE_MASTER="};

static const char *const for_sanitizers[] = {
    "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=", "ASAN_SYMBOLIZER_PATH=", "SHIFTED_CLOCK="};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool is_on(const char *variable, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(variable, list[i], strlen(list[i])) == 0) {
            return true;
        }
    }
    return false;
}

char **child_environment(enum wire_role role)
{
    size_t count = 0, kept = 0;
    char **list;

    while (environ[count] != NULL) {
        count++;
    }
    list = mem_array(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        if (is_on(environ[i], for_all, COUNT(for_all)) ||
            (role == ROLE_QUEUE && is_on(environ[i], for_queue, COUNT(for_queue))) ||
            (SANITIZED && is_on(environ[i], for_sanitizers, COUNT(for_sanitizers)))) {
            list[kept++] = environ[i];
        }
    }
    list[kept] = NULL;
    return list;
}
