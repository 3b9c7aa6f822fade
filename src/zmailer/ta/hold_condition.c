#include "hold_condition.h"

#include <arpa/nameser.h>
#include <netdb.h>
#include <pwd.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "entropy.h"
#include "mem.h"
#include "ta_child.h"
#include "zmailer_dialect.h"

#define NAME_SIZE   1024
#define ACCOUNT_MAX 16384
#define AGE_MAX_S   (INT64_C(1) << 40)

/* ---- name servers --------------------------------------------------------------------------- */

static const struct {
    const char *word;
    int type;
} record_types[] = {
    {"a", ns_t_a},     {"aaaa", ns_t_aaaa}, {"any", ns_t_any}, {"cname", ns_t_cname},
    {"mx", ns_t_mx},   {"ns", ns_t_ns},     {"ptr", ns_t_ptr}, {"soa", ns_t_soa},
    {"txt", ns_t_txt}, {"wks", ns_t_wks},
};

static int record_type(struct slice word)
{
    for (size_t i = 0; i < sizeof record_types / sizeof record_types[0]; i++) {
        if (slice_equal_nocase(word, slice_string(record_types[i].word))) {
            return record_types[i].type;
        }
    }
    return ns_t_any;
}

static enum hold_outcome ask_name_server(const struct hold_world *world, struct slice parameter)
{
    struct slice rest = parameter, name = slice_cut(&rest, '/');
    struct __res_state state = {0};
    unsigned char answer[NS_PACKETSZ * 8];
    char text[NAME_SIZE];
    int got;

    if (name.len == 0 || name.len >= sizeof text || res_ninit(&state) != 0) {
        return HOLD_NO_ANSWER;
    }
    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(name));
    if (world->name_server.ss_family == AF_INET) {
        memcpy(&state.nsaddr_list[0], &world->name_server, sizeof state.nsaddr_list[0]);
        state.nscount = 1;
    }
    got = res_nquery(&state, text, ns_c_in, record_type(rest.ptr == NULL ? SLICE("any") : rest),
                     answer, sizeof answer);
    res_nclose(&state);
    return got < 0 && state.res_h_errno == TRY_AGAIN ? HOLD_NO_ANSWER : HOLD_OVER;
}

/* ---- times ---------------------------------------------------------------------------------- */

static enum hold_outcome look_at_clock(struct slice parameter, struct wall now)
{
    unsigned long long seconds;

    if (!slice_number(parameter, INT64_MAX / US_PER_S, &seconds)) {
        return HOLD_UNKNOWN;
    }
    return (int64_t)seconds * US_PER_S <= now.us ? HOLD_OVER : HOLD_NOT_YET;
}

/* Parses an interval like "1d5h7m3s"; a number without a unit is seconds. Returns a negative number
 * for anything else. */
static int64_t read_interval(struct slice text)
{
    int64_t total = 0, number = -1;

    for (size_t i = 0; i < text.len; i++) {
        char c = ascii_lower(text.ptr[i]);

        if (ascii_is_digit(c)) {
            number = (number < 0 ? 0 : number) * 10 + (c - '0');
        } else if (number >= 0 && memchr("dhms", c, 4) != NULL) {
            total += number * (c == 'd' ? 86400 : c == 'h' ? 3600 : c == 'm' ? 60 : 1);
            number = -1;
        } else {
            return -1;
        }
        if (number > AGE_MAX_S || total > AGE_MAX_S) {
            return -1;
        }
    }
    return text.len == 0 ? -1 : total + (number < 0 ? 0 : number);
}

static enum hold_outcome look_at_age(struct slice parameter, struct wall arrived, struct wall now)
{
    int64_t age_s = read_interval(parameter);

    if (age_s < 0) {
        return HOLD_UNKNOWN;
    }
    return us_seconds(now.us) - us_seconds(arrived.us) >= age_s ? HOLD_OVER : HOLD_NOT_YET;
}

static enum hold_outcome throw_dice(void)
{
    return entropy_u64() % 256 < 26 ? HOLD_OVER : HOLD_NOT_YET;
}

