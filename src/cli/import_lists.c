/*
 * Lists of Postfix: words, files of words, and tables, as elements of our lists.
 */
#include "main_cf_private.h"

#include <string.h>

#include "map_text.h"
#include "match.h"
#include "param.h"

#define LIST_MAX (64u << 20) /* bytes */

bool import_is_database(struct slice type)
{
    static const char *const types[] = {"mysql",     "pgsql", "ldap",      "sqlite",  "memcache",
                                        "mongodb",   "nis",   "nisplus",   "netinfo", "tcp",
                                        "socketmap", "unix",  "texthashdb"};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (is(type, types[i])) {
            return true;
        }
    }
    return false;
}

const char *import_with_word(struct main_cf *im, const char *list, struct slice word)
{
    return import_text(im, "%s%s%.*s", list, list[0] == '\0' ? "" : " ", SLICE_ARGS(word));
}

void import_begin_list(struct buf *list)
{
    buf_init(list, LIST_MAX);
}

void import_add_word(struct buf *list, struct slice word)
{
    (void)buf_add_string(list, buf_len(list) > 0 && word.len > 0 ? " " : ""); /* sticky */
    (void)buf_add(list, word);
}

const char *import_end_list(struct main_cf *im, struct buf *list)
{
    const char *text = pool_string(&im->f.pool, buf_slice(list));

    buf_fini(list);
    return text;
}

bool import_has_word(const char *list, struct slice wanted)
{
    struct slice rest = slice_string(list), word;

    while (postfix_word(&rest, &word)) {
        if (slice_equal_nocase(word, wanted)) {
            return true;
        }
    }
    return false;
}

/* Notes a table that our lists can't use. */
void import_lose_table(struct main_cf *im, const char *name, const char *place,
                       const struct postfix_param *from, struct slice table)
{
    struct slice type, file = postfix_table(table, &type);

    if (import_is_database(type)) {
        import_reason(im->report, import_text(im, "tables in databases and servers (%.*s)",
                                              SLICE_ARGS(from->name)));
    } else if (is(type, "regexp") || is(type, "pcre")) {
        import_reason(im->report,
                      import_text(im, "tables of patterns (%.*s)", SLICE_ARGS(from->name)));
    }
    if (is(type, "pcre") || is(type, "regexp") || is(type, "cidr")) {
        file = slice_skip(table, slice_find(table, ':') + 1);
    }
    import_lose(im, name, place, from,
                file.len > 0 && postfix_path(&im->f, file) == NULL
                    ? import_text(im, "%.*s can't be read", SLICE_ARGS(file))
                    : import_text(im, "%.*s is no text file with keys, which tables are here",
                                  SLICE_ARGS(table)));
}

/* Is the key of a table of aliases a domain? Others are addresses and local names. */
static bool is_domain(struct slice key)
{
    return slice_find(key, '@') == key.len && slice_find(key, '.') < key.len;
}

/* Appends the elements of a file to the list: words, or with `keys` the first word of each line,
 * with `domains` if that is a domain. Returns the reason of an early end; NULL: none. */
static const char *add_file(struct buf *list, const char *content, bool keys, bool domains)
{
    struct slice rest = slice_string(content);
    struct map_text text;
    struct map_line line;
    struct slice word;

    if (keys) {
        map_text_init(&text, rest);
        while (map_text_next(&text, &line)) {
            import_add_word(list, !domains || is_domain(line.key) ? line.key : SLICE(""));
        }
        map_text_fini(&text);
        return text.error;
    }
    while (rest.ptr != NULL) {
        struct slice one = slice_trim(slice_cut(&rest, '\n'));

        one.len = slice_find(one, '#') == 0 ? 0 : one.len;
        while (postfix_word(&one, &word)) {
            import_add_word(list, word);
        }
    }
    return NULL;
}

/* Notes the words of a list that are left out, with one reason. */
static void note_left_out(struct main_cf *im, const char *name, const char *place,
                          const struct postfix_param *from, const char *words, const char *why)
{
    if (words[0] != '\0') {
        import_lose(im, name, place, from,
                    import_text(im, "%s %s left out%s", words,
                                strchr(words, ' ') == NULL ? "is" : "are", why));
    }
}

