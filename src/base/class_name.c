#include "class_name.h"

#include "check.h"

static bool is_class_byte(char c)
{
    switch (c) {
    case '-':
    case '_':
    case '.':
    case '+':
    case '=':
    case '@':
        return true;
    default:
        return (c >= 'a' && c <= 'z') || ascii_is_digit(c);
    }
}

const char *class_source_word(enum class_source source)
{
    static const char *const words[] = {
        [CLASS_SOURCE_NONE] = "",
        [CLASS_SOURCE_HEADER] = "class_header",
        [CLASS_SOURCE_LISTENER] = "listener",
        [CLASS_SOURCE_SENDER] = "sender",
        [CLASS_SOURCE_LIST_UNSUBSCRIBE] = "List-Unsubscribe",
        [CLASS_SOURCE_LIST_ID] = "List-Id",
        [CLASS_SOURCE_PRECEDENCE] = "Precedence",
        [CLASS_SOURCE_DEFAULT] = "default",
        [CLASS_SOURCE_REPORT] = "report",
        [CLASS_SOURCE_LOGIN] = "login",
    };

    CHECK((size_t)source < sizeof words / sizeof words[0]);
    return words[source];
}

bool class_name_valid(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (!is_class_byte(name.ptr[i])) {
            return false;
        }
    }
    return name.len >= 1 && name.len <= CLASS_NAME_MAX;
}

bool class_name_parse(struct slice text, char room[CLASS_NAME_MAX], struct slice *ret_name)
{
    if (text.len > CLASS_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        room[i] = ascii_lower(text.ptr[i]);
    }
    struct slice name = slice_of(room, text.len);
    if (!class_name_valid(name)) {
        return false;
    }
    *ret_name = name;
    return true;
}

struct slice class_name_of_sender(struct slice sender, char room[CLASS_NAME_MAX])
{
    if (sender.len == 0) {
        return SLICE(CLASS_NAME_NULL_SENDER);
    }
    size_t len = sender.len < CLASS_NAME_MAX ? sender.len : CLASS_NAME_MAX;
    for (size_t i = 0; i < len; i++) {
        char c = ascii_lower(sender.ptr[i]);

        room[i] = is_class_byte(c) ? c : '_';
    }
    return slice_of(room, len);
}
