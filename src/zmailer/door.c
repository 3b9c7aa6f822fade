#include "door.h"

#include "mailq_parent.h"
#include "mailq_serve.h"
#include "notary_details.h"
#include "postoffice.h"
#include "queue_threads.h"
#include "ta_kind.h"
#include "zmailer_dialect.h"

void zmailer_open_door(void)
{
    zmailer_dialect_register();
    postoffice_register();
    agent_kind_register(CONF_AGENT_TA, &ta_kind);
    notary_details_register();
    threads_register();
    mailq_service_register();
    mailq_parent_register();
}