/* Returns the list without networks that contain one that a `!' excludes. */
static const char *without_excluded(struct main_cf *im, const char *list, const char *excluded,
                                    const char *place, const struct postfix_param *from)
{
    struct slice rest = slice_string(list), word, out, others;
    struct buf kept, dropped;

    import_begin_list(&kept);
    import_begin_list(&dropped);
    while (postfix_word(&rest, &word)) {
        struct cidr whole, part;
        bool contains = !cidr_parse(word, &whole);

        others = slice_string(excluded);
        while (!contains && postfix_word(&others, &out)) {
            contains = !cidr_parse(out, &part) ||
                       (part.bits >= whole.bits && cidr_match(&whole, part.address)) ||
                       (whole.bits >= part.bits && cidr_match(&part, whole.address));
        }
        import_add_word(contains ? &dropped : &kept, word);
    }
    note_left_out(im, "relay_networks", place, from, import_end_list(im, &dropped),
                  ", as a part is excluded: list the others");
    return import_end_list(im, &kept);
}

/* Puts the files and tables of a list in, and appends its words to *all, those after a `!' to
 * *excluded. */
static void flatten(struct main_cf *im, const char *name, const char *place,
                    const struct postfix_param *from, const char *value, struct buf *all,
                    struct buf *excluded)
{
    const struct param *p = param_find(slice_string(name));
    struct slice rest = slice_string(value), word, type, bad;

    while (postfix_word(&rest, &word)) {
        bool negated = word.ptr[0] == '!';
        struct slice one = negated ? slice_skip(word, 1) : word, file = postfix_table(one, &type);
        bool is_cidr = is(type, "cidr") && one.len > type.len;
        bool is_file = one.len > 0 && one.ptr[0] == '/';
        const char *content;

        file = is_file ? one : is_cidr ? slice_skip(one, type.len + 1) : file;
        if (file.len == 0 && param_is_table(one) && slice_find(type, '.') == type.len &&
            !import_parses(p, import_text(im, "%.*s", SLICE_ARGS(one)), &im->f.pool, &bad)) {
            import_lose_table(im, name, place, from, one);
            continue;
        }
        content = file.len == 0 ? NULL : postfix_content(&im->f, postfix_path(&im->f, file));
        if (file.len > 0 && content == NULL) {
            import_lose(im, name, place, from,
                        import_text(im, "%.*s can't be read", SLICE_ARGS(file)));
        } else if (file.len > 0) {
            const char *why = add_file(negated ? excluded : all, content, !is_file,
                                       strcmp(name, "virtual_alias_domains") == 0);

            if (why != NULL) {
                import_lose(im, name, place, from,
                            import_text(im, "%.*s is read in part: %s", SLICE_ARGS(file), why));
            }
        } else {
            import_add_word(negated ? excluded : all, one);
        }
    }
}

const char *import_list(struct main_cf *im, const char *name, const char *place,
                        const struct postfix_param *from, const char *value)
{
    const struct param *p = param_find(slice_string(name));
    struct buf all, excluded, good, wrong;
    struct slice rest, word, unknown, bad;
    const char *list, *why = "";

    import_begin_list(&all);
    import_begin_list(&excluded);
    import_begin_list(&good);
    import_begin_list(&wrong);
    flatten(im, name, place, from, value, &all, &excluded);
    if (all.failed || excluded.failed) {
        import_lose(im, name, place, from, "the list is left out: it is longer than 64 MiB");
        buf_clear(&all);
        buf_clear(&excluded);
    }
    rest = buf_slice(&all);
    while (postfix_word(&rest, &word)) {
        const char *expanded = postfix_expand(&im->f, NULL, word, false, &unknown);
        bool valid = expanded != NULL && import_parses(p, expanded, &im->f.pool, &bad);

        if (!valid && buf_len(&wrong) == 0) {
            why = import_fault(im, name, pool_string(&im->f.pool, word));
        }
        import_add_word(valid ? &good : &wrong, word);
    }
    buf_fini(&all);
    note_left_out(im, name, place, from, import_end_list(im, &wrong), import_text(im, ": %s", why));
    list = import_end_list(im, &good);
    if (buf_len(&excluded) > 0) {
        list = without_excluded(im, list, buf_cstr(&excluded), place, from);
    }
    buf_fini(&excluded);
    return list;
}

