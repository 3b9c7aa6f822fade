#include "recorded_params.h"

#include <string.h>

#include "check.h"
#include "conf.h"
#include "param.h"
#include "pool.h"
#include "tuning.h"

#define VALUE_MAX 4096 /* bytes of a value's text */

/* What else is not as it is with Postfix. */
#define AS_POSTFIX                                                                                 \
    "concurrency_feedback_rule = postfix\n"                                                        \
    "qmgr_destination_share = 0\n"                                                                 \
    "destination_memory_time = 0\n"                                                                \
    "qmgr_failing_share = 100\n"

/* What is being read. */
struct reading {
    struct conf conf;     /* a copy: its global values change */
    struct policy policy; /* of the one transport */
    struct pool pool;
    struct slice transport; /* whose name stood in front; ptr NULL: none yet */
    bool one_at_a_time;
    struct buf *error;
};

/* A global or default_ value: false for the names that pass two looks at. */
static const struct param *find_general(struct slice name)
{
    return param_find(name);
}

/* A value of the transport itself, which goes before default_ ones. */
static const struct param *find_own(struct slice name, struct slice *ret_transport)
{
    const struct param *p = param_find_in_clause(name);

    return p != NULL ? p : param_find_override(name, ret_transport);
}

/* The value as a configuration file would have it. */
static bool add_value(struct buf *text, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return buf_add(text, slice_of(json_string_value(value), json_string_length(value)));
    case JSON_INTEGER:
        return buf_addf(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    case JSON_REAL:
        return buf_addf(text, "%.17g", json_real_value(value));
    case JSON_TRUE:
        return buf_add_string(text, "yes");
    case JSON_FALSE:
        return buf_add_string(text, "no");
    case JSON_OBJECT:
    case JSON_ARRAY:
    case JSON_NULL:
        break;
    }
    return false;
}

static bool set(struct reading *r, const struct param *p, const char *name, const json_t *value)
{
    void *base = p->suffix != NULL ? (void *)&r->policy : (void *)&r->conf;
    struct slice bad;
    struct buf text;
    bool ok;

    buf_init(&text, VALUE_MAX);
    ok = add_value(&text, value) &&
         param_parse(p, slice_trim(buf_slice(&text)), &r->pool, base, &bad);
    if (!ok) {
        (void)buf_addf(r->error, "params: %s: ", name); /* sticky, as what follows */
        param_add_expected(r->error, p);
        (void)buf_add_string(r->error, " is expected");
    }
    buf_fini(&text);
    return ok;
}

static bool unknown(struct reading *r, const char *name)
{
    (void)buf_addf(r->error, "params: unknown parameter `%s'", name); /* sticky */
    param_add_nearest(r->error, slice_string(name), true);
    return false;
}

/* What the recorder sets for its transport is stronger than default_ parameters, too. */
static void set_one_at_a_time(struct policy *p)
{
    p->process_limit = 1;
    p->destination_recipient_limit = 1;
    p->destination_concurrency_limit = 1;
}

static bool read_all(struct reading *r, const json_t *params)
{
    /* jansson's iterators want it so; nothing is changed. */
    json_t *object = (json_t *)params, *value;
    const char *name;

    if (object != NULL && !json_is_object(object)) {
        (void)buf_add_string(r->error, "params: an object is expected"); /* sticky */
        return false;
    }
    json_object_foreach(object, name, value)
    {
        const struct param *p = find_general(slice_string(name));

        if (p != NULL && !set(r, p, name, value)) {
            return false;
        }
    }
    if (r->one_at_a_time) {
        set_one_at_a_time(&r->policy);
    }
    json_object_foreach(object, name, value)
    {
        struct slice transport = {0};
        const struct param *p;

        if (find_general(slice_string(name)) != NULL) {
            continue;
        }
        p = find_own(slice_string(name), &transport);
        if (p == NULL) {
            return unknown(r, name);
        }
        if (transport.ptr != NULL) {
            if (r->transport.ptr != NULL && !slice_equal(r->transport, transport)) {
                (void)buf_addf(r->error, "params: values of two transports, %.*s and %.*s",
                               SLICE_ARGS(r->transport), SLICE_ARGS(transport)); /* sticky */
                return false;
            }
            r->transport = transport;
        }
        if (!set(r, p, name, value)) {
            return false;
        }
    }
    return true;
}

bool recorded_params_read(const json_t *params, bool one_at_a_time, struct recorded_params *ret,
                          struct buf *error)
{
    const struct conf_world world = {.hostname = "recorder.test"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(SLICE(AS_POSTFIX), "built in", "/", &world, &problems);
    struct reading r = {.error = error, .one_at_a_time = one_at_a_time};
    bool ok;

    conf_problems_fini(&problems);
    CHECK(conf != NULL);
    r.conf = *conf;
    r.policy = conf->defaults;
    ok = read_all(&r, params);
    if (ok) {
        ret->limits = tuning_limits(&r.conf);
        ret->policy = tuning_transport(&r.conf, &r.policy);
    }
    pool_fini(&r.pool);
    conf_free(conf);
    return ok;
}
