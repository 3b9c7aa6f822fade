/*
 * Recordings of a real queue manager, played again: what both kinds have in common.
 *
 * A recording is a JSON object of a jsonlines file. Playing it again tells whether the same came
 * out, in words.
 */
#ifndef REPLAY_RECORDING_H
#define REPLAY_RECORDING_H

#include <jansson.h>

#include "buf.h"

enum recording_verdict {
    RECORDING_EQUAL,
    RECORDING_DIFFERS, /* *out shows where */
    RECORDING_BAD,     /* it makes no sense; *out says what is wrong, without place */
};

/* Play one recording again. Appends "NAME: ok\n", or "NAME: ..." with what differs. */
typedef enum recording_verdict recording_replay(const json_t *recording, struct buf *out);

/* The order of deliveries: members "name", "params" (recorded_params.h), "messages" (recipients of
 * each, in order of arrival) and "order" (the message, from 1, of each delivery). */
recording_replay order_recording_replay;

/* The path of a window: members "name", "params" and "steps", each of them ["+" or "-", window,
 * success, failure, failed cohorts]: a delivery's feedback and the state behind it. A window of 0
 * is a dead destination. */
recording_replay window_recording_replay;

/* "NAME", or "(no name)"; lasts as long as the recording. */
const char *recording_name(const json_t *recording);

#endif
