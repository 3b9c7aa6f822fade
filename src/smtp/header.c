#include "header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define SECONDS_PER_DAY 86400
/* 9999-12-31 23:59:59 UTC: RFC 5322 allows years with more digits, mail programs do not. */
#define SECONDS_MAX INT64_C(253402300799)

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Returns the length of the first line of `s`, line end included. */
static size_t line_length(struct slice s)
{
    size_t lf = slice_find(s, '\n');

    return lf < s.len ? lf + 1 : s.len;
}

static struct slice without_line_end(struct slice s)
{
    if (s.len > 0 && s.ptr[s.len - 1] == '\n') {
        s.len--;
        if (s.len > 0 && s.ptr[s.len - 1] == '\r') {
            s.len--;
        }
    }
    return s;
}

bool header_next(struct slice *rest, struct header_field *ret_field)
{
    struct slice name = {rest->ptr, 0};
    size_t colon, len;

    while (name.len < rest->len && rest->ptr[name.len] > ' ' && rest->ptr[name.len] < 127 &&
           rest->ptr[name.len] != ':') {
        name.len++;
    }
    colon = name.len;
    while (colon < rest->len && is_blank(rest->ptr[colon])) {
        colon++;
    }
    if (name.len == 0 || colon == rest->len || rest->ptr[colon] != ':') {
        return false;
    }
    len = line_length(*rest);
    while (len < rest->len && is_blank(rest->ptr[len])) {
        len += line_length(slice_skip(*rest, len));
    }
    ret_field->name = name;
    ret_field->whole = slice_of(rest->ptr, len);
    ret_field->value = without_line_end(slice_skip(ret_field->whole, colon + 1));
    *rest = slice_skip(*rest, len);
    return true;
}

bool header_find(struct slice content, struct slice name, struct header_field *ret_field)
{
    struct header_field field;

    while (header_next(&content, &field)) {
        if (slice_equal_nocase(field.name, name)) {
            *ret_field = field;
            return true;
        }
    }
    return false;
}

bool header_unfold(struct slice value, struct buf *out)
{
    value = slice_trim(value);
    while (value.len > 0) {
        size_t len = line_length(value);

        buf_add(out, without_line_end(slice_of(value.ptr, len)));
        value = slice_skip(value, len);
    }
    return !out->failed;
}

/* Computes year, month (0..11) and day (1..31) of a day counted from 1970-01-01, day >= 0. */
static void civil_date(int64_t day, int *ret_year, int *ret_month, int *ret_day)
{
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = 1970, month = 0;

    /* 146097 days are 400 years, so at most 400 steps of a year are left. */
    year += 400 * (int)(day / 146097);
    day %= 146097;
    for (;;) {
        bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        int length = leap ? 366 : 365;

        if (day < length) {
            while (day >= month_days[month] + (leap && month == 1)) {
                day -= month_days[month] + (leap && month == 1);
                month++;
            }
            break;
        }
        day -= length;
        year++;
    }
    *ret_year = year;
    *ret_month = month;
    *ret_day = (int)day + 1;
}

bool header_date(struct wall time, int utc_offset_minutes, struct buf *out)
{
    static const char weekdays[][4] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    int64_t local = us_seconds(time.us) + utc_offset_minutes * 60;
    int offset = abs(utc_offset_minutes);
    int year, month, day, second;

    CHECK(utc_offset_minutes > -1440 && utc_offset_minutes < 1440);
    local = local < 0 ? 0 : local > SECONDS_MAX ? SECONDS_MAX : local;
    civil_date(local / SECONDS_PER_DAY, &year, &month, &day);
    second = (int)(local % SECONDS_PER_DAY);
    return buf_addf(out, "%s, %d %s %04d %02d:%02d:%02d %c%02d%02d",
                    weekdays[local / SECONDS_PER_DAY % 7], day, months[month], year, second / 3600,
                    second / 60 % 60, second % 60, utc_offset_minutes < 0 ? '-' : '+', offset / 60,
                    offset % 60);
}

