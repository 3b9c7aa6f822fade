#include "conf.h"

#include <pwd.h>

/* User of processes if none is configured or installed. */
static const char nobody[] = "nobody";

static const char *user_or(const char *named, const char *installed, const char *otherwise)
{
    if (named[0] != '\0') {
        return named;
    }
    return getpwnam(installed) != NULL ? installed : otherwise;
}

const char *conf_mail_owner(const struct conf *conf)
{
    if (conf_spool_is_shared(conf) || conf_spool_uses_services(conf)) {
        return conf->mail_owner; /* the users of the other mail system apply */
    }
    return user_or(conf->mail_owner, CONF_MAIL_OWNER, conf_spool_is_remote(conf) ? nobody : "");
}

const char *conf_receive_user(const struct conf *conf)
{
    return user_or(conf->receive_user, CONF_RECEIVE_USER, nobody);
}

const char *conf_deliver_user(const struct conf *conf)
{
    return user_or(conf->deliver_user, CONF_DELIVER_USER, nobody);
}

const char *conf_auth_user(const struct conf *conf)
{
    return user_or(conf->mail_owner, CONF_MAIL_OWNER, nobody);
}
