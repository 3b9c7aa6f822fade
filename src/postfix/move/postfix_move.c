#include "postfix_move.h"

#include "export.h"
#include "import.h"

void postfix_move_register(void)
{
    static const struct spool_mover mover = {
        .system = "postfix", .in = postfix_import, .out = postfix_export};

    spool_mover_register(&mover);
}
