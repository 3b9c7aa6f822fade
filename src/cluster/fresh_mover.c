#include "fresh_mover.h"

#include "check.h"

void fresh_mover_init(struct fresh_mover *m, struct desk *desk, struct loader *loader, int64_t now)
{
    *m = (struct fresh_mover){.desk = desk, .loader = loader, .passing_us = FRESH_MOVER_PASSING_US};
    for (unsigned table = 0; table < DESK_FRESH_TABLES; table++) {
        m->left_at[table] = now; /* when it was left is unknown */
    }
}

static void hear_of_turn(struct fresh_mover *m, int64_t now)
{
    unsigned in_use = m->desk->fresh_now;

    CHECK(in_use < DESK_FRESH_TABLES);
    if (in_use == m->in_use) {
        return;
    }
    m->left_at[m->in_use] = now;
    m->in_use = in_use;
    for (unsigned table = 0; table < DESK_FRESH_TABLES; table++) {
        m->is_done[table] = false;
    }
}

static bool is_due(const struct fresh_mover *m, unsigned table, int64_t now)
{
    return table != m->in_use && !m->is_done[table] && now - m->left_at[table] >= m->passing_us;
}

/* Begins to move mail out of a table. Returns true if the table is not done, so that no other one
 * is begun. */
static bool look_at(struct fresh_mover *m, unsigned table)
{
    bool is_busy;

    m->table = table;
    m->is_wanted = desk_is_passing(m->desk, table, &is_busy);
    m->is_bringing = !m->is_wanted && loader_bring_passing(m->loader, table);
    m->is_done[table] = !m->is_wanted && !m->is_bringing && !is_busy;
    return !m->is_done[table];
}

void fresh_mover_turn(struct fresh_mover *m, int64_t now)
{
    bool has_come = m->is_bringing && !loader_is_bringing_passing(m->loader);

    hear_of_turn(m, now);
    if (m->is_wanted || (!has_come && now < m->look_at)) {
        return;
    }
    m->look_at = now + FRESH_MOVER_LOOK_US;
    for (unsigned table = 0; table < DESK_FRESH_TABLES; table++) {
        if (is_due(m, table, now) && look_at(m, table)) {
            return;
        }
    }
    m->is_bringing = false;
}

bool fresh_mover_is_wanted(const struct fresh_mover *m)
{
    return m->is_wanted;
}

void fresh_mover_move(struct fresh_mover *m)
{
    if (m->is_wanted && m->table != m->desk->fresh_now) { /* it may be in use again */
        (void)desk_move_passing(m->desk, m->table, FRESH_MOVER_MAX);
    }
    m->is_wanted = false;
}

void fresh_mover_ended(struct fresh_mover *m)
{
    m->look_at = 0;
}
