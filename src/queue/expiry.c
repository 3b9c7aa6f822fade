#include "expiry.h"

#include <inttypes.h>

#include "check.h"
#include "delivery_details.h"

#define DAY_US INT64_C(86400000000)

int64_t expiry_age(const struct expiry_rules *r, bool was_tried)
{
    CHECK(r->expiry_us > 0);
    if (was_tried) {
        return r->expiry_us;
    }
    return us_add(r->expiry_us, r->expiry2_us > 0 ? r->expiry2_us : DAY_US);
}

struct wall expiry_of(const struct expiry_rules *r, struct wall created, bool was_tried)
{
    return r->expiry_us == 0 ? WALL_NEVER : wall_after(created, expiry_age(r, was_tried));
}

void expiry_put_duration(struct buf *out, int64_t seconds)
{
    static const struct {
        int64_t seconds;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "min"}, {1, "sec"}};
    int64_t rest = seconds > 0 ? seconds : 0;
    unsigned parts = 0;

    for (size_t i = 0; i < sizeof units / sizeof units[0] && parts < 2; i++) {
        int64_t count = rest / units[i].seconds;

        rest %= units[i].seconds;
        if (count > 0 || (parts == 0 && units[i].seconds == 1)) {
            (void)buf_addf(out, "%s%" PRId64 " %s%s", parts > 0 ? " " : "", count, units[i].name,
                           count == 1 ? "" : "s"); /* the caller sets the limit */
            parts++;
        }
    }
}

void expiry_put_text(struct buf *out, int64_t age_us, struct slice problem)
{
    (void)buf_add_string(out, problem.len > 0 ? "\rexpired after " : "expired after ");
    expiry_put_duration(out, us_seconds(age_us));
    if (problem.len > 0) {
        (void)buf_add_string(out, ", problem was:\r");
        (void)buf_add(out, problem);
    }
}

void expiry_put_details(struct buf *out, int64_t age_us, struct slice last)
{
    struct buf why;

    buf_init(&why, 100);
    (void)buf_add_string(&why, "Expired after "); /* far below the limit */
    expiry_put_duration(&why, us_seconds(age_us));
    details_put_expired(out, last, buf_slice(&why));
    buf_fini(&why);
}
