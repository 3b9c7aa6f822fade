#include "inject_session_private.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "match.h"
#include "mem.h"
#include "receive_shared.h"

static void sum_add(struct inject_session *s, struct slice bytes)
{
    if (s->sum != NULL && bytes.len > 0) {
        CHECK(XXH3_128bits_update(s->sum, bytes.ptr, bytes.len) == XXH_OK);
    }
}

/* Begins the hash of the call with the parts of the request outside the body. */
static void begin_sum(struct inject_session *s)
{
    static const struct slice names[] = {
        {"Content-Type", 12}, {"X-Sluice-From", 13}, {"X-Sluice-To", 11}};
    struct slice value;

    s->sum = XXH3_createState();
    CHECK(s->sum != NULL && XXH3_128bits_reset(s->sum) == XXH_OK);
    sum_add(s, s->http.target);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t n = 0; (value = http_field(&s->http, names[i], n)).ptr != NULL; n++) {
            sum_add(s, SLICE("\n"));
            sum_add(s, value);
        }
        sum_add(s, SLICE("\n\n"));
    }
}

/* Prepares to receive the body. */
static void begin_body(struct inject_session *s)
{
    struct server_reply reply = receive_room_for(s->all, s->settings, &s->place, s->http.length);

    if (reply.code != 0) {
        inject_refuse_as(s, &reply);
        return;
    }
    http_envelope_init(&s->envelope, s->settings->inject_rcpts);
    inject_answer_init(&s->answer);
    inject_mail_document(&s->json, (size_t)s->settings->inject_json);
    s->refusals_logged = s->refusals_unlogged = 0;
    if (s->key[0] != '\0') {
        begin_sum(s);
    }
    buf_clear(&s->error);
    if (s->kind == BODY_MESSAGE && !http_envelope_read(&s->envelope, &s->http, &s->error)) {
        inject_refuse(s, 400, buf_cstr(&s->error));
        return;
    }
    if (s->kind == BODY_MESSAGE) {
        s->reading = inject_part_new(s, 0, inject_envelope_of_body);
    }
    if (s->http.expects_continue) {
        (void)buf_add_string(&s->out, "HTTP/1.1 100 Continue\r\n\r\n");
        stream_flush(s->stream, &s->out);
    }
    inject_wait_for_client(s, INJECT_BODY);
    s->body_paid = clock_mono();
    inject_pay_for_body(s, 0);
}

/* Is this the media type, with any parameters? */
static bool is_type(struct slice value, struct slice type)
{
    return slice_equal_nocase(slice_trim(slice_of(value.ptr, slice_find(value, ';'))), type);
}

/* Reads the key of the call, if there is one. Returns false if it is invalid. */
static bool read_key(struct inject_session *s)
{
    struct slice key = http_field(&s->http, SLICE("Idempotency-Key"), 0);

    s->key[0] = '\0';
    if (key.ptr == NULL) {
        return true;
    }
    if (http_field(&s->http, SLICE("Idempotency-Key"), 1).ptr != NULL || key.len == 0 ||
        key.len > INJECT_KEY_MAX) {
        return false;
    }
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] <= ' ' || key.ptr[i] > '~') {
            return false;
        }
    }
    memcpy(s->key, key.ptr, key.len);
    s->key[key.len] = '\0';
    return true;
}

/* Checks the head, except the token. Returns false if the request was refused. */
static bool judge_head(struct inject_session *s)
{
    const struct http *h = &s->http;
    struct slice type = http_field(h, SLICE("Content-Type"), 0);
    uint64_t limit;

    if (!slice_equal(slice_of(h->target.ptr, slice_find(h->target, '?')), SLICE("/v1/inject"))) {
        inject_refuse(s, 404, "expected /v1/inject");
        return false;
    }
    if (!slice_equal(h->method, SLICE("POST"))) {
        inject_refuse(s, 405, "expected POST");
        return false;
    }
    if (is_type(type, SLICE("message/rfc822"))) {
        s->kind = BODY_MESSAGE;
        limit = s->settings->smtp.limits.message_bytes;
    } else if (is_type(type, SLICE("application/json"))) {
        s->kind = BODY_JSON;
        limit = s->settings->inject_json;
    } else {
        inject_refuse(s, 415, "expected Content-Type: message/rfc822 or application/json");
        return false;
    }
    if (!h->chunked && !h->has_length) {
        inject_refuse(s, 411, "expected Content-Length or Transfer-Encoding: chunked");
        return false;
    }
    if (limit > 0 && h->length > limit) {
        inject_refuse(s, 413,
                      s->kind == BODY_JSON ? "the document is larger than inject_json_limit"
                                           : "the message is larger than message_size_limit");
        return false;
    }
    if (!read_key(s)) {
        inject_refuse(s, 400,
                      "Idempotency-Key: expected 1 to 128 printable ASCII characters, once");
        return false;
    }
    return true;
}

