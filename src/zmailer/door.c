#include "door.h"

#include "mailq_parent.h"
#include "mailq_serve.h"
#include "notary_details.h"
#include "postoffice.h"
#include "queue_report.h"
#include "queue_threads.h"
#include "ta_kind.h"
#include "scheduler_logs.h"
#include "zmailer_dialect.h"
#include "zmailer_form.h"

void zmailer_open_door(void)
{
    zmailer_open_conf();
    postoffice_register();
    agent_kind_register(CONF_AGENT_TA, &ta_kind);
    notary_details_register();
    report_layout_register(&zmailer_layout);
    observer_register(&scheduler_logs);
    threads_register();
    mailq_service_register();
    mailq_parent_register();
}
