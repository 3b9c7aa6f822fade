#include "mailq_counters.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"

/* Names in ZMailer's order; an empty name is an empty line. */
/* clang-format off */
static const char *const names[] = {
    "Time_now", "Block_creation_time", "SYS.Load-Avg-1-min-G", "SYS.Load-Avg-5-min-G", "",
    "SYS.RouterMasterPID", "SYS.RouterMasterStartTime", "SYS.RouterMasterStarts",
    "SYS.SchedulerMasterPID", "SYS.SchedulerMasterStartTime", "SYS.SchedulerMasterStarts",
    "SC.SchedulerTimeserverPID", "SC.SchedulerTimeserverTime", "SC.SchedulerTimeserverStarts",
    "SC.SchedulerTimeserverStartTime", "SYS.SmtpServerMasterPID",
    "SYS.SmtpServerMasterStartTime", "SYS.SmtpServerMasterStarts", "SS.SubsysRateTrackerPID",
    "SS.SubsysRouterMasterPID", "SS.SubsysContentfilterMasterPID", "SS.Irouter-reply-delay-G",
    "SS.Irouter-queue-G", "SS.Cfilter-reply-delay-G", "SS.Cfilter-queue-G",
    "SYS.SpoolFreeSpace-kB-G", "SYS.SpoolUsedSpace-kB-G", "SYS.SpoolFreeFiles-G",
    "SYS.SpoolUsedFiles-G", "SYS.TportSpoolFreeSpace-kB-G", "SYS.TportSpoolUsedSpace-kB-G",
    "SYS.TportSpoolFreeFiles-G", "SYS.TportSpoolUsedFiles-G", "SYS.LogFreeSpace-kB-G",
    "SYS.LogUsedSpace-kB-G", "SYS.LogFreeFiles-G", "SYS.LogUsedFiles-G", "", "SS.Processes-G",
    "SS.ParallelSMTPconnects-G", "SS.ParallelSMTPSconnects-G", "SS.ParallelSUBMITconnects-G",
    "SS.ProcessForks", "SS.ProcessForkFailures", "SS.ContentPolicyForkFailures",
    "SS.SMTPconnects", "SS.SMTPSconnects", "SS.SUBMITconnects", "SS.MaxSameIpSourceCloses",
    "SS.MaxParallelConnectionCloses", "SS.SMTPcommands", "SS.SMTPcommands-unknown",
    "SS.IncomingClientPipelines", "SS.IncomingSmtpTarpits", "SS.SMTP_HELO", "SS.SMTP_HELO_ok",
    "SS.SMTP_HELO_bad", "SS.SMTP_EHLO", "SS.SMTP_EHLO_ok", "SS.SMTP_EHLO_bad",
    "SS.SMTP_STARTTLS", "SS.SMTPTLSes", "SS.SMTP_STARTTLS_fail", "SS.SMTP_NOOP", "SS.SMTP_RSET",
    "SS.SMTP_HELP", "SS.SMTP_ETRN", "SS.SMTP_EXPN", "SS.SMTP_VRFY", "SS.SMTP_TICK",
    "SS.SMTP_TURN", "SS.SMTP_VERBOSE", "SS.SMTP_DEBUG", "SS.SMTP_MAIL", "SS.SMTP_MAIL_ok",
    "SS.SMTP_MAIL_bad", "SS.SMTP_RCPT", "SS.SMTP_RCPT_ok", "SS.SMTP_RCPT_bad",
    "SS.Smtp-Opt-ENVID", "SS.Smtp-Opt-SIZE", "SS.Smtp-Opt-AUTH", "SS.Smtp-Opt-DELIVERBY",
    "SS.Smtp-Opt-BODY-8BITMIME", "SS.Smtp-Opt-BODY-BINARYMIME", "SS.Smtp-Opt-BODY-7BIT",
    "SS.Smtp-Opt-RETURN", "SS.Smtp-Opt-NOTIFY", "SS.Smtp-Opt-ORCPT", "SS.SMTP_DATA",
    "SS.SMTP_DATA_ok", "SS.SMTP_DATA_bad", "SS.SMTP_BDAT", "SS.SMTP_BDAT_ok",
    "SS.SMTP_BDAT_bad", "SS.SMTP_DATA-kB", "SS.SMTP_BDAT-kB", "SS.SMTP_input_spool-kB",
    "SS.ReceivedMessages", "SS.ReceivedRecipients", "SS.TransmittedMessages",
    "SS.TransmittedRecipients", "", "RT.RouterProcesses-G", "RT.RouterProcessForks",
    "RT.RouterProcessFaults", "RT.ReceivedMessages", "RT.ReceivedRecipients",
    "RT.TransmittedMessages", "RT.TransmittedRecipients", "RT.ReceivedVolume-kB",
    "RT.TransmittedVolume-kB", "RT.TransmittedVolume2-kB", "RT.StoredMessages-G",
    "RT.StoredVolume-kB-G", "", "SC.ReceivedMessages", "SC.ReceivedRecipients",
    "SC.TransmittedMessages", "SC.TransmittedRecipients", "SC.StoredMessages-G",
    "SC.StoredThreads-G", "SC.StoredVertices-G", "SC.StoredRecipients-G",
    "SC.ReceivedVolume-kB", "SC.StoredVolume-kB-G", "SC.TransmittedVolume-kB",
    "SC.TransportAgentForks", "SC.TransportAgentProcesses-G", "SC.TransportAgentsActive-G",
    "SC.TransportAgentsIdle-G", "SC.MQ2Parallel-G", "SC.MQ2Connects", "SC.MQ2TcpWrapRej",
    "SC.MQ2AuthRej", "SC.MQ2TimedOut", "SC.MQ2ReadEOF", "SC.MQ2ReadFails", "SC.MQ2WriteFails",
    "SC.MQ2Commands", "SC.MQ2CommandsRej", "SC.MQ2CommandAUTH", "SC.MQ2CommandQUIT",
    "SC.MQ2CommandETRN", "SC.MQ2CommandKillThr", "SC.MQ2CommandKillMsg",
    "SC.MQ2CommandKillProcess", "SC.MQ2CommandRerouteThr", "SC.MQ2CommandRerouteMsg",
    "SC.MQ2CommandShowQueueThreads", "SC.MQ2CommandShowQueueThreads2",
    "SC.MQ2CommandShowQueueShort", "SC.MQ2CommandShowQueueVeryShort", "SC.MQ2CommandShowThread",
    "SC.MQ2CommandShowCounters", "", "TA-SMTP.TaProcessStarts", "TA-SMTP.TaProcCount-G",
    "TA-SMTP.TaIdleStates", "TA-SMTP.TaMessages", "TA-SMTP.TaDeliveryStarts",
    "TA-SMTP.SmtpStarts", "TA-SMTP.SmtpConnects", "TA-SMTP.SmtpConnectFails",
    "TA-SMTP.SmtpConnectsCnt-G", "TA-SMTP.LmtpConnects", "TA-SMTP.SmtpPIPELINING",
    "TA-SMTP.SmtpSTARTTLS", "TA-SMTP.SmtpSTARTTLSok", "TA-SMTP.SmtpSTARTTLSfail",
    "TA-SMTP.SmtpEHLO", "TA-SMTP.SmtpEHLOok", "TA-SMTP.SmtpEHLOfail", "TA-SMTP.SmtpHELO",
    "TA-SMTP.SmtpHELOok", "TA-SMTP.SmtpHELOfail", "TA-SMTP.SmtpLHLO", "TA-SMTP.SmtpLHLOok",
    "TA-SMTP.SmtpLHLOfail", "TA-SMTP.capa8BITMIME", "TA-SMTP.capaAUTH", "TA-SMTP.capaDSN",
    "TA-SMTP.capaCHUNKING", "TA-SMTP.capaDELIVERBY", "TA-SMTP.capaENHANCEDSTATUSCODES",
    "TA-SMTP.capaPIPELINING", "TA-SMTP.capaSIZE", "TA-SMTP.capaSTARTTLS",
    "TA-SMTP.sent-option-ENVID", "TA-SMTP.sent-option-SIZE", "TA-SMTP.sent-option-RET",
    "TA-SMTP.sent-option-NOTIFY", "TA-SMTP.sent-option-ORCPT", "TA-SMTP.SmtpMAIL",
    "TA-SMTP.SmtpMAILok", "TA-SMTP.SmtpRCPT", "TA-SMTP.SmtpRCPTok", "TA-SMTP.SmtpDATA",
    "TA-SMTP.SmtpDATAok", "TA-SMTP.SmtpBDAT", "TA-SMTP.SmtpBDATok", "TA-SMTP.SmtpDATAvolume-kB",
    "TA-SMTP.SmtpBDATvolume-kB", "TA-SMTP.RcptsOk", "TA-SMTP.RcptsRetry", "TA-SMTP.RcptsFail",
};
/* clang-format on */

