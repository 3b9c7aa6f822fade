#include "postfix_door.h"

#include "extension.h"
#include "manager_kind.h"
#include "postfix_dialect.h"
#include "postfix_spool.h"

static struct slice parameters;

void postfix_keep_parameters(struct slice text)
{
    parameters = text;
}

static char *url_of(const struct conf *conf)
{
    (void)conf;
    return NULL; /* master owns the sockets */
}

static bool is_optional(const struct conf *conf)
{
    (void)conf;
    return false;
}

static bool add_files(struct bundle *b, struct buf *out)
{
    if (parameters.len == 0 || bundle_add(b, POSTFIX_PARAMETERS, parameters) == 0) {
        return true;
    }
    (void)buf_add_string(out, POSTFIX_PARAMETERS ": no room is left for it\n"); /* errors are
                                                                                 * sticky */
    return false;
}

void postfix_open_door(void)
{
    static const struct extension extension = {
        .name = "postfix", .url = url_of, .is_optional = is_optional, .add_files = add_files};

    postfix_dialect_register();
    postfix_spool_register();
    agent_kind_register(CONF_AGENT_POSTFIX, &manager_kind);
    extension_register(&extension);
}
