#include "member_config.h"

#include "schema.h"

struct membership_config member_config(const struct conf *conf)
{
    return (struct membership_config){
        .times = &membership_times,
        .name = conf->cluster_node,
        .format_min = SCHEMA_FORMAT_MIN,
        .format_max = SCHEMA_FORMAT,
        .needs_standby = conf->cluster_standby == CONF_CLUSTER_STANDBY_REQUIRED,
    };
}