/* Agents with the same counters, and these counters. */
static const char *const agents[] = {"SMCM", "MBOX", "HOLD", "ERRM", "EXPI", "RERT"};
static const char *const agent_names[] = {
    "TaProcessStarts",  "TaProcCount-G", "TaIdleStates", "TaMessages",
    "TaDeliveryStarts", "RcptsOk",       "RcptsRetry",   "RcptsFail",
};

#define LINE_WIDTH   42
#define LOAD_PREFIX  "SYS.Load-Avg-" /* counters in hundredths */
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void put_row(struct buf *out, const char *name, const struct mailq_counter *known,
                    size_t count, size_t *found)
{
    uint64_t value = 0;

    if (name[0] == '\0') {
        (void)buf_add_byte(out, '\n');
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(known[i].name, name) == 0) {
            value = known[i].value;
            (*found)++;
        }
    }
    if (strncmp(name, LOAD_PREFIX, strlen(LOAD_PREFIX)) == 0) {
        (void)buf_addf(out, "%s%*" PRIu64 ".%02u\n", name, LINE_WIDTH - 3 - (int)strlen(name),
                       value / 100, (unsigned)(value % 100));
        return;
    }
    (void)buf_addf(out, "%s%*" PRIu64 "\n", name, LINE_WIDTH - (int)strlen(name), value);
}

