/*
 * Tables of the rules at arrival, in one piece of memory.
 *
 * The parent reads the files and puts all that is in them into an image: keys in hash tables, with
 * the line that each stands in. The image goes into a sealed memory file, which every process that
 * takes mail in maps and none can change: a list of 10^6 recipients is in memory once.
 *
 *     head | tables | of each table: path, slots, entries, values
 *
 *     entry   u32 line | u32 offset of its value | u16 length of the key | the key
 *     slot    u32: offset of an entry + 1; 0: free. A key is in the first slots from its hash on
 *     value   u32 length | the text. Equal values are there once
 *
 * Keys of text are in lower case. A network is the byte 0, its 16 bytes as struct cidr has them and
 * the number of bits. Tables of patterns have no entries: their one value is the file's text.
 *
 * Reading checks each offset against the image's size: a mistake of ours must not become a way in.
 */
#ifndef RULES_TABLE_H
#define RULES_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "match.h"
#include "slice.h"

/* The parameters that name tables; table_list_name has their names. */
enum table_list {
    TABLE_CLIENT_ACCESS,
    TABLE_SENDER_ACCESS,
    TABLE_RECIPIENT_ACCESS,
    TABLE_LOCAL_RECIPIENT,
    TABLE_RELAY_RECIPIENT,
    TABLE_SENDER_BCC,
    TABLE_RECIPIENT_BCC,
    TABLE_HEADER_CHECKS,
    TABLE_BODY_CHECKS,
    TABLE_LISTS
};

const char *table_list_name(enum table_list list);

#define TABLE_ENTRIES_MAX 10000000u           /* of one table */
#define TABLE_KEY_MAX     512u                /* bytes */
#define TABLE_IMAGE_MAX   (UINT64_C(2) << 30) /* bytes of all tables together */
#define TABLE_COUNT_MAX   1000u               /* files of all lists together */

/* ---- making an image ------------------------------------------------------------------------ */

struct table_image; /* all tables so far */

struct table_image *table_image_new(void);
void table_image_free(struct table_image *image); /* NULL is fine */

/* Begin the next table. False when there are TABLE_COUNT_MAX. */
bool table_image_begin(struct table_image *image, enum table_list list, struct slice path);

/* An entry of it. `key` is of at most TABLE_KEY_MAX bytes, `value` of at most CONF_LINE_MAX. */
enum table_added { TABLE_ADDED, TABLE_SEEN /* ret_line says where: the first holds */, TABLE_FULL };
enum table_added table_image_add(struct table_image *image, struct slice key, struct slice value,
                                 unsigned line, unsigned *ret_line);

/* The entry of this key, so far: its value lasts until the next call. */
bool table_image_find(const struct table_image *image, struct slice key, struct slice *ret_value,
                      unsigned *ret_line);

/* Of a table of patterns: its text. False: TABLE_FULL. */
bool table_image_add_text(struct table_image *image, struct slice text);

/* All of it as bytes, in a sealed memory file; -1 and errno when there is no memory. */
int table_image_seal(struct table_image *image);

/* The keys of networks, and of texts, of at most TABLE_KEY_MAX bytes. */
#define TABLE_NETWORK_KEY 18
struct slice table_network_key(const struct cidr *network, char room[TABLE_NETWORK_KEY]);

/* ---- reading one ---------------------------------------------------------------------------- */

struct tables; /* a mapped image */

/* `fd` stays the caller's. NULL: it is no image of ours. */
struct tables *tables_open(int fd);
void tables_close(struct tables *t); /* NULL is fine */

/* How many tables there are of a list; 0 of `t` NULL. */
size_t tables_count(const struct tables *t, enum table_list list);

struct table_hit {
    struct slice value;
    struct slice path; /* of the file */
    unsigned line;
};

/* The entry of table `i` of the list with this key. */
bool tables_find(const struct tables *t, enum table_list list, size_t i, struct slice key,
                 struct table_hit *ret_hit);

/* The entry with the longest network that has this address; as struct cidr has it. */
bool tables_find_network(const struct tables *t, enum table_list list, size_t i,
                         const unsigned char ip[16], struct table_hit *ret_hit);

/* The text of a table of patterns, and its file. */
struct slice tables_text(const struct tables *t, enum table_list list, size_t i,
                         struct slice *ret_path);

#endif
