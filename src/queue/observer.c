#include "observer.h"

#include "check.h"

static const struct queue_observer *registered;

void observer_register(const struct queue_observer *observer)
{
    CHECK(registered == NULL || registered == observer);
    registered = observer;
}

void observer_ended(struct queue *q, const struct recipient_end *end)
{
    if (registered != NULL) {
        registered->ended(q, end);
    }
}

void observer_line(struct queue *q, const char *text)
{
    if (registered != NULL) {
        registered->line(q, text);
    }
}
