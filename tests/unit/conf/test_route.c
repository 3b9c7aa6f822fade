#include "unit.h"
static void x(void **s)
{
    (void)s;
}
UNIT_MAIN(cmocka_unit_test(x))
