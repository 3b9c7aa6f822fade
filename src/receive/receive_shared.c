#include "receive_shared.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "match.h"
#include "stream.h"

/* ---- names ---------------------------------------------------------------------------------- */

void receive_print_ip(const unsigned char ip[16], char ret_text[INET6_ADDRSTRLEN])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool v4 = memcmp(ip, mapped, sizeof mapped) == 0;

    CHECK(inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + sizeof mapped : ip, ret_text,
                    INET6_ADDRSTRLEN) != NULL);
}

bool receive_name_client(const struct sockaddr *addr, char ret_ip[INET6_ADDRSTRLEN],
                         const char **ret_name)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const unsigned char loopback6[16] = {[15] = 1};
    unsigned char ip[16];
    bool v4;

    if (!ip_of_sockaddr(addr, ip)) {
        return false;
    }
    v4 = memcmp(ip, mapped, sizeof mapped) == 0;
    receive_print_ip(ip, ret_ip);
    *ret_name =
        (v4 && ip[12] == 127) || memcmp(ip, loopback6, sizeof ip) == 0 ? "localhost" : "unknown";
    return true;
}

/* ---- log lines ------------------------------------------------------------------------------ */

static void arm_quota_timer(struct receive_sessions *all)
{
    struct mono due = MONO_NEVER;
    struct timeval delay;
    int64_t us;

    if (evtimer_pending(all->quota_timer, NULL)) {
        return;
    }
    for (size_t i = 0; i < RECEIVE_QUOTAS; i++) {
        due = mono_min(due, log_quota_due(&all->quotas[i]));
    }
    if (due.us == US_FOREVER) {
        return;
    }
    us = due.us > clock_mono().us ? due.us - clock_mono().us : 0;
    delay = (struct timeval){.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};
    CHECK(event_add(all->quota_timer, &delay) == 0);
}

bool receive_may_log(struct receive_sessions *all, unsigned quota)
{
    if (log_quota_take(&all->quotas[quota], clock_mono())) {
        return true;
    }
    arm_quota_timer(all);
    return false;
}

bool receive_under_attack(const struct receive_sessions *all)
{
    for (size_t i = 0; i < RECEIVE_QUOTAS; i++) {
        if (log_quota_is_spent(&all->quotas[i], clock_mono())) {
            return true;
        }
    }
    return false;
}

static void tell_quotas(struct receive_sessions *all)
{
    for (unsigned i = 0; i < RECEIVE_QUOTAS; i++) {
        unsigned long long count = log_quota_tell(&all->quotas[i], clock_mono());

        if (count == 0) {
            continue;
        }
        if (i == RECEIVE_QUOTA_SESSIONS) {
            log_warning("%llu more sessions brought no mail", count);
        } else if (i == RECEIVE_QUOTA_LOGINS) {
            log_warning("%llu more logins failed", count);
        } else if (i == RECEIVE_QUOTA_HEADERS) {
            log_warning("%llu more connections without the header of a proxy were closed", count);
        } else {
            log_warning("%s: %llu more clients were %s",
                        admission_limit_name((enum admission_limit)(i % ADMISSION_LIMITS)), count,
                        i < RECEIVE_QUOTA_DROPPED ? "turned away" : "dropped");
        }
    }
}

static void on_quota_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    tell_quotas(arg);
    arm_quota_timer(arg);
}

void receive_quotas_init(struct receive_sessions *all)
{
    for (size_t i = 0; i < RECEIVE_QUOTAS; i++) {
        all->quotas[i].lines_max =
            i < RECEIVE_QUOTA_SESSIONS ? RECEIVE_LIMIT_LINES : RECEIVE_SESSION_LINES;
    }
    all->quota_timer = evtimer_new(all->role->base, on_quota_timer, all);
    CHECK(all->quota_timer != NULL);
}

void receive_sessions_clock_moved(struct receive_sessions *all)
{
    streams_clock_moved(all->streams);
    (void)event_del(all->quota_timer); /* armed again below */
    on_quota_timer(-1, 0, all);
}

/* ---- room ----------------------------------------------------------------------------------- */

struct server_reply receive_queue_works(const struct receive_sessions *all)
{
    if (all->queue == NULL) {
        return RECEIVE_NO_QUEUE;
    }
    if (!all->flow.storage_ok) {
        return (struct server_reply){451, "4.3.0", SLICE("Mail storage failed, try again later")};
    }
    return SERVER_ACCEPT;
}

bool receive_has_memory(struct receive_sessions *all, const struct receive_settings *settings,
                        const struct place *self, uint64_t bytes)
{
    struct draft_budget *budget = &all->budget;

    while (bytes >= budget->max - budget->used) {
        struct place *victim =
            admission_memory_victim(&all->admission, &settings->admission, self, clock_mono());

        if (victim == NULL) {
            return false;
        }
        victim->drop(victim, ADMISSION_MEMORY);
    }
    return true;
}

struct server_reply receive_room_for(struct receive_sessions *all,
                                     const struct receive_settings *settings,
                                     const struct place *self, uint64_t size)
{
    struct server_reply reply = receive_queue_works(all);

    if (reply.code != 0) {
        return reply;
    }
    if (!all->flow.space_ok || size > all->flow.free_bytes) {
        return (struct server_reply){452, "4.3.1", SLICE("Insufficient system storage")};
    }
    if (channel_waiting(all->queue) > RECEIVE_WAITING_MAX ||
        !receive_has_memory(all, settings, self, size)) {
        return RECEIVE_NO_MEMORY;
    }
    return SERVER_ACCEPT;
}

/* ---- limits on sending ---------------------------------------------------------------------- */

struct slice receive_send_client(const struct conf *conf, const unsigned char address[16],
                                 bool exempt, char room[RECEIVE_SEND_CLIENT_MAX])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool v4 = memcmp(address, mapped, sizeof mapped) == 0;
    int64_t bits =
        v4 ? 96 + conf->smtpd_client_ipv4_prefix_length : conf->smtpd_client_ipv6_prefix_length;
    unsigned char ip[16];

    if (exempt || (conf->smtpd_client_message_rate_limit == 0 &&
                   conf->smtpd_client_recipient_rate_limit == 0 &&
                   conf->smtpd_client_message_hour_limit == 0 &&
                   conf->smtpd_client_recipient_hour_limit == 0)) {
        return SLICE("");
    }
    memcpy(ip, address, sizeof ip);
    for (int64_t i = bits; i < 128; i++) {
        ip[i / 8] = (unsigned char)(ip[i / 8] & ~(0x80 >> i % 8));
    }
    receive_print_ip(ip, room);
    if (bits < 128) {
        (void)snprintf(room + strlen(room), 5, "/%d", (int)(v4 ? bits - 96 : bits)); /* fits */
    }
    return slice_string(room);
}

struct slice receive_send_login(const struct conf *conf, const char *user)
{
    bool limited =
        conf->smtpd_login_message_rate_limit != 0 || conf->smtpd_login_recipient_rate_limit != 0 ||
        conf->smtpd_login_message_hour_limit != 0 || conf->smtpd_login_recipient_hour_limit != 0;

    return user == NULL || !limited ? SLICE("") : slice_string(user);
}
