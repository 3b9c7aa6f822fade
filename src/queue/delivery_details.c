#include "delivery_details.h"

#include "check.h"

static const struct details_form *registered;

void details_register(const struct details_form *form)
{
    CHECK(registered == NULL || registered == form);
    registered = form;
}

bool details_read(struct slice details, struct delivery_details *ret_details)
{
    *ret_details = (struct delivery_details){.action = DETAILS_NONE};
    if (registered == NULL || details.len == 0) {
        return false;
    }
    registered->read(details, ret_details);
    return true;
}

void details_put_expired(struct buf *out, struct slice last, struct slice why)
{
    if (registered != NULL) {
        registered->put_expired(out, last, why);
    }
}
