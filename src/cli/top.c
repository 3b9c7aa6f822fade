/*
 * `sluice top`: shows the queue and its destinations on a terminal, updated regularly.
 *
 * A loop of one thread sends queries, draws, and waits for a key until the next queries are due.
 * While the daemon is down, the last answer stays on the screen with a line about the error.
 *
 *   LIST --Enter--> WHY --Esc, q--> LIST       in LIST, / edits the words that are searched for
 *
 * All text from answers goes to the screen through put_cut, without control characters.
 *
 * Limits: TOP_PAGES pages of destinations, which include those with the most deliveries.
 */
#define NCURSES_WIDECHAR 1

#include <inttypes.h>
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <wchar.h>

#include "check.h"
#include "commands.h"
#include "json.h"
#include "mem.h"
#include "printable.h"
#include "slice.h"
#include "why_print.h"
#include "words.h"

#define TOP_PAGES   5
#define PERIOD_S    2.0
#define SEARCH_MAX  60
#define DETAILS     3 /* destinations whose details are requested each time */
#define LINE_ROOM   512
#define NAME_WIDTH  28
#define SMALL_LINES 8
#define SMALL_COLS  40
#define HEAD_LINES  5

enum sort { SORT_WAITING, SORT_BUSY, SORT_RATE, SORT_OLDEST, SORT_STATE, SORT_NAME, SORTS };

static const char *const sort_names[SORTS] = {"waiting", "in flight", "rate",
                                              "oldest",  "state",     "name"};

struct top {
    struct ask *ask;
    json_t *status;  /* owned: last status; NULL: none yet */
    json_t *sites;   /* owned: name -> SITE */
    json_t *details; /* owned: name -> {"oldest", "error", "at"}, for some destinations */
    bool cut;        /* there are more destinations */
    char *error;     /* owned: error of the last query; NULL: none */
    double asked_at, answered_at;
    double rates[4]; /* in, out, deferred, bounced; < 0: unknown */
    enum sort sort;
    char search[SEARCH_MAX + 1];
    bool searching;
    size_t selected, first, next_detail;
    char *selected_name;  /* owned: name of the selected destination */
    const json_t **shown; /* owned: SITEs of `sites`, sorted */
    size_t shown_count;
    char *why; /* owned: text about a destination; NULL: the list is shown */
    size_t why_first;
};

/* ---- text on the screen --------------------------------------------------------------------- */

/* Writes at most `width` columns of `text` at the cursor and fills up with blanks. */
static void put_cut(const char *text, int width)
{
    char copy[LINE_ROOM];
    wchar_t wide[LINE_ROOM];
    size_t len = strlen(text), count;
    int used = 0;

    len = len < sizeof copy - 1 ? len : sizeof copy - 1;
    memcpy(copy, text, len);
    copy[len] = '\0';
    printable_line(copy, len); /* also fixes an incomplete UTF-8 sequence */
    count = mbstowcs(wide, copy, LINE_ROOM - 1);
    if (count == (size_t)-1) { /* the terminal has another character set */
        for (count = 0; count < len; count++) {
            wide[count] = (unsigned char)copy[count] < 128 ? (wchar_t)copy[count] : L'?';
        }
    }
    for (size_t i = 0; i < count; i++) {
        int columns = wcwidth(wide[i]);

        if (columns < 0) {
            wide[i] = L'?';
            columns = 1;
        }
        if (used + columns > width) {
            break;
        }
        (void)addnwstr(&wide[i], 1); /* fails only after the last column, as all of these */
        used += columns;
    }
    for (; used < width; used++) {
        (void)addch(' ');
    }
}

static void put_line(int line, const char *text)
{
    (void)move(line, 0);
    put_cut(text, COLS);
}

/* ---- queries --------------------------------------------------------------------------------- */

static void set_error(struct top *t, const json_t *answer)
{
    mem_free(t->error);
    t->error = answer == NULL ? NULL : mem_string(member_text(answer, "error"));
}

/* Sends the query and frees it. Returns NULL with the reason in t->error. */
static json_t *ask(struct top *t, json_t *question)
{
    json_t *answer;
    unsigned status;

    CHECK(question != NULL);
    status = ask_json(t->ask, question, &answer);
    json_decref(question);
    if (status == ASK_OK) {
        return answer;
    }
    set_error(t, answer);
    json_decref(answer);
    return NULL;
}

