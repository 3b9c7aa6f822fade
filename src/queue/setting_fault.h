/*
 * Warnings about settings that name an unusable next hop, or that a next hop refuses. Their mail
 * waits until an operator corrects the setting (conf/failure.h), so the warning names its file and
 * line.
 *
 * There is one warning per setting and period, however much mail waits. struct setting_faults is a
 * plain value to embed; zero is empty. Its fields are private to setting_fault.c.
 */
#ifndef QUEUE_SETTING_FAULT_H
#define QUEUE_SETTING_FAULT_H

#include <stdint.h>

#include "times.h"
#include "wire.h"

struct queue;
struct delivery;

#define SETTING_FAULT_PERIOD_US (300 * US_PER_S)
/* Number of settings with a warning in one period; further ones get none. */
#define SETTING_FAULTS_MAX 16

struct setting_faults {
    struct {
        uint64_t setting; /* hash of the setting's place in the warning */
        struct mono until;
    } at[SETTING_FAULTS_MAX];
};

/* Warns of the setting that made this delivery fail, if its result has such a fault. */
void setting_fault_warn(struct queue *q, const struct delivery *d, const struct wire_result *m);

#endif
