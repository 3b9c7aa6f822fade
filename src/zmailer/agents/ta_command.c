#include "ta_command.h"

#include <stdint.h>
#include <string.h>

/* Finds a reference at the front of `s`: its name and its length. */
static bool find_reference(struct slice s, struct slice *ret_name, size_t *ret_len,
                           bool *ret_braced)
{
    size_t len = 1;

    if (s.len < 2 || s.ptr[0] != '$') {
        return false;
    }
    *ret_braced = s.ptr[1] == '{';
    if (*ret_braced) {
        len = slice_find(s, '}');
        *ret_name = slice_of(s.ptr + 2, len - 2);
        *ret_len = len + 1;
        return len < s.len;
    }
    while (len < s.len && (ascii_is_alnum(s.ptr[len]) || s.ptr[len] == '_')) {
        len++;
    }
    *ret_name = slice_of(s.ptr + 1, len - 1);
    *ret_len = len;
    return len > 1 && !ascii_is_digit(s.ptr[1]);
}

/* Cuts the next word off *rest. Returns false at the end. */
static bool cut_word(struct slice *rest, struct slice *ret_word)
{
    *rest = slice_trim(*rest);
    ret_word->ptr = rest->ptr;
    ret_word->len = 0;
    while (ret_word->len < rest->len && strchr(" \t\r\n", rest->ptr[ret_word->len]) == NULL) {
        ret_word->len++;
    }
    *rest = slice_skip(*rest, ret_word->len);
    return ret_word->len > 0;
}

bool ta_command_is_host_bound(struct slice command)
{
    struct slice name;
    size_t len;
    bool braced;

    for (; command.len > 0; command = slice_skip(command, 1)) {
        if (find_reference(command, &name, &len, &braced) && slice_equal(name, SLICE("host"))) {
            return true;
        }
    }
    return false;
}

/* Appends an expanded word with a NUL. Returns false if it would be an option. */
static bool expand_word(struct slice word, const struct ta_command_names *names, struct buf *out)
{
    size_t start = buf_len(out);

    while (word.len > 0) {
        struct slice name, value = slice_of(word.ptr, 1);
        size_t len = 1;
        bool braced;

        if (find_reference(word, &name, &len, &braced)) {
            const char *known = NULL;

            if (slice_equal(name, SLICE("host"))) {
                value = names->host;
                if (buf_len(out) == start && slice_starts(value, SLICE("-"))) {
                    return false;
                }
            } else if (slice_equal(name, SLICE("channel"))) {
                value = names->channel;
            } else {
                known = names->look(names->arg, name);
                value = known != NULL ? slice_string(known)
                        : braced      ? slice_of("", 0)
                                      : slice_of(word.ptr, len);
            }
        } else {
            len = 1;
        }
        (void)buf_add(out, value); /* sticky */
        word = slice_skip(word, len);
    }
    (void)buf_add_byte(out, '\0'); /* sticky */
    return true;
}

static bool is_setting(struct slice word)
{
    size_t at = slice_find(word, '=');

    return at > 0 && at < word.len;
}

static bool expand_program(struct slice word, const struct ta_command_names *names, struct buf *out,
                           const char **ret_why)
{
    const char *mailbin = names->look(names->arg, SLICE("MAILBIN"));

    if (word.ptr[0] != '/' && !slice_starts(word, SLICE("$"))) {
        if (mailbin == NULL) {
            *ret_why = "its program has no leading / and the ZENV file has no MAILBIN";
            return false;
        }
        (void)buf_addf(out, "%s/ta/", mailbin); /* sticky */
    }
    if (!expand_word(word, names, out)) {
        *ret_why = "its program would begin with the host's name";
        return false;
    }
    return true;
}

/* Appends NAME=VALUE. Returns false if there is no value. */
static bool add_variable(struct buf *out, const char *name, const char *value)
{
    if (value == NULL) {
        return false;
    }
    (void)buf_addf(out, "%s=%s", name, value); /* sticky */
    (void)buf_add_byte(out, '\0');             /* sticky */
    return true;
}

/* Makes an array of `count` consecutive strings at `at`. Returns the end of the last. */
static char *point(char *at, char **array, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        array[i] = at;
        at += strlen(at) + 1;
    }
    array[count] = NULL;
    return at;
}

bool ta_command_expand(struct slice command, const struct ta_command_names *names, const char *tz,
                       struct ta_command *ret_command, const char **ret_why)
{
    struct buf *out = &ret_command->bytes;
    size_t words = 0, settings = 0;
    struct slice rest = command, word;
    char *at;

    buf_init(out, TA_COMMAND_BYTES_MAX);
    while (cut_word(&rest, &word)) {
        bool setting = words == 0 && is_setting(word);

        if ((setting ? settings : words) == TA_COMMAND_WORDS_MAX) {
            *ret_why = "it has more than 40 words or settings";
            return false;
        }
        *ret_why = "a word of it would be an option, as the host's name begins with -";
        if (words == 0 && !setting) {
            settings += add_variable(out, "TZ", tz);
            settings += add_variable(out, "PATH", names->look(names->arg, SLICE("PATH")));
            settings += add_variable(out, "ZCONFIG", names->look(names->arg, SLICE("ZCONFIG")));
            if (!expand_program(word, names, out, ret_why)) {
                return false;
            }
        } else if (!expand_word(word, names, out)) {
            return false;
        }
        settings += setting;
        words += !setting;
    }
    if (words == 0) {
        *ret_why = "it names no program";
        return false;
    }
    if (out->failed) {
        *ret_why = "it is too long";
        return false;
    }
    at = (char *)(uintptr_t)buf_slice(out).ptr;
    at = point(at, ret_command->environment, settings);
    (void)point(at, ret_command->words, words);
    return true;
}

void ta_command_fini(struct ta_command *c)
{
    buf_fini(&c->bytes);
}
