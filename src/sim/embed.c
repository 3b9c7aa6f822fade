/* Make C of a file: embed FILE NAME prints `const char NAME[]` with its bytes and a NUL. */
#include <stdio.h>

int main(int argc, char **argv)
{
    FILE *in = argc == 3 ? fopen(argv[1], "r") : NULL;
    int c;

    if (in == NULL) {
        fputs("usage: embed FILE NAME\n", stderr);
        return 1;
    }
    printf("extern const char %s[];\nconst char %s[] = {", argv[2], argv[2]);
    for (unsigned i = 0; (c = getc(in)) != EOF; i++) {
        printf("%s%d,", i % 20 == 0 ? "\n" : "", (signed char)c);
    }
    fputs("\n0};\n", stdout);
    return ferror(in) || fclose(in) != 0 || fflush(stdout) != 0;
}
