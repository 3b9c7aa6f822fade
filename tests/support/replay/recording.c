#include "recording.h"

const char *recording_name(const json_t *recording)
{
    const char *name = json_string_value(json_object_get(recording, "name"));

    return name == NULL ? "(no name)" : name;
}