static void name_of(const json_t *site, char name[LINE_ROOM])
{
    (void)snprintf(name, LINE_ROOM, "%s/%s", member_text(site, "transport"),
                   member_text(site, "destination")); /* a longer name is cut */
}

static void add_sites(json_t *sites, const json_t *list)
{
    char name[LINE_ROOM];
    json_t *site;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, site)
    {
        name_of(site, name);
        (void)json_object_set(sites, name, site); /* a name that is cut within a character is left
                                                   * out */
    }
}

/* Returns the time of the counts, which differs in a cluster. */
static double counted_at(const json_t *status, double answered)
{
    return json_object_get(status, "counted") != NULL ? member_number(status, "counted") : answered;
}

static void take_rates(struct top *t, const json_t *status, double now)
{
    static const char *const names[4] = {"submitted", "delivered", "deferrals", "bounced"};
    double passed = counted_at(status, now) - counted_at(t->status, t->answered_at);
    bool is_whole = member_integer(status, "missing") + member_integer(t->status, "missing") == 0;

    if (passed == 0) {
        return; /* the counts have not changed */
    }
    for (size_t i = 0; i < 4; i++) {
        double change = member_number(status, names[i]) - member_number(t->status, names[i]);

        t->rates[i] =
            t->status == NULL || passed < 0 || change < 0 || !is_whole ? -1 : change / passed;
    }
}

/* Requests the details of a destination that are not in the list. */
static void ask_details(struct top *t, const json_t *site)
{
    char name[LINE_ROOM];
    json_t *answer, *details, *reply;

    name_of(site, name);
    answer = ask(t, json_pack("{s:s, s:{s:s}}", "op", "site", "filter", "destination", name));
    if (answer == NULL) {
        return;
    }
    reply = json_array_get(json_object_get(answer, "replies"), 0);
    details = json_pack("{s:f, s:s}", "oldest", member_number(answer, "oldest"), "error",
                        member_text(reply, "text"));
    CHECK(details != NULL);
    CHECK(json_object_set_new(t->details, name, details) == 0);
    json_decref(answer);
}

static const json_t *details_of(const struct top *t, const json_t *site)
{
    char name[LINE_ROOM];

    name_of(site, name);
    return json_object_get(t->details, name);
}

/* Replaces the counts of one node by those of all nodes. */
static void add_nodes(json_t *status, const json_t *cluster)
{
    const json_t *sums = json_object_get(cluster, "sums"), *failed;

    if (sums != NULL) {
        CHECK(json_object_update_existing(status, (json_t *)(uintptr_t)sums) == 0);
        json_put(status, "counted", json_copy(json_object_get(cluster, "time")));
        failed = json_object_get(cluster, "failed");
        json_put(status, "missing", json_integer((json_int_t)json_array_size(failed)));
    }
}

static void ask_all(struct top *t)
{
    json_t *status, *sites = json_object(), *answer = NULL, *cursor = NULL;
    int pages = 0;

    t->asked_at = words_now();
    set_error(t, NULL);
    status = ask(t, json_pack("{s:s}", "op", "status"));
    if (status != NULL && t->error == NULL && json_object_get(status, "node") != NULL) {
        add_nodes(status, answer = ask(t, json_pack("{s:s}", "op", "cluster")));
        json_decref(answer);
        answer = NULL;
    }
    while (status != NULL && t->error == NULL && pages++ < TOP_PAGES) {
        answer = ask(t, json_pack("{s:s, s:O*}", "op", "sites", "cursor", cursor));
        json_decref(cursor);
        add_sites(sites, json_object_get(answer, "sites"));
        cursor = json_incref(json_object_get(answer, "cursor"));
        json_decref(answer);
        if (cursor == NULL) {
            break;
        }
    }
    t->cut = cursor != NULL;
    json_decref(cursor);
    if (t->error != NULL) {
        json_decref(status);
        json_decref(sites);
        return;
    }
    add_sites(sites, json_object_get(status, "busiest"));
    take_rates(t, status, t->asked_at);
    t->answered_at = t->asked_at;
    json_decref(t->status);
    t->status = status;
    t->shown_count = 0; /* `shown` points into the old list */
    json_decref(t->sites);
    t->sites = sites;
}

