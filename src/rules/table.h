/*
 * Tables of rules, in one piece of memory.
 *
 * The parent reads the files and puts their entries into an image: hash tables of keys, each with
 * its line number. The image is a sealed memory file that every accepting process maps and none can
 * change, so a list of 10^6 recipients is in memory once.
 *
 *     head | tables | for each table: path, slots, entries, values
 *
 *     entry   u32 line | u32 offset of its value | u16 length of the key | the key
 *     slot    u32: offset of an entry + 1; 0 if free. A key is in one of the slots from its hash on
 *     value   u32 length | the text. Equal values are stored once
 *
 * Text keys are in lower case. The key of a network is the byte 0, the 16 bytes of struct cidr and
 * the number of bits. A table of patterns has no entries, only one value: the text of the file.
 *
 * The reader checks each offset against the size of the image, so that a wrong image cannot be used
 * to read other memory.
 */
#ifndef RULES_TABLE_H
#define RULES_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "match.h"
#include "slice.h"

/* Lists of tables, one for each parameter that names tables (table_list_name). */
enum table_list {
    TABLE_CLIENT_ACCESS,
    TABLE_SENDER_ACCESS,
    TABLE_RECIPIENT_ACCESS,
    TABLE_LOCAL_RECIPIENT,
    TABLE_RELAY_RECIPIENT,
    TABLE_VIRTUAL_ALIAS,
    TABLE_ALIAS,
    TABLE_CANONICAL,
    TABLE_SENDER_CANONICAL,
    TABLE_RECIPIENT_CANONICAL,
    TABLE_SENDER_BCC,
    TABLE_RECIPIENT_BCC,
    TABLE_HEADER_CHECKS,
    TABLE_BODY_CHECKS,
    TABLE_LISTS
};

const char *table_list_name(enum table_list list);

#define TABLE_ENTRIES_MAX 10000000u           /* entries of one table */
#define TABLE_KEY_MAX     512u                /* bytes */
#define TABLE_IMAGE_MAX   (UINT64_C(2) << 30) /* bytes of all tables together */
#define TABLE_COUNT_MAX   1000u               /* files of all lists together */

/* ---- making an image ------------------------------------------------------------------------ */

struct table_image; /* all tables so far */

struct table_image *table_image_new(void);
void table_image_free(struct table_image *image); /* may be NULL */

/* Begins the next table. Returns false if there are TABLE_COUNT_MAX already. */
bool table_image_begin(struct table_image *image, enum table_list list, struct slice path);

enum table_added {
    TABLE_ADDED,
    TABLE_SEEN, /* the key exists in *ret_line already; the first entry stays */
    TABLE_FULL,
};

/* Adds an entry to the current table. `key` has at most TABLE_KEY_MAX bytes, `value` at most
 * CONF_LINE_MAX. */
enum table_added table_image_add(struct table_image *image, struct slice key, struct slice value,
                                 unsigned line, unsigned *ret_line);

/* Finds the entry with this key in the current table. Its value lasts until the next call. */
bool table_image_find(const struct table_image *image, struct slice key, struct slice *ret_value,
                      unsigned *ret_line);

/* Adds the text of a table of patterns. Returns false if the image is full. */
bool table_image_add_text(struct table_image *image, struct slice text);

/* Returns the image in a sealed memory file, or -1 and errno if memory is short. */
int table_image_seal(struct table_image *image);

#define TABLE_NETWORK_KEY 18

/* Makes the key of a network. */
struct slice table_network_key(const struct cidr *network, char room[TABLE_NETWORK_KEY]);

/* ---- reading one ---------------------------------------------------------------------------- */

struct tables; /* a mapped image */

/* Maps an image. Returns NULL if `fd`, which stays the caller's, is not a valid one. */
struct tables *tables_open(int fd);
void tables_close(struct tables *t); /* may be NULL */

/* Returns the number of tables in a list; 0 if `t` is NULL. */
size_t tables_count(const struct tables *t, enum table_list list);

struct table_hit {
    enum table_list list;
    struct slice value;
    struct slice path; /* path of the file */
    unsigned line;
};

/* Finds the entry with this key in table `i` of the list. */
bool tables_find(const struct tables *t, enum table_list list, size_t i, struct slice key,
                 struct table_hit *ret_hit);

/* Finds the entry with the longest network that contains this address, a struct cidr's. */
bool tables_find_network(const struct tables *t, enum table_list list, size_t i,
                         const unsigned char ip[16], struct table_hit *ret_hit);

/* Returns the text of a table of patterns, and the path of its file. */
struct slice tables_text(const struct tables *t, enum table_list list, size_t i,
                         struct slice *ret_path);

#endif
