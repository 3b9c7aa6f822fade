/*
 * mailq -s: how much waits in the directories of a postoffice, and whether a program works on it.
 */
#ifndef ZMAILER_MAILQ_DIRECTORIES_H
#define ZMAILER_MAILQ_DIRECTORIES_H

#include "buf.h"

/* Append a line for router/, for transport/ and, when it holds another number of files than that,
 * for queue/. Files below hash directories count, names that do not begin with a digit do not.
 * False when a directory can't be read; its line says so. */
bool mailq_directories_put(struct buf *out, const char *postoffice);

#endif
