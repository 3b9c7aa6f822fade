/* `sluice shape`: waiting mail by destination and age, in the format of Postfix's qshape(1). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "check.h"
#include "commands.h"
#include "hash.h"
#include "mem.h"
#include "shape.h"
#include "words.h"

/* Parts of the queue that are shown separately: new and active mail, and mail that waits for
 * another attempt. */
enum part { PART_INCOMING, PART_DEFERRED, PART_HOLD, PART_CORRUPT, PARTS };

static const char *const members[PARTS] = {"incoming", "deferred", "hold", "corrupt"};
static const char *const titles[PARTS] = {"incoming and active", "deferred", "on hold", "corrupt"};

struct line {
    UT_hash_handle hh;
    int64_t rcpts[PARTS][SHAPE_AGES];
    int64_t totals[PARTS];
    char name[];
};

struct shape {
    struct line *lines;
    struct line *total; /* owned */
};

static struct line *line_new(const char *name)
{
    size_t len = strlen(name);
    struct line *l = mem_new(sizeof *l + len + 1);

    memcpy(l->name, name, len + 1);
    return l;
}

static void add(struct line *l, const json_t *row)
{
    json_t *number;
    size_t age;

    for (size_t part = 0; part < PARTS; part++) {
        json_array_foreach(json_object_get(row, members[part]), age, number)
        {
            if (age < SHAPE_AGES) {
                l->rcpts[part][age] += json_integer_value(number);
                l->totals[part] += json_integer_value(number);
            }
        }
    }
}

static void add_row(struct shape *s, const json_t *row)
{
    const char *name = member_text(row, "name");
    struct line *l;

    HASH_FIND(hh, s->lines, name, strlen(name), l);
    if (l == NULL) {
        l = line_new(name);
        HASH_ADD_KEYPTR(hh, s->lines, l->name, strlen(name), l);
    }
    add(l, row);
    add(s->total, row);
}

static void shape_free(struct shape *s)
{
    struct line *l, *next;

    HASH_ITER(hh, s->lines, l, next)
    {
        HASH_DEL(s->lines, l);
        mem_free(l);
    }
    mem_free(s->total);
}

/* ---- printing ------------------------------------------------------------------------------- */

static enum part sort_part;

static int compare(const void *a, const void *b)
{
    const struct line *x = *(struct line *const *)a, *y = *(struct line *const *)b;

    return x->totals[sort_part] != y->totals[sort_part]
               ? (x->totals[sort_part] < y->totals[sort_part] ? 1 : -1)
               : strcmp(x->name, y->name);
}

#define NAME_WIDTH 32

static void print_line(const char *name, const struct line *l, enum part part)
{
    char cut[NAME_WIDTH + 1];
    size_t len = strlen(name);

    /* shows the end of the name, which is the domain */
    (void)snprintf(cut, sizeof cut, "%s%s", len > NAME_WIDTH ? ".." : "",
                   len > NAME_WIDTH ? name + len - NAME_WIDTH + 2 : name);
    for (size_t i = strlen(cut); i < NAME_WIDTH; i++) {
        putchar(' ');
    }
    put_text(stdout, cut);
    printf(" %6" PRId64, l->totals[part]);
    for (size_t age = 0; age < SHAPE_AGES; age++) {
        printf(" %4" PRId64, l->rcpts[part][age]);
    }
    putchar('\n');
}

static void print_part(const struct shape *s, enum part part, int64_t max)
{
    size_t count = HASH_COUNT(s->lines), shown = 0;
    struct line **sorted = mem_array(count, sizeof(struct line *)), *l;

    count = 0;
    for (l = s->lines; l != NULL; l = l->hh.next) {
        if (l->totals[part] > 0) {
            sorted[count++] = l;
        }
    }
    sort_part = part;
    if (count > 1) {
        qsort(sorted, count, sizeof *sorted, compare);
    }
    printf("%s, by age in minutes\n%*s      T", titles[part], NAME_WIDTH, "");
    for (int age = 0; age < SHAPE_AGES - 1; age++) {
        printf(" %4d", 5 << age);
    }
    puts(" more");
    print_line("TOTAL", s->total, part);
    for (; shown < count && (int64_t)shown < max; shown++) {
        print_line(sorted[shown]->name[0] == '\0' ? "-" : sorted[shown]->name, sorted[shown], part);
    }
    if (shown < count) {
        printf("%*s%zu more lines; --max=N shows N\n", 2, "", count - shown);
    }
    mem_free(sorted);
}

static void print_all(const struct shape *s, int64_t max)
{
    bool any = false;

    for (enum part part = 0; part < PARTS; part++) {
        if (s->total->totals[part] > 0) {
            fputs(any ? "\n" : "", stdout);
            print_part(s, part, max);
            any = true;
        }
    }
    if (!any) {
        puts("The queue is empty");
    }
}

static json_t *to_json(const struct shape *s)
{
    json_t *all = json_array();

    for (const struct line *l = s->lines; l != NULL; l = l->hh.next) {
        json_t *row = json_pack("{s:s}", "name", l->name);

        for (size_t part = 0; part < PARTS; part++) {
            json_t *ages = json_array();

            for (size_t age = 0; age < SHAPE_AGES; age++) {
                CHECK(json_array_append_new(ages, json_integer(l->rcpts[part][age])) == 0);
            }
            CHECK(json_object_set_new(row, members[part], ages) == 0);
        }
        CHECK(json_array_append_new(all, row) == 0);
    }
    return all;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Collects all rows. Returns EX_OK, or an exit status. */
static int gather(struct ask *ask, const char *by, struct shape *s)
{
    json_t *next = NULL;

    do {
        json_t *question = json_pack("{s:s, s:s*, s:o*}", "op", "shape", "by", by, "after", next);
        json_t *answer, *row;
        unsigned status;
        size_t i;

        CHECK(question != NULL);
        status = ask_json(ask, question, &answer);
        json_decref(question);
        if (status != ASK_OK) {
            return ask_failed(status, answer);
        }
        json_array_foreach(json_object_get(answer, "rows"), i, row)
        {
            add_row(s, row);
        }
        next = json_incref(json_object_get(answer, "next"));
        json_decref(answer);
    } while (next != NULL);
    return EX_OK;
}

int run_shape(const struct command *c, const struct args *a)
{
    struct conf *conf = command_places(a);
    struct shape s = {.total = NULL};
    struct ask *ask;
    int status;

    (void)c;
    if (conf == NULL) {
        return EX_CONFIG;
    }
    s.total = line_new("");
    ask = ask_new(conf);
    status = gather(ask, a->by, &s);
    if (status == EX_OK && a->json) {
        json_t *all = to_json(&s);

        put_json(stdout, all);
        json_decref(all);
    } else if (status == EX_OK) {
        print_all(&s, a->max_rows);
    }
    shape_free(&s);
    ask_free(ask);
    conf_free(conf);
    return status;
}