/* Does a table have a next hop unix:PATH that is relative, and so to Postfix's queue directory? */
static bool has_relative_socket(const char *content)
{
    for (const char *at = content; at != NULL && (at = strstr(at, ":unix:")) != NULL; at++) {
        if (at[6] != '/') {
            return true;
        }
    }
    return false;
}

/* Returns the elements of a list of tables that our parameter can read; notes others as lost. */
static const char *tables_of(struct main_cf *im, const char *name, const char *place,
                             const struct postfix_param *from, const char *value)
{
    const struct param *p = param_find(slice_string(name));
    struct slice rest = slice_string(value), word, type, bad;
    const char *list = "";

    while (postfix_word(&rest, &word)) {
        struct slice file = postfix_table(word, &type);
        bool same_type = is(type, "pcre") || is(type, "cidr");
        const char *path, *element;

        if (is(type, "regexp") && strstr(name, "_checks") != NULL) {
            type = SLICE("pcre"); /* POSIX patterns are PCRE, except for rare constructs */
            same_type = true;
            word = slice_string(import_text(
                im, "pcre:%.*s", SLICE_ARGS(slice_skip(word, slice_find(word, ':') + 1))));
        }
        if (same_type) {
            file = slice_skip(word, slice_find(word, ':') + 1);
        } else if (type.len == word.len && word.ptr[0] == '/') {
            file = word;
        }
        path = file.len == 0 ? NULL : postfix_path(&im->f, file);
        element = path == NULL ? import_text(im, "%.*s", SLICE_ARGS(word))
                  : same_type  ? import_text(im, "%.*s:%s", SLICE_ARGS(type), path)
                               : path;
        if (path != NULL && has_relative_socket(postfix_content(&im->f, path))) {
            import_lose(im, name, place, from,
                        import_text(im, "%s has a relative path of a socket: write %s/... in it",
                                    path, postfix_value(&im->f, NULL, "queue_directory")));
        } else if ((path == NULL && file.len > 0) ||
                   !import_parses(p, element, &im->f.pool, &bad)) {
            import_lose_table(im, name, place, from, word);
        } else {
            list = import_with_word(im, list, slice_string(element));
        }
    }
    return list;
}

void import_put_tables(struct main_cf *im, const char *name, const struct postfix_param *p,
                       const char *place, const char *value)
{
    const char *list = tables_of(im, name, place, p, value);

    if (list[0] != '\0') {
        (void)import_put_noted(im, name, list, place, p);
    } else if (value[0] == '\0') {
        import_fine(im, IMPORT_NEEDLESS, place, p, "empty is what holds without it");
    }
}

const struct postfix_param *import_param_or(struct main_cf *im, const char *name,
                                            struct postfix_param *room, const char **ret_place)
{
    const struct postfix_param *p = postfix_find(&im->f, name);

    if (p == NULL) {
        const char *value = postfix_value(&im->f, NULL, name);

        *room = (struct postfix_param){.name = slice_string(name), .value = slice_string(value)};
        p = room;
    }
    *ret_place = import_place(im, p->line == 0 ? "Postfix's default" : "main.cf", p->line);
    return p;
}

/* Returns the expanded value with $myhostname and $mydomain; "" if a $name is not known. */
const char *import_kept(struct main_cf *im, const char *name)
{
    struct slice unknown;
    const char *value =
        postfix_expand(&im->f, NULL, slice_string(import_text(im, "$%s", name)), true, &unknown);

    return value != NULL ? value : postfix_value(&im->f, NULL, name);
}

/* Returns a transport parameter's value in our form: sockets are absolute. */
const char *import_transport_value(struct main_cf *im, const char *value)
{
    struct slice nexthop = slice_string(value), name = slice_cut(&nexthop, ':');

    if (nexthop.ptr != NULL && slice_starts(nexthop, SLICE("unix:"))) {
        bool chroot = false;

        for (size_t i = 0; i < im->f.service_count; i++) {
            chroot =
                chroot || (slice_equal(im->f.services[i]->name, name) && im->f.services[i]->chroot);
        }
        return import_text(im, "%.*s:unix:%s", SLICE_ARGS(name),
                           postfix_socket(&im->f, chroot, slice_skip(nexthop, 5)));
    }
    return slice_starts(nexthop, SLICE("inet:"))
               ? import_text(im, "%.*s:%.*s", SLICE_ARGS(name), SLICE_ARGS(slice_skip(nexthop, 5)))
               : value;
}