/* ---- selection and order --------------------------------------------------------------------- */

static const struct top *sorting;

static double value_of(const json_t *site)
{
    double oldest = member_number(details_of(sorting, site), "oldest");
    const char *state = member_text(site, "state");

    switch (sorting->sort) {
    case SORT_WAITING:
        return member_number(site, "waiting") + member_number(site, "busy") / 1e6;
    case SORT_BUSY:
        return member_number(site, "busy") + member_number(site, "waiting") / 1e6;
    case SORT_RATE:
        return member_number(site, "per_second");
    case SORT_OLDEST:
        return oldest > 0 ? words_now() - oldest : 0;
    case SORT_STATE:
        return strcmp(state, "dead") == 0        ? 3
               : strcmp(state, "probing") == 0   ? 2
               : strcmp(state, "suspended") == 0 ? 1
                                                 : 0;
    case SORT_NAME:
    case SORTS:
        break;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    double vx = value_of(x), vy = value_of(y);
    int order = vx < vy ? 1 : vx > vy ? -1 : 0;

    order =
        order != 0 ? order : strcmp(member_text(x, "destination"), member_text(y, "destination"));
    return order != 0 ? order : strcmp(member_text(x, "transport"), member_text(y, "transport"));
}

static void remember_selected(struct top *t)
{
    char name[LINE_ROOM];

    mem_free(t->selected_name);
    t->selected_name = NULL;
    if (t->selected < t->shown_count) {
        name_of(t->shown[t->selected], name);
        t->selected_name = mem_string(name);
    }
}

static void arrange(struct top *t)
{
    size_t size = json_object_size(t->sites);
    char name[LINE_ROOM];
    const char *key;
    json_t *site;

    mem_free(t->shown);
    t->shown = mem_array(size, sizeof(const json_t *));
    t->shown_count = 0;
    json_object_foreach(t->sites, key, site)
    {
        if (t->search[0] == '\0' || strcasestr(key, t->search) != NULL) {
            t->shown[t->shown_count++] = site;
        }
    }
    sorting = t;
    if (t->shown_count > 1) {
        qsort(t->shown, t->shown_count, sizeof *t->shown, compare);
    }
    for (size_t i = 0; t->selected_name != NULL && i < t->shown_count; i++) {
        name_of(t->shown[i], name);
        if (strcmp(name, t->selected_name) == 0) {
            t->selected = i;
            return;
        }
    }
    if (t->selected >= t->shown_count) {
        t->selected = t->shown_count > 0 ? t->shown_count - 1 : 0;
    }
    remember_selected(t);
}

static size_t list_lines(void)
{
    return LINES > HEAD_LINES + 2 ? (size_t)(LINES - HEAD_LINES - 2) : 1;
}

/* Requests details of the selected destination, and of other visible ones in rotation. */
static void ask_some_details(struct top *t)
{
    size_t visible = t->shown_count - (t->first < t->shown_count ? t->first : t->shown_count);

    visible = visible < list_lines() ? visible : list_lines();
    if (t->selected < t->shown_count) {
        ask_details(t, t->shown[t->selected]);
    }
    for (size_t i = 0; i < DETAILS && i < visible && t->error == NULL; i++) {
        ask_details(t, t->shown[t->first + t->next_detail++ % visible]);
    }
    if (json_object_size(t->details) > 10000) {
        json_object_clear(t->details);
    }
}

/* ---- drawing -------------------------------------------------------------------------------- */

static void put_rate(char *out, size_t size, const char *name, double rate)
{
    if (rate < 0) {
        (void)snprintf(out, size, "%s -", name); /* fits, as the others */
    } else {
        (void)snprintf(out, size, "%s %.1f/s", name, rate);
    }
}

static void draw_head(const struct top *t)
{
    char line[LINE_ROOM], rates[4][40], node[300] = "";
    static const char *const names[4] = {"in", "out", "deferred", "bounced"};

    if (member_text(t->status, "node")[0] != '\0') {
        int64_t missing = member_integer(t->status, "missing");
        const char *of = json_object_get(t->status, "counted") == NULL ? ", counts of this one"
                         : missing > 0 ? ", COUNTS WITHOUT THOSE OF SOME"
                                       : "";

        (void)snprintf(node, sizeof node, ", node %s, of %" PRId64 "%s",
                       member_text(t->status, "node"), member_integer(t->status, "nodes_up"),
                       of); /* may be cut */
    }
    (void)snprintf(line, sizeof line, "sluice %s, up %s%s, %s%s", member_text(t->status, "version"),
                   words_interval(member_number(t->status, "uptime")).text, node,
                   words_time(words_now()).text, t->cut ? "; not all destinations are here" : "");
    put_line(0, t->status == NULL ? "sluice top" : line);
    for (size_t i = 0; i < 4; i++) {
        put_rate(rates[i], sizeof rates[i], names[i], t->rates[i]);
    }
    (void)snprintf(line, sizeof line, "%s  %s  %s  %s", rates[0], rates[1], rates[2], rates[3]);
    put_line(1, line);
    (void)snprintf(line, sizeof line,
                   "new %" PRId64 "  deferred %" PRId64 "  held %" PRId64 "  corrupt %" PRId64
                   "  in flight %" PRId64 "  waiting %" PRId64 "  dead sites %" PRId64,
                   member_integer(t->status, "incoming"), member_integer(t->status, "deferred"),
                   member_integer(t->status, "hold"), member_integer(t->status, "corrupt"),
                   member_integer(t->status, "in_flight"), member_integer(t->status, "waiting"),
                   member_integer(t->status, "dead_destinations"));
    put_line(2, line);
    (void)attron(A_BOLD);
    if (t->error != NULL) {
        (void)snprintf(line, sizeof line, "NO ANSWER: %s; what is shown is of %s", t->error,
                       t->status != NULL ? words_time(t->answered_at).text : "nothing yet");
        put_line(3, line);
    } else if (t->status != NULL && !json_is_true(json_object_get(t->status, "storage_ok"))) {
        put_line(3, "RESULTS CAN'T BE STORED: nothing new starts; the log has the reason");
    } else if (t->status != NULL && !json_is_true(json_object_get(t->status, "space_ok"))) {
        put_line(3, "TOO LITTLE SPACE: mail is refused for now (queue_minfree)");
    } else {
        put_line(3, "");
    }
    (void)attroff(A_BOLD);
}

static void put_number(int width, double value, const char *format)
{
    char text[40];

    (void)snprintf(text, sizeof text, format, value);
    if ((int)strlen(text) > width) {
        (void)snprintf(text, sizeof text, "%.0e", value);
    }
    for (int i = (int)strlen(text); i < width; i++) {
        (void)addch(' ');
    }
    put_cut(text, (int)strlen(text));
    (void)addch(' ');
}

static const char *error_of(const struct top *t, const json_t *site)
{
    const char *reason = member_text(site, "reason");

    return reason[0] != '\0' ? reason : member_text(details_of(t, site), "error");
}

/* Draws a destination in 75 columns (28 + 1 + 8 + 1 + 7 + 1 + 6 + 1 + 7 + 1 + 6 + 1 + 7), then its
 * error. */
static void draw_row(const struct top *t, int line, const json_t *site)
{
    char name[LINE_ROOM], window[40];
    double oldest = member_number(details_of(t, site), "oldest");
    struct words age = words_interval(words_now() - oldest);
    int left;

    name_of(site, name);
    (void)move(line, 0);
    put_cut(name, NAME_WIDTH);
    (void)addch(' ');
    put_cut(member_text(site, "state"), 8);
    (void)addch(' ');
    (void)snprintf(window, sizeof window, "%" PRId64 "/%" PRId64, member_integer(site, "window"),
                   member_integer(site, "window_max"));
    put_cut(window, 7);
    (void)addch(' ');
    put_number(6, member_number(site, "busy"), "%.0f");
    put_number(7, member_number(site, "waiting"), "%.0f");
    put_number(6, member_number(site, "per_second"), "%.1f");
    age.text[strcspn(age.text, " ")] = '\0';
    put_cut(oldest > 0 ? age.text : "-", 7);
    left = COLS - getcurx(stdscr);
    if (left > 1 && getcury(stdscr) == line) {
        (void)addch(' ');
        put_cut(error_of(t, site), left - 1);
    }
}

static void draw_list(struct top *t)
{
    static const char help[] = "q quit  / search  s sort  Enter why  arrows, PgUp, PgDn move";
    size_t lines = list_lines();
    char line[LINE_ROOM];

    if (t->selected < t->first) {
        t->first = t->selected;
    } else if (t->selected >= t->first + lines) {
        t->first = t->selected - lines + 1;
    }
    (void)attron(A_REVERSE);
    put_line(4,
             "DESTINATION                  STATE    WINDOW  FLIGHT WAITING   RATE OLDEST  ERROR");
    (void)attroff(A_REVERSE);
    for (size_t i = 0; i < lines; i++) {
        bool is_selected = t->first + i == t->selected;

        if (t->first + i >= t->shown_count) {
            put_line((int)i + HEAD_LINES, "");
            continue;
        }
        (void)(is_selected ? attron(A_REVERSE) : 0);
        draw_row(t, (int)i + HEAD_LINES, t->shown[t->first + i]);
        (void)(is_selected ? attroff(A_REVERSE) : 0);
    }
    put_line(LINES - 2, t->selected < t->shown_count ? error_of(t, t->shown[t->selected])
                        : t->search[0] != '\0'       ? "no destination has these letters"
                                                     : "no destination has mail in memory");
    if (t->searching || t->search[0] != '\0') {
        (void)snprintf(line, sizeof line, "/%s%s  (%zu)%s", t->search, t->searching ? "_" : "",
                       t->shown_count, t->searching ? "" : "  / changes it");
    } else {
        (void)snprintf(line, sizeof line, "by %s  %s", sort_names[t->sort], help);
    }
    put_line(LINES - 1, line);
}

/* Draws the text about a destination, with its lines cut to the screen. */
static void draw_why(struct top *t)
{
    struct slice rest = slice_string(t->why);
    size_t number = 0;
    int line = 0;
    char copy[LINE_ROOM];

    while (rest.ptr != NULL && line < LINES - 1) {
        struct slice text = slice_cut(&rest, '\n');

        if (number++ >= t->why_first) {
            (void)snprintf(copy, sizeof copy, "%.*s", SLICE_ARGS(text));
            put_line(line++, copy);
        }
    }
    for (; line < LINES - 1; line++) {
        put_line(line, "");
    }
    put_line(LINES - 1, "q, Esc back to the list  arrows, PgUp, PgDn move");
}

static void draw(struct top *t)
{
    (void)erase();
    if (LINES < SMALL_LINES || COLS < SMALL_COLS) {
        put_line(0, "the window is too small");
    } else if (t->why != NULL) {
        draw_why(t);
    } else {
        draw_head(t);
        draw_list(t);
    }
    (void)refresh();
}

/* ---- one destination ------------------------------------------------------------------------ */

static void open_why(struct top *t)
{
    char *text = NULL;
    size_t size = 0;
    json_t *site;
    FILE *out;

    if (t->selected_name == NULL || t->selected >= t->shown_count) {
        return;
    }
    site = ask(
        t, json_pack("{s:s, s:{s:s}}", "op", "site", "filter", "destination", t->selected_name));
    if (site == NULL) {
        return;
    }
    out = open_memstream(&text, &size);
    CHECK(out != NULL);
    why_print_site(out, site, NULL, words_now());
    CHECK(fclose(out) == 0);
    t->why = mem_string(text);
    t->why_first = 0;
    free(text);
    json_decref(site);
}

static size_t lines_of(const char *text)
{
    size_t count = 0;

    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

static void close_why(struct top *t)
{
    mem_free(t->why);
    t->why = NULL;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Returns the number of lines by which a key moves the view; 0: it is no such key. */
static int64_t steps_of(int key, int64_t page, int64_t all)
{
    switch (key) {
    case KEY_UP:
    case 'k':
        return -1;
    case KEY_DOWN:
    case 'j':
        return 1;
    case KEY_PPAGE:
        return -page;
    case KEY_NPAGE:
    case ' ':
        return page;
    case KEY_HOME:
    case 'g':
        return -all;
    case KEY_END:
    case 'G':
        return all;
    default:
        return 0;
    }
}

static size_t moved(size_t at, int64_t by, size_t count)
{
    int64_t to = (int64_t)at + by;

    to = to >= (int64_t)count ? (int64_t)count - 1 : to;
    return to < 0 ? 0 : (size_t)to;
}

static void search_key(struct top *t, int key)
{
    size_t len = strlen(t->search);

    if (key == '\n' || key == KEY_ENTER || key == 27) {
        t->searching = false;
        t->search[key == 27 ? 0 : len] = '\0';
    } else if (key == KEY_BACKSPACE || key == 127 || key == 8) {
        t->search[len > 0 ? len - 1 : 0] = '\0';
    } else if (key > ' ' && key < 127 && len < SEARCH_MAX) {
        t->search[len] = (char)key;
        t->search[len + 1] = '\0';
    }
    arrange(t);
}

static void why_key(struct top *t, int key)
{
    if (key == 'q' || key == 27 || key == '\n' || key == KEY_LEFT) {
        close_why(t);
        return;
    }
    t->why_first = moved(t->why_first, steps_of(key, LINES - 2, INT32_MAX), lines_of(t->why));
}

/* Handles a key of the list. Returns false to end the program. */
static bool list_key(struct top *t, int key)
{
    switch (key) {
    case 'q':
        return false;
    case 27: /* ends the search */
        t->search[0] = '\0';
        break;
    case '/':
        t->searching = true;
        break;
    case 's':
        t->sort = (enum sort)((t->sort + 1) % SORTS);
        break;
    case '\n':
    case KEY_ENTER:
        open_why(t);
        return true;
    default:
        t->selected =
            moved(t->selected, steps_of(key, (int64_t)list_lines(), INT32_MAX), t->shown_count);
        remember_selected(t);
        return true;
    }
    arrange(t);
    return true;
}

static bool take_key(struct top *t, int key)
{
    if (key == KEY_RESIZE || key == ERR) {
        return true; /* the screen is drawn again anyway */
    }
    if (t->searching) {
        search_key(t, key);
        return true;
    }
    if (t->why != NULL) {
        why_key(t, key);
        return true;
    }
    return list_key(t, key);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Runs the loop. Returns true if the terminal is gone: without keys to wait for the loop would
 * spin. */
static bool watch(struct top *t)
{
    for (;;) {
        double now = words_now(), wait;
        int key;

        if (now - t->asked_at >= PERIOD_S || now < t->asked_at) {
            ask_all(t);
            arrange(t);
            if (t->error == NULL) {
                ask_some_details(t);
            }
        }
        draw(t);
        wait = t->asked_at + PERIOD_S - words_now();
        timeout(wait < 0.05 ? 50 : (int)(wait * 1000));
        key = getch();
        if (key == ERR && words_now() < t->asked_at + PERIOD_S - 0.2 && isatty(STDIN_FILENO) != 1) {
            return true;
        }
        if (!take_key(t, key)) {
            return false;
        }
    }
}

static void top_fini(struct top *t)
{
    json_decref(t->status);
    json_decref(t->sites);
    json_decref(t->details);
    mem_free(t->error);
    mem_free(t->selected_name);
    mem_free(t->shown);
    mem_free(t->why);
}

int run_top(const struct command *c, const struct args *a)
{
    struct top t = {.rates = {-1, -1, -1, -1}};
    struct conf *conf;
    SCREEN *screen;

    if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) {
        return command_misused(c, "a terminal is expected; for programs there is sluice status "
                                  "--json");
    }
    conf = command_places(a);
    if (conf == NULL) {
        return EX_CONFIG;
    }
    (void)setlocale(LC_CTYPE, ""); /* if it fails, text is ASCII */
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        conf_free(conf);
        return command_misused(c, "TERM names no terminal that is known");
    }
    (void)cbreak(); /* none of these fails on a terminal */
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    (void)set_escdelay(50);
    t.ask = ask_new(conf);
    t.details = json_object();
    t.sites = json_object();
    (void)watch(&t);
    (void)endwin();
    delscreen(screen);
    ask_free(t.ask);
    top_fini(&t);
    conf_free(conf);
    return EX_OK;
}