void mailq_put_counters(struct buf *out, const struct mailq_counter *known, size_t count)
{
    size_t found = 0;

    (void)buf_add_string(out, "ZMailer SHM segment dump; Magic=0x00000000\n");
    for (size_t i = 0; i < COUNT(names); i++) {
        put_row(out, names[i], known, count, &found);
    }
    for (size_t i = 0; i < COUNT(agents); i++) {
        (void)buf_add_byte(out, '\n');
        for (size_t j = 0; j < COUNT(agent_names); j++) {
            (void)buf_addf(out, "TA-%s.%-22s%12d\n", agents[i], agent_names[j], 0);
        }
    }
    CHECK(found == count);
}

void mailq_counts_rows(const struct mailq_counts *counts,
                       struct mailq_counter ret_rows[MAILQ_COUNTS_ROWS])
{
    const struct mailq_counter rows[] = {
        {"SC.MQ2Parallel-G", counts->parallel},
        {"SC.MQ2Connects", counts->connects},
        {"SC.MQ2AuthRej", counts->auth_rejects},
        {"SC.MQ2TimedOut", counts->timeouts},
        {"SC.MQ2ReadEOF", counts->read_ends},
        {"SC.MQ2Commands", counts->commands},
        {"SC.MQ2CommandsRej", counts->command_rejects},
        {"SC.MQ2CommandAUTH", counts->auths},
        {"SC.MQ2CommandQUIT", counts->quits},
        {"SC.MQ2CommandETRN", counts->etrns},
        {"SC.MQ2CommandKillThr", counts->kill_threads},
        {"SC.MQ2CommandKillMsg", counts->kill_messages},
        {"SC.MQ2CommandRerouteThr", counts->reroutes},
        {"SC.MQ2CommandShowQueueThreads", counts->show_threads},
        {"SC.MQ2CommandShowQueueThreads2", counts->show_threads2},
        {"SC.MQ2CommandShowQueueShort", counts->show_short},
        {"SC.MQ2CommandShowQueueVeryShort", counts->show_totals},
        {"SC.MQ2CommandShowThread", counts->show_thread},
        {"SC.MQ2CommandShowCounters", counts->show_counters},
    };

    _Static_assert(COUNT(rows) == MAILQ_COUNTS_ROWS, "a row for each count");
    memcpy(ret_rows, rows, sizeof rows);
}
