#include "completion.h"

#include <stdbool.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "param.h"
#include "slice.h"

/* Kinds of operands and option values. */
enum values { VALUES_UNKNOWN, VALUES_FILES, VALUES_PARAMETERS, VALUES_COMMANDS, VALUES_CHOICES };

/* Finds the kind in the words of the usage: [FILE], PATH, DIR, MAIN.CF, [NAME...], [COMMAND],
 * bash|zsh. */
static enum values operand_values(const struct command *c)
{
    if (strstr(c->operands, "FILE") != NULL || strstr(c->operands, "PATH") != NULL ||
        strstr(c->operands, "DIR") != NULL || strstr(c->operands, ".CF") != NULL) {
        return VALUES_FILES;
    }
    if (strstr(c->operands, "NAME") != NULL) {
        return VALUES_PARAMETERS;
    }
    if (strstr(c->operands, "COMMAND") != NULL) {
        return VALUES_COMMANDS;
    }
    return strchr(c->operands, '|') != NULL && strchr(c->operands, ' ') == NULL ? VALUES_CHOICES
                                                                                : VALUES_UNKNOWN;
}

static bool is_file(const struct arg_option *o)
{
    return o->value != NULL && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "CONFIG") == 0);
}

/* Prints the choices separated by blanks instead of |. */
static void put_choices(FILE *out, const char *choices)
{
    for (; *choices != '\0'; choices++) {
        fputc(*choices == '|' ? ' ' : *choices, out);
    }
}

static void put_parameters(FILE *out)
{
    for (size_t i = 0; i < param_count; i++) {
        if (param_table[i].name[0] != '\0') {
            fprintf(out, " %s", param_table[i].name);
        }
    }
}

/* Returns the first word of a command's name. *ret_second is its second word, or empty. */
static struct slice first_word(const struct command *c, struct slice *ret_second)
{
    *ret_second = slice_string(c->name);
    return slice_cut(ret_second, ' ');
}

/* Is it the first command in the table with this first word? */
static bool is_first(const struct command *commands, size_t i)
{
    struct slice second, word = first_word(&commands[i], &second);

    for (size_t j = 0; j < i; j++) {
        if (!commands[j].hidden && slice_equal(first_word(&commands[j], &second), word)) {
            return false;
        }
    }
    return true;
}

/* ---- bash ----------------------------------------------------------------------------------- */

/* Prints a branch for the options whose values are files, or are not. */
static void bash_values(FILE *out, bool files)
{
    struct arg_option o;
    bool first = true;

    fputs("    ", out);
    for (size_t i = 0; args_next_option(ARG_ALL, &i, &o);) {
        if (o.value == NULL || o.choices != NULL || is_file(&o) != files) {
            continue;
        }
        fprintf(out, "%s--%s", first ? "" : "|", o.name);
        if (o.letter != 0) {
            fprintf(out, "|-%c", o.letter);
        }
        first = false;
    }
    fputs(files ? ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n" : ") return ;;\n", out);
}

static void bash_choices(FILE *out)
{
    struct arg_option o;

    for (size_t i = 0; args_next_option(ARG_ALL, &i, &o);) {
        if (o.choices != NULL) {
            fprintf(out, "    --%s) COMPREPLY=($(compgen -W \"", o.name);
            put_choices(out, o.choices);
            fputs("\" -- \"$cur\")); return ;;\n", out);
        }
    }
}

/* Prints the first words of all commands, or the second words of those of `family`. */
static void bash_names(FILE *out, const struct command *commands, size_t count, struct slice family)
{
    struct slice first, second;

    for (size_t i = 0; i < count; i++) {
        first = first_word(&commands[i], &second);
        if (commands[i].hidden) {
            continue;
        }
        if (family.ptr == NULL && is_first(commands, i)) {
            fprintf(out, "%.*s ", SLICE_ARGS(first));
        } else if (family.ptr != NULL && second.ptr != NULL && slice_equal(first, family)) {
            fprintf(out, "%.*s ", SLICE_ARGS(second));
        }
    }
}

