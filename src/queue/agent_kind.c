#include "agent_kind.h"

#include "check.h"

/* Stands for kinds that are not registered. No process has its role, so its mail is deferred. */
static const struct agent_kind unknown = {.program = "qmgr", .role = ROLE_PARENT};

static const struct agent_kind smtp = {.program = "smtp", .role = ROLE_DELIVER};
static const struct agent_kind lmtp = {.program = "lmtp", .role = ROLE_DELIVER};
static const struct agent_kind maildir = {.program = "local", .role = ROLE_LOCAL, .is_final = true};
static const struct agent_kind pipe_kind = {
    .program = "pipe", .role = ROLE_LOCAL, .is_final = true};
static const struct agent_kind error = {.program = "error", .role = ROLE_COUNT, .is_final = true};
static const struct agent_kind discard = {
    .program = "discard", .role = ROLE_COUNT, .is_final = true};
static const struct agent_kind milter = {.program = "milter", .role = ROLE_FILTER};

static const struct agent_kind *kinds[AGENT_KINDS] = {
    [CONF_AGENT_SMTP] = &smtp,       [CONF_AGENT_LMTP] = &lmtp,     [CONF_AGENT_MAILDIR] = &maildir,
    [CONF_AGENT_PIPE] = &pipe_kind,  [CONF_AGENT_ERROR] = &error,   [CONF_AGENT_RETRY] = &error,
    [CONF_AGENT_DISCARD] = &discard, [CONF_AGENT_MILTER] = &milter,
};

void agent_kind_register(enum conf_agent agent, const struct agent_kind *kind)
{
    CHECK((unsigned)agent < AGENT_KINDS);
    CHECK(kinds[agent] == NULL || kinds[agent] == kind);
    kinds[agent] = kind;
}

const struct agent_kind *agent_kind(enum conf_agent agent)
{
    CHECK((unsigned)agent < AGENT_KINDS);
    return kinds[agent] != NULL ? kinds[agent] : &unknown;
}