/* Checks the right of the token. */
void inject_token_known(struct inject_session *s)
{
    if ((s->grant->rights & TOKEN_INJECT) == 0) {
        inject_refuse(s, 403, "the token lacks the right inject");
        return;
    }
    begin_body(s);
}

void inject_hash_token(struct slice token, uint8_t ret_hash[TOKEN_HASH])
{
    unsigned len = 0;

    CHECK(EVP_Digest(token.ptr, token.len, ret_hash, &len, EVP_sha256(), NULL) == 1);
    CHECK(len == TOKEN_HASH);
}

/* Queries the auth process about the token, unless the previous request had the same token. */
void inject_on_head(struct inject_session *s)
{
    static const struct slice bearer = {"Bearer ", 7};
    struct slice token = http_field(&s->http, SLICE("Authorization"), 0);
    uint8_t hash[TOKEN_HASH];

    s->request_until = mono_after(clock_mono(), s->settings->smtp.limits.transaction_us);
    if (!judge_head(s)) {
        return;
    }
    if (!slice_starts_nocase(token, bearer)) {
        inject_refuse(s, 401, "expected Authorization: Bearer TOKEN");
        return;
    }
    token = slice_trim(slice_skip(token, bearer.len));
    inject_hash_token(token, hash);
    if (s->grant != NULL && s->grant->generation == s->all->role->conf_generation &&
        CRYPTO_memcmp(hash, s->grant->hash, sizeof hash) == 0) {
        inject_token_known(s);
        return;
    }
    if (token.len > TOKEN_MAX) {
        inject_refuse(s, 401, "this token is not known");
        return;
    }
    if (s->all->auth == NULL || channel_waiting(s->all->auth) > RECEIVE_WAITING_MAX) {
        inject_refuse(s, 503, "tokens can't be checked at present, try again later");
        return;
    }
    s->token = ++s->all->last_token;
    HASH_ADD(hh, s->inject->asked, token, sizeof s->token, s);
    s->phase = INJECT_TOKEN; /* its deadline goes on */
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
    wire_put_auth(s->all->auth, &(struct wire_auth){.login = s->token,
                                                    .mechanism = WIRE_AUTH_TOKEN,
                                                    .first = true,
                                                    .has_message = true,
                                                    .message = token,
                                                    .client = slice_string(s->ip)});
}

static void add_to_document(struct inject_session *s, struct slice bytes)
{
    uint64_t before = json_document_memory(&s->json), more;

    if (!json_document_add(&s->json, bytes)) {
        inject_refuse(s, 413, "the document is larger than inject_json_limit");
        return;
    }
    more = json_document_memory(&s->json) - before;
    if (!receive_has_memory(s->all, s->settings, &s->place, more) ||
        !draft_reserve(&s->account, more)) {
        inject_refuse(s, 429, NO_DOCUMENT_MEMORY);
        return;
    }
    s->held = s->account.charged;
}

void inject_on_body(struct inject_session *s, struct slice bytes)
{
    struct server_reply reply;

    inject_pay_for_body(s, bytes.len);
    sum_add(s, bytes);
    if (s->kind == BODY_JSON) {
        add_to_document(s, bytes);
        return;
    }
    (void)receive_has_memory(s->all, s->settings, &s->place, 2 * bytes.len);
    reply = intake_add(&s->reading->intake, bytes);
    s->held = s->reading->intake.draft.charged;
    if (reply.code == 501) {
        inject_refuse(s, 422, buf_cstr(&s->error)); /* the text is not for SMTP */
    } else if (reply.code != 0) {
        inject_refuse_as(s, &reply);
    }
}
