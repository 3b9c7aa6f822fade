#include "failure.h"

#include "check.h"

bool failure_may_be_permanent(enum failure_cause cause, enum route_namer namer)
{
    switch (cause) {
    case FAILURE_OURS:
    case FAILURE_SETTING:
    case FAILURE_BIND:
    case FAILURE_BIND6:
        return false;
    case FAILURE_ANSWER:
    case FAILURE_MAIL:
    case FAILURE_RULE:
        return true;
    case FAILURE_LOOKUP:
    case FAILURE_LOOP:
    case FAILURE_SESSION:
        return namer == ROUTE_BY_RECIPIENT;
    case FAILURE_CAUSES:
        break;
    }
    UNREACHABLE("a cause beyond the enum");
}

bool failure_waits_for_setting(enum failure_cause cause, enum route_namer namer)
{
    return cause == FAILURE_BIND || cause == FAILURE_BIND6 ||
           (cause == FAILURE_SETTING && namer != ROUTE_BY_RECIPIENT);
}
