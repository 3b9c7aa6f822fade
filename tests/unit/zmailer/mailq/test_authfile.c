#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authfile.h"

static char path[] = "/tmp/authfile-XXXXXX";

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_read(mode_t mode, const char *want_text, const char *want_complaint)
{
    struct buf text, complaints;

    assert_int_equal(chmod(path, mode), 0);
    buf_init(&text, 200000);
    buf_init(&complaints, 10000);
    assert_int_equal(authfile_read(path, &text, &complaints), 0);
    assert_string_equal(buf_cstr(&text), want_text);
    if (want_complaint[0] == '\0') {
        assert_int_equal(buf_len(&complaints), 0);
    } else {
        assert_non_null(strstr(buf_cstr(&complaints), want_complaint));
    }
    buf_fini(&text);
    buf_fini(&complaints);
}

static void assert_fails(const char *which, int error)
{
    struct buf text, complaints;

    buf_init(&text, 200000);
    buf_init(&complaints, 10000);
    assert_int_equal(authfile_read(which, &text, &complaints), error);
    buf_fini(&text);
    buf_fini(&complaints);
}

static void permissions_decide(void **unused)
{
    static const char clear[] = "u:p:ALL:\n";
    static const char hashed[] = "u:{SCRAM-SHA-256}4096,c2FsdA==,"
                                 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,"
                                 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:ALL:\n";
    int fd = mkstemp(path);

    (void)unused;
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    write_text(clear);
    assert_read(0600, clear, "");
    assert_read(0640, clear, "");
    assert_read(0604, clear, "mode 0600 is better");
    write_text("nobody:nobody:SNMP QQ:\n");
    assert_read(0644, "nobody:nobody:SNMP QQ:\n", "");
    write_text(clear);
    assert_read(0602, "", "no client is admitted");
    assert_read(0666, "", "no client is admitted");
    write_text(hashed);
    assert_read(0644, hashed, "");
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 0), 0);
        assert_read(0600, "", "no client is admitted");
        assert_int_equal(chown(path, 0, 65534), 0);
        assert_read(0660, "", "no client is admitted");
        assert_int_equal(chown(path, 0, 0), 0);
        assert_read(0660, hashed, "");
    }
    assert_int_equal(remove(path), 0);
    assert_fails(path, -ENOENT);
    assert_fails("/", -EISDIR);
    assert_fails("/dev/null", -EINVAL);
}

static void a_file_has_its_bounds(void **unused)
{
    char *much = malloc(MAILQ_AUTH_FILE_MAX + 2);

    (void)unused;
    assert_non_null(much);
    memset(much, '#', MAILQ_AUTH_FILE_MAX + 1);
    much[MAILQ_AUTH_FILE_MAX + 1] = '\0';
    write_text(much);
    assert_int_equal(chmod(path, 0600), 0);
    assert_fails(path, -EFBIG);
    much[MAILQ_AUTH_FILE_MAX] = '\0';
    write_text(much);
    assert_read(0600, much, "");
    free(much);
    assert_int_equal(remove(path), 0);
}

UNIT_MAIN(cmocka_unit_test(permissions_decide), cmocka_unit_test(a_file_has_its_bounds))
