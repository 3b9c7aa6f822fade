/*
 * Configuration files made of arbitrary bytes.
 *
 * Wanted, beside no crash: each problem has a text; a file without errors gives a configuration for
 * which any recipient has a route with a known transport, and which, printed and read again, prints
 * the same.
 */
#include <stdint.h>
#include <string.h>

#include "buf.h"
#include "check.h"
#include "conf.h"
#include "route.h"
#include "door.h"
#include "zmailer_dialect.h"

#define TEXT_MAX (16u << 20)

static struct conf *load(struct slice text)
{
    static const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(text, "fuzz", "/nonexistent", &world, &problems);

    CHECK((conf == NULL) == (problems.errors > 0));
    for (size_t i = 0; i < problems.count; i++) {
        CHECK(problems.at[i].text[0] != '\0');
    }
    conf_problems_fini(&problems);
    return conf;
}

static void check_route(const struct conf *conf, struct slice recipient)
{
    struct route route;

    route_address(conf, recipient, recipient, &route);
    CHECK(conf_transport_find(conf, slice_string(route.transport)) != NULL);
    CHECK(route.nexthop[0] != '\0');
    CHECK(strlen(route.destination) >= strlen(route.nexthop));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf *conf, *again;
    struct buf first, second;

    zmailer_open_conf();
    conf = load(slice_of(data, size));
    if (conf == NULL) {
        return 0;
    }
    check_route(conf, SLICE("user+ext@host.example.com"));
    check_route(conf, slice_of(data, size));

    buf_init(&first, TEXT_MAX);
    buf_init(&second, TEXT_MAX);
    CHECK(conf_print(&first, conf, NULL, 0, true));
    again = load(buf_slice(&first));
    CHECK(again != NULL);
    CHECK(conf_print(&second, again, NULL, 0, true));
    CHECK(slice_equal(buf_slice(&first), buf_slice(&second)));
    conf_free(again);
    conf_free(conf);
    buf_fini(&first);
    buf_fini(&second);
    return 0;
}
