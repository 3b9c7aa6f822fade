#include "extension.h"

#include "check.h"

static const struct extension *extensions[EXTENSIONS_MAX];
static size_t extension_count;

void extension_register(const struct extension *extension)
{
    CHECK(extension_count < EXTENSIONS_MAX);
    extensions[extension_count++] = extension;
}

const struct extension *extension_at(size_t i)
{
    return i < extension_count ? extensions[i] : NULL;
}

const struct extension *extension_of(struct slice name)
{
    name.len = slice_find(name, ':');
    for (size_t i = 0; i < extension_count; i++) {
        if (slice_equal(slice_string(extensions[i]->name), name)) {
            return extensions[i];
        }
    }
    return NULL;
}
