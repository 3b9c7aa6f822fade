#include "ta_agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define READ_MAX 4096

/* Set by signal handlers, which get no argument. */
static volatile sig_atomic_t asked_to_quit;

static void on_quit(int signal_number)
{
    (void)signal_number;
    asked_to_quit = 1;
}

void ta_agent_init(struct ta_agent *a, const char *name, struct slice channel, int in, int out)
{
    struct sigaction quit = {.sa_handler = on_quit}, ignore = {.sa_handler = SIG_IGN};
    sigset_t block;

    *a = (struct ta_agent){
        .name = name, .channel = channel, .host = {"", 0}, .pid = getpid(), .in = in, .out = out};
    buf_init(&a->input, TA_AGENT_ORDER_MAX + READ_MAX);
    buf_init(&a->line, TA_LINE_MAX);
    CHECK(sigemptyset(&block) == 0 && sigaddset(&block, SIGQUIT) == 0 &&
          sigaddset(&block, SIGTERM) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &block, &a->wait_mask) == 0);
    CHECK(sigdelset(&a->wait_mask, SIGQUIT) == 0 && sigdelset(&a->wait_mask, SIGTERM) == 0);
    CHECK(sigaction(SIGQUIT, &quit, NULL) == 0 && sigaction(SIGTERM, &quit, NULL) == 0);
    CHECK(sigaction(SIGPIPE, &ignore, NULL) == 0);
    CHECK(sigaction(SIGXFSZ, &ignore, NULL) == 0);
}

void ta_agent_fini(struct ta_agent *a)
{
    buf_fini(&a->input);
    buf_fini(&a->line);
}

/* ---- orders --------------------------------------------------------------------------------- */

void ta_agent_read(struct ta_agent *a)
{
    char *room = buf_room(&a->input, READ_MAX);
    ssize_t n;

    CHECK(room != NULL); /* fits: ta_agent_next leaves less than one order */
    n = read(a->in, room, READ_MAX);
    if (n > 0) {
        buf_grew(&a->input, (size_t)n);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        a->ended = true;
    }
}

/* Was the agent asked to quit? The signals are blocked except while waiting. */
static bool is_asked_to_quit(void)
{
    sigset_t pending;

    return asked_to_quit != 0 ||
           (sigpending(&pending) == 0 &&
            (sigismember(&pending, SIGQUIT) == 1 || sigismember(&pending, SIGTERM) == 1));
}

bool ta_agent_next(struct ta_agent *a, struct ta_order *ret_order)
{
    struct slice waiting = buf_slice(&a->input);
    size_t len = slice_find(waiting, '\n');

    if (a->stop || len > TA_AGENT_ORDER_MAX || is_asked_to_quit()) {
        a->stop = true;
        return false;
    }
    if (len == waiting.len) { /* an incomplete line at the end of input is no order */
        a->stop = a->ended;
        return false;
    }
    buf_clear(&a->line);
    CHECK(buf_add(&a->line, slice_of(waiting.ptr, len)));
    buf_consume(&a->input, len + 1);
    ta_parse_order(buf_slice(&a->line), ret_order);
    a->stop = ret_order->type == TA_ORDER_END;
    return !a->stop;
}

bool ta_agent_wait(struct ta_agent *a, struct ta_order *ret_order)
{
    struct pollfd in = {.fd = a->in, .events = POLLIN};

    while (!ta_agent_next(a, ret_order)) {
        if (a->stop) {
            return false;
        }
        if (ppoll(&in, 1, NULL, &a->wait_mask) > 0) {
            ta_agent_read(a);
        }
    }
    return true;
}

/* ---- answers -------------------------------------------------------------------------------- */

void ta_agent_say(struct ta_agent *a, struct slice lines)
{
    struct pollfd out = {.fd = a->out, .events = POLLOUT};

    while (lines.len > 0 && !a->gone) {
        ssize_t n = write(a->out, lines.ptr, lines.len);

        if (n >= 0) {
            lines = slice_skip(lines, (size_t)n);
        } else if (errno == EAGAIN) {
            (void)poll(&out, 1, -1); /* the next write returns the error */
        } else if (errno != EINTR) {
            a->gone = a->stop = true;
        }
    }
}

void ta_agent_hungry(struct ta_agent *a)
{
    ta_agent_say(a, SLICE("#hungry\n"));
}

void ta_agent_comment(struct ta_agent *a, const char *format, ...)
{
    struct buf text;
    struct slice rest;
    va_list args;

    buf_init(&text, TA_LINE_MAX);
    va_start(args, format);
    (void)buf_addf(&text, "# %s[%d]: ", a->name, (int)a->pid);
    (void)buf_addv(&text, format, args); /* a text that is too long is cut off */
    va_end(args);
    rest = buf_slice(&text);
    if (slice_find(rest, '\n') == rest.len && buf_add_byte(&text, '\n')) {
        ta_agent_say(a, buf_slice(&text));
    }
    buf_fini(&text);
}

void ta_agent_resync(struct ta_agent *a, struct slice path)
{
    struct buf text;

    buf_init(&text, TA_LINE_MAX);
    if (buf_add(&text, SLICE("#resync ")) && buf_add(&text, path) && buf_add_byte(&text, '\n')) {
        ta_agent_say(a, buf_slice(&text));
    }
    buf_fini(&text);
}