static void bash_command(FILE *out, const struct command *c, const struct command *commands,
                         size_t count)
{
    enum values values = operand_values(c);
    struct arg_option o;

    fprintf(out, "    \"%s\")", c->name);
    fputs(values == VALUES_FILES ? " files=yes" : "", out);
    fputs(" words=\"", out);
    for (size_t i = 0; args_next_option(c->groups | ARG_COMMAND, &i, &o);) {
        fprintf(out, "--%s ", o.name);
    }
    if (values == VALUES_CHOICES) {
        put_choices(out, c->operands);
    }
    if (values == VALUES_COMMANDS) {
        bash_names(out, commands, count, (struct slice){0});
    }
    fputs(values == VALUES_PARAMETERS ? "$parameters\" ;;\n" : "\" ;;\n", out);
}

void completion_bash(FILE *out, const struct command *commands, size_t count)
{
    struct slice first, second;

    fputs("# Completion of sluice for bash, made by `sluice completion bash'.\n"
          "_sluice() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local i command='' words='' files=''\n"
          "    local parameters='",
          out);
    put_parameters(out);
    fputs("'\n"
          "    COMPREPLY=()\n"
          "    # --state=hold comes as three words\n"
          "    [ \"$cur\" = = ] && cur=''\n"
          "    [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    case $prev in\n",
          out);
    bash_choices(out);
    bash_values(out, true);
    bash_values(out, false);
    fputs("    esac\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "        -c|--config) ((i++)) ;;\n"
          "        -*) ;;\n"
          "        *) case $command in\n"
          "            ''",
          out);
    for (size_t i = 0; i < count; i++) {
        first = first_word(&commands[i], &second);
        if (!commands[i].hidden && second.ptr != NULL && is_first(commands, i)) {
            fprintf(out, "|%.*s", SLICE_ARGS(first));
        }
    }
    fputs(") command=\"$command${command:+ }${COMP_WORDS[i]}\" ;;\n"
          "            esac ;;\n"
          "        esac\n"
          "    done\n"
          "    case $command in\n"
          "    '') words=\"",
          out);
    bash_names(out, commands, count, (struct slice){0});
    fputs("--config --help --version\" ;;\n", out);
    for (size_t i = 0; i < count; i++) {
        first = first_word(&commands[i], &second);
        if (commands[i].hidden) {
            continue;
        }
        if (second.ptr != NULL && is_first(commands, i)) {
            fprintf(out, "    %.*s) words=\"", SLICE_ARGS(first));
            bash_names(out, commands, count, first);
            fputs("\" ;;\n", out);
        }
        bash_command(out, &commands[i], commands, count);
    }
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "    [ -n \"$files\" ] && COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
          "    return 0\n"
          "}\n"
          "complete -o filenames -F _sluice sluice\n",
          out);
}

/* ---- zsh ------------------------------------------------------------------------------------ */

/* Prints text within single quotes, escaping brackets and colons, which are special in _arguments
 * and _describe. */
static void zsh_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr("[]:\\", *text) != NULL) {
            fputc('\\', out);
        }
        fputc(*text, out);
    }
}

static void zsh_option(FILE *out, const struct arg_option *o)
{
    /* with a letter, both forms are one option */
    if (o->letter != 0) {
        fprintf(out, " '(-%c --%s)'{-%c%s,--%s%s}'[", o->letter, o->name, o->letter,
                o->value == NULL ? "" : "+", o->name, o->value == NULL ? "" : "=");
    } else {
        fprintf(out, " '--%s%s[", o->name, o->value == NULL ? "" : "=");
    }
    zsh_text(out, o->meaning);
    fputs("]", out);
    if (o->value != NULL) {
        fputs(":", out);
        zsh_text(out, o->value);
        fputs(is_file(o) ? ":_files" : ":", out);
        if (o->choices != NULL) {
            fputs("(", out);
            put_choices(out, o->choices);
            fputs(")", out);
        }
    }
    fputs("'", out);
}

