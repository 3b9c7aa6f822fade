#include "unit.h"

#include "failure.h"

/* Each cause, and for whom it may return mail: the recipient's own domain, and each kind of setting
 * that can name a next hop. */
static void only_the_mail_and_its_own_domain_return_mail(void **state)
{
    static const struct {
        enum failure_cause cause;
        bool by_recipient, by_setting;
    } table[] = {
        {FAILURE_OURS, false, false},   {FAILURE_ANSWER, true, true},
        {FAILURE_MAIL, true, true},     {FAILURE_RULE, true, true},
        {FAILURE_LOOKUP, true, false},  {FAILURE_LOOP, true, false},
        {FAILURE_SESSION, true, false}, {FAILURE_SETTING, false, false},
        {FAILURE_BIND, false, false},   {FAILURE_BIND6, false, false},
    };
    static const enum route_namer settings[] = {
        ROUTE_BY_TRANSPORT_MAPS, ROUTE_BY_SENDER_MAPS, ROUTE_BY_RELAYHOST, ROUTE_BY_TRANSPORT,
        ROUTE_BY_CONTENT_FILTER, ROUTE_BY_RULE,        ROUTE_BY_REDIRECT,  ROUTE_BY_FALLBACK_RELAY,
        ROUTE_BY_STORE,          ROUTE_BY_OTHER,
    };

    (void)state;
    assert_int_equal(COUNT(table), FAILURE_CAUSES);
    assert_int_equal(COUNT(settings) + 1, ROUTE_NAMERS);
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(table[i].cause, i);
        assert_int_equal(failure_may_be_permanent(table[i].cause, ROUTE_BY_RECIPIENT),
                         table[i].by_recipient);
        for (size_t j = 0; j < COUNT(settings); j++) {
            assert_int_equal(failure_may_be_permanent(table[i].cause, settings[j]),
                             table[i].by_setting);
        }
    }
}

static void deferred_mail_waits_for_a_setting_that_is_refused_or_bound_to(void **state)
{
    (void)state;
    for (enum failure_cause cause = 0; cause < FAILURE_CAUSES; cause++) {
        bool is_bind = cause == FAILURE_BIND || cause == FAILURE_BIND6;

        assert_int_equal(failure_waits_for_setting(cause, ROUTE_BY_RECIPIENT), is_bind);
        assert_int_equal(failure_waits_for_setting(cause, ROUTE_BY_OTHER),
                         is_bind || cause == FAILURE_SETTING);
    }
}

UNIT_MAIN(cmocka_unit_test(deferred_mail_waits_for_a_setting_that_is_refused_or_bound_to),
          cmocka_unit_test(only_the_mail_and_its_own_domain_return_mail))
