/*
 * Counts for mailq -s: the files in the directories of a postoffice, and the state of the programs
 * that process them.
 */
#ifndef ZMAILER_MAILQ_DIRECTORIES_H
#define ZMAILER_MAILQ_DIRECTORIES_H

#include "buf.h"

/* Appends the counts of router/ and transport/ in ZMailer's words, which scripts search for. The
 * router's state is "never started" (no pid file), "no daemon", "processing" or "idle". The
 * scheduler's state is "never started", "no scheduler daemon", "working" or "idle". A line about
 * deferred/ stands between both unless that is empty. Files below hash directories are counted;
 * names that do not begin with a digit are not. Returns false if a directory can't be read, with
 * the error in its line. */
bool mailq_directories_put(struct buf *out, const char *postoffice);

#endif