/* ---- scripts and users ---------------------------------------------------------------------- */

struct script {
    const struct hold_world *world;
    char path[NAME_SIZE], word[NAME_SIZE];
};

static void run_script(void *arg)
{
    static const char *const names[] = {"PATH", "MAILBIN", "MAILSHARE"};
    const struct script *s = arg;
    const char *zconfig = getenv("ZCONFIG");
    char *kept = zconfig == NULL ? NULL : mem_string(zconfig);

    CHECK(clearenv() == 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = conf_zenv(s->world->zenv, slice_string(names[i]));

        CHECK(value == NULL || setenv(names[i], value, 1) == 0);
    }
    CHECK(kept == NULL || setenv("ZCONFIG", kept, 1) == 0);
    execl(s->path, s->path, s->word[0] == '\0' ? (char *)NULL : s->word, (char *)NULL);
    _exit(EX_UNAVAILABLE);
}

static bool is_simple_name(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (!ascii_is_alnum(name.ptr[i]) && memchr("._-", name.ptr[i], 3) == NULL) {
            return false;
        }
    }
    return name.len > 0 && name.ptr[0] != '.' && name.ptr[0] != '-';
}

static enum hold_outcome ask_script(const struct hold_world *world, struct slice parameter)
{
    struct slice rest = parameter, name = slice_cut(&rest, '/');
    struct script script = {.world = world};
    struct ta_child_end end;
    struct buf output;
    bool ok = is_simple_name(name);
    int len;

    if (rest.ptr == NULL) {
        rest = SLICE("");
    }
    len = snprintf(script.path, sizeof script.path, "%s/bin/%.*s",
                   conf_zenv(world->zenv, SLICE("MAILBIN")), SLICE_ARGS(name));
    ok = ok && len > 0 && (size_t)len < sizeof script.path && rest.len < sizeof script.word;
    if (!ok) {
        return HOLD_UNKNOWN;
    }
    memcpy(script.word, rest.ptr, rest.len);
    buf_init(&output, 1024);
    ok = ta_child_run(run_script, &script, -1, world->script_timeout_s, &output, &end) == 0 &&
         !end.timed_out && WIFEXITED(end.wait_status) && WEXITSTATUS(end.wait_status) == EX_OK;
    buf_fini(&output);
    return ok ? HOLD_OVER : HOLD_NOT_YET;
}

static enum hold_outcome look_for_home(struct slice user)
{
    char name[NAME_SIZE], space[ACCOUNT_MAX];
    struct passwd account, *found = NULL;
    struct stat st;

    if (user.len >= sizeof name) {
        return HOLD_UNKNOWN;
    }
    (void)snprintf(name, sizeof name, "%.*s", SLICE_ARGS(user));
    return getpwnam_r(name, &account, space, sizeof space, &found) == 0 && found != NULL &&
                   stat(found->pw_dir, &st) == 0
               ? HOLD_OVER
               : HOLD_NOT_YET;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

enum hold_outcome hold_condition(const struct hold_world *world, struct slice condition,
                                 struct wall arrived, struct wall now)
{
    struct slice parameter = condition, class = slice_cut(&parameter, ':');

    if (parameter.ptr == NULL) {
        return HOLD_UNKNOWN;
    }
    if (slice_equal_nocase(class, SLICE("ns"))) {
        return ask_name_server(world, parameter);
    }
    if (slice_equal_nocase(class, SLICE("timeout"))) {
        return look_at_clock(parameter, now);
    }
    if (slice_equal_nocase(class, SLICE("age"))) {
        return look_at_age(parameter, arrived, now);
    }
    if (slice_equal_nocase(class, SLICE("io"))) {
        return throw_dice();
    }
    if (slice_equal_nocase(class, SLICE("script"))) {
        return ask_script(world, parameter);
    }
    if (slice_equal_nocase(class, SLICE("home"))) {
        return look_for_home(parameter);
    }
    return HOLD_UNKNOWN;
}
