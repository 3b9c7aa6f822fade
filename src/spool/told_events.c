#include "told_events.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"

struct told_event {
    struct spool_event event;
    STAILQ_ENTRY(told_event) next;
    char text[];
};

void told_events_init(struct told_events *t)
{
    STAILQ_INIT(&t->waiting);
    t->last = NULL;
}

void told_events_fini(struct told_events *t)
{
    struct spool_event unused;

    while (told_events_next(t, &unused)) {
    }
}

void told_events_add(struct told_events *t, enum spool_event_type type, struct msg_id id,
                     const char *format, va_list args)
{
    char text[SPOOL_DIAGNOSTIC_MAX];
    struct told_event *e;
    int printed = vsnprintf(text, sizeof text, format, args);
    size_t len;

    CHECK(printed >= 0);
    len = (size_t)printed < sizeof text ? (size_t)printed : sizeof text - 1;
    e = mem_new(sizeof *e + len);
    memcpy(e->text, text, len);
    e->event = (struct spool_event){.type = type, .id = id, .text = slice_of(e->text, len)};
    STAILQ_INSERT_TAIL(&t->waiting, e, next);
}

bool told_events_next(struct told_events *t, struct spool_event *ret_event)
{
    mem_free(t->last);
    t->last = STAILQ_FIRST(&t->waiting);
    if (t->last == NULL) {
        return false;
    }
    STAILQ_REMOVE_HEAD(&t->waiting, next);
    *ret_event = t->last->event;
    return true;
}
