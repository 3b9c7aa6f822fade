#include "notary_details.h"

#include "delivery_details.h"
#include "notary.h"

static enum details_action action_of(struct slice word)
{
    static const struct {
        const char *word;
        enum details_action action;
    } actions[] = {
        {"delivered", DETAILS_DELIVERED}, {"relayed", DETAILS_RELAYED},
        {"expanded", DETAILS_EXPANDED},   {"delayed", DETAILS_DELAYED},
        {"failed", DETAILS_FAILED},
    };

    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (slice_equal_nocase(word, slice_string(actions[i].word))) {
            return actions[i].action;
        }
    }
    return DETAILS_NONE;
}

/* Cuts the type off "type; value". Returns an empty slice if there is none. */
static struct slice take_type(struct slice *value)
{
    struct slice rest = *value, type = slice_trim(slice_cut(&rest, ';'));

    if (rest.ptr == NULL || slice_find(type, ' ') < type.len) {
        return slice_of("", 0);
    }
    *value = slice_trim(rest);
    return type;
}

static void read_notary(struct slice text, struct delivery_details *ret_details)
{
    struct slice host, diagnostic, host_type, diagnostic_type;
    struct notary n;

    notary_parse(text, &n);
    host = n.host;
    host_type = take_type(&host);
    diagnostic = slice_trim(n.diagnostic);
    diagnostic_type = take_type(&diagnostic);
    *ret_details = (struct delivery_details){
        .address =
            slice_equal(n.address, SLICE(NOTARY_ADDRESS_OF_LINE)) ? slice_of("", 0) : n.address,
        .action = action_of(n.action),
        .status = notary_status(&n),
        .status_words = slice_trim(n.status),
        .host = notary_host(&n),
        .host_type = host_type,
        .diagnostic = diagnostic,
        .diagnostic_type = diagnostic_type,
        .agent = n.agent,
    };
}

static void put_expired(struct buf *out, struct slice last, struct slice why)
{
    struct notary n;
    struct buf words;

    notary_parse(last, &n);
    buf_init(&words, 256);
    (void)buf_addf(&words, "smtp; 500 (%.*s)", SLICE_ARGS(why)); /* far below the limit */
    n.address = SLICE(NOTARY_ADDRESS_OF_LINE);
    n.action = SLICE("failed");
    n.status = SLICE("5.4.7 (unspecified timeout failure)");
    n.diagnostic = n.diagnostic.len > 0 ? n.diagnostic : buf_slice(&words);
    notary_put(out, &n);
    buf_fini(&words);
}

static const struct details_form form = {.read = read_notary, .put_expired = put_expired};

void notary_details_register(void)
{
    details_register(&form);
}