bool header_put_missing(unsigned present, const struct header_missing *m, struct buf *out)
{
    if ((present & HEADER_MESSAGE_ID) == 0) {
        (void)buf_addf(out, "Message-ID: <%lld.%016" PRIx64 "@%.*s>\r\n",
                       (long long)us_seconds(m->time.us), m->random,
                       m->hostname.len < 255 ? (int)m->hostname.len : 255,
                       m->hostname.ptr); /* the error is sticky, here and below */
    }
    if ((present & HEADER_DATE) == 0) {
        (void)buf_add_string(out, "Date: ");
        (void)header_date(m->time, m->utc_offset_minutes, out);
        (void)buf_add_string(out, "\r\n");
    }
    if ((present & HEADER_FROM) == 0) {
        (void)buf_addf(out, "From: %.*s\r\n", SLICE_ARGS(m->from));
    }
    return !out->failed;
}

const char *header_protocol(bool lmtp, bool extended, bool tls, bool login, bool utf8)
{
    static const char *const names[2][2][2][2] = {
        /* [lmtp][utf8][tls][login] */
        {{{"ESMTP", "ESMTPA"}, {"ESMTPS", "ESMTPSA"}},
         {{"UTF8SMTP", "UTF8SMTPA"}, {"UTF8SMTPS", "UTF8SMTPSA"}}},
        {{{"LMTP", "LMTPA"}, {"LMTPS", "LMTPSA"}},
         {{"UTF8LMTP", "UTF8LMTPA"}, {"UTF8LMTPS", "UTF8LMTPSA"}}},
    };

    /* RFC 3848 has no name for HELO under TLS, which no client uses. */
    return !lmtp && !extended && !tls && !utf8 ? "SMTP" : names[lmtp][utf8][tls][login];
}

/* Do the brackets form pairs, so that they are comments within the comment? */
static bool brackets_pair(struct slice text)
{
    size_t open = 0;

    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == ')' && open-- == 0) {
            return false;
        }
        open += text.ptr[i] == '(';
    }
    return open == 0;
}

static void add_ascii(struct buf *out, struct slice text, bool brackets)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool harmless = c >= ' ' && c <= '~' && c != '\\' && (brackets || (c != '(' && c != ')'));

        buf_add_byte(out, harmless ? c : '?');
    }
}

/* Adds text that can neither end a line nor begin or end a comment. */
static void add_harmless(struct buf *out, struct slice text)
{
    add_ascii(out, text, false);
}

/* Adds harmless text inside a comment, which may contain other comments. */
static void add_in_comment(struct buf *out, struct slice text)
{
    add_ascii(out, text, brackets_pair(text));
}

static void add_or_unknown(struct buf *out, struct slice text)
{
    add_harmless(out, text.len > 0 ? text : SLICE("unknown"));
}

/* Adds an address for use inside angle brackets; it may be UTF-8. */
static void add_recipient(struct buf *out, struct slice recipient)
{
    for (size_t i = 0; i < recipient.len; i++) {
        unsigned char c = (unsigned char)recipient.ptr[i];

        buf_add_byte(out, c < ' ' || c == 127 ? '?' : (char)c);
    }
}

bool header_received(const struct header_trace *trace, struct buf *before, struct buf *after)
{
    bool ipv6 = slice_find(trace->client_ip, ':') < trace->client_ip.len;

    buf_add_string(before, "Received: from ");
    add_or_unknown(before, trace->helo);
    buf_add_string(before, " (");
    add_or_unknown(before, trace->client_name);
    buf_add_string(before, ipv6 ? " [IPv6:" : " [");
    add_harmless(before, trace->client_ip);
    buf_add_string(before, "])\r\n\t");
    if (trace->tls.len > 0) {
        buf_add_string(before, "(using ");
        add_in_comment(before, trace->tls);
        buf_add_string(before, ")\r\n\t");
    }
    buf_add_string(before, "by ");
    add_harmless(before, trace->hostname);
    buf_addf(before, " (Sluice) with %s id ", trace->protocol);

    if (trace->recipient.len > 0) {
        buf_add_string(after, "\r\n\tfor <");
        add_recipient(after, trace->recipient);
        buf_add_string(after, ">; ");
    } else {
        buf_add_string(after, ";\r\n\t");
    }
    header_date(trace->time, trace->utc_offset_minutes, after);
    buf_add_string(after, "\r\n");
    return !before->failed && !after->failed;
}
