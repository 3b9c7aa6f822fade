/*
 * MTA-STS (RFC 8461): a domain's policy about TLS to its MX hosts. Texts only; DNS look-ups and
 * fetching the policy are elsewhere.
 *
 *   TXT _mta-sts.DOMAIN                                "v=STSv1; id=20160831085700Z;"
 *   https://mta-sts.DOMAIN/.well-known/mta-sts.txt     version: STSv1
 *                                                      mode: enforce
 *                                                      mx: mail.example.com
 *                                                      mx: *.example.net
 *                                                      max_age: 604800
 */
#ifndef SMTP_STS_H
#define SMTP_STS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Places of record and policy of a domain (RFC 8461, 3.1 and 3.3). */
#define STS_RECORD_PREFIX "_mta-sts."
#define STS_HOST_PREFIX   "mta-sts."
#define STS_POLICY_PATH   "/.well-known/mta-sts.txt"

#define STS_ID_MAX      32u
#define STS_POLICY_MAX  (64u << 10) /* bytes of a policy */
#define STS_MAX_AGE_MAX 31557600u   /* seconds: a year */
#define STS_MX_MAX      100u

/* Can this be a domain's name: labels of letters, digits, `-` and `_`, short enough for
 * STS_RECORD_PREFIX in front of it? */
bool sts_domain_valid(struct slice domain);

/* Finds the id of the record, if exactly one of the TXT records is an MTA-STS record (RFC 8461,
 * 3.1); the strings of each record are already joined. Returns false if the domain has no policy.
 * The id is borrowed from the text. */
bool sts_record_find(const struct slice *records, size_t count, struct slice *ret_id);

/* Is this a valid id of a record? */
bool sts_id_valid(struct slice id);

enum sts_mode { STS_NONE, STS_TESTING, STS_ENFORCE };

struct sts_policy {
    enum sts_mode mode;
    uint32_t max_age; /* seconds */
    struct slice mx[STS_MX_MAX];
    size_t mx_count;
};

/* Parses a policy; patterns are borrowed from the text. Returns false with the error in *ret_why
 * (static): the domain then has no policy, or the previous one. */
bool sts_policy_parse(struct slice text, struct sts_policy *ret_policy, const char **ret_why);

/* Appends the policy as sts_policy_parse reads it, without fields that are not used here; at most
 * STS_POLICY_MAX bytes. Returns false if *out is full. */
bool sts_policy_put(const struct sts_policy *policy, struct buf *out);

const char *sts_mode_name(enum sts_mode mode);

/* Does the policy allow this MX host? `*.example.net` stands for exactly one label. */
bool sts_policy_allows(const struct sts_policy *policy, struct slice host);

#endif