static void zsh_command(FILE *out, const struct command *c)
{
    struct arg_option o;

    fprintf(out, "    '%s') _arguments", c->name);
    for (size_t i = 0; args_next_option(c->groups | ARG_COMMAND, &i, &o);) {
        zsh_option(out, &o);
    }
    if (c->most > 0) {
        fputs(" '*:", out);
        zsh_text(out, c->operands);
        fputs(":", out);
        switch (operand_values(c)) {
        case VALUES_FILES:
            fputs("_files'", out);
            break;
        case VALUES_PARAMETERS:
            fputs("('\"$parameters\"')'", out);
            break;
        case VALUES_CHOICES:
            fputs("(", out);
            put_choices(out, c->operands);
            fputs(")'", out);
            break;
        case VALUES_COMMANDS:
        case VALUES_UNKNOWN:
            fputs(" '", out);
            break;
        }
    }
    fputs(" ;;\n", out);
}

/* Prints the names with their meaning: first words, or the second words of `family`. */
static void zsh_names(FILE *out, const struct command *commands, size_t count, struct slice family)
{
    struct slice first, second;

    for (size_t i = 0; i < count; i++) {
        first = first_word(&commands[i], &second);
        if (commands[i].hidden ||
            (family.ptr == NULL ? !is_first(commands, i)
                                : second.ptr == NULL || !slice_equal(first, family))) {
            continue;
        }
        if (family.ptr == NULL && second.ptr != NULL) {
            fprintf(out, " '%.*s:more commands'", SLICE_ARGS(first));
            continue;
        }
        fprintf(out, " '%.*s:", SLICE_ARGS(family.ptr == NULL ? first : second));
        zsh_text(out, commands[i].meaning);
        fputs("'", out);
    }
}

void completion_zsh(FILE *out, const struct command *commands, size_t count)
{
    struct slice first, second;
    struct arg_option o;

    fputs("#compdef sluice\n"
          "# Completion of sluice for zsh, made by `sluice completion zsh'.\n"
          "_sluice() {\n"
          "    local command='' parameters='",
          out);
    put_parameters(out);
    fputs("'\n"
          "    local -a names\n"
          "    integer i last=1\n"
          "    for ((i = 2; i < CURRENT; i++)); do\n"
          "        case ${words[i]} in\n"
          "        -c|--config) ((i++)) ;;\n"
          "        -*) ;;\n"
          "        *) case $command in\n"
          "            ''",
          out);
    for (size_t i = 0; i < count; i++) {
        first = first_word(&commands[i], &second);
        if (!commands[i].hidden && second.ptr != NULL && is_first(commands, i)) {
            fprintf(out, "|%.*s", SLICE_ARGS(first));
        }
    }
    fputs(") command=\"$command${command:+ }${words[i]}\"; last=i ;;\n"
          "            esac ;;\n"
          "        esac\n"
          "    done\n"
          "    # what follows sees the words behind the command only\n"
          "    [[ -n $command ]] && words=(sluice \"${(@)words[last+1,-1]}\") && "
          "((CURRENT -= last - 1))\n"
          "    case $command in\n"
          "    '') names=(",
          out);
    zsh_names(out, commands, count, (struct slice){0});
    fputs(" )\n"
          "        if [[ ${words[CURRENT]} == -* ]]; then _arguments",
          out);
    for (size_t i = 0; args_next_option(ARG_PROGRAM, &i, &o);) {
        zsh_option(out, &o);
    }
    fputs("; else _describe command names; fi ;;\n", out);
    for (size_t i = 0; i < count; i++) {
        first = first_word(&commands[i], &second);
        if (commands[i].hidden) {
            continue;
        }
        if (second.ptr != NULL && is_first(commands, i)) {
            fprintf(out, "    '%.*s') names=(", SLICE_ARGS(first));
            zsh_names(out, commands, count, first);
            fputs(" )\n        _describe command names ;;\n", out);
        }
        zsh_command(out, &commands[i]);
    }
    fputs("    esac\n"
          "}\n"
          "_sluice \"$@\"\n",
          out);
}
