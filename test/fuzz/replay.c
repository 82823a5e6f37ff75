/*
 * A fuzzing target without the engine: runs every input file that is named, each in a process of its own, so that a crash
 * or a hang is a failure with a name and the others run too.
 */
#define _POSIX_C_SOURCE 200809L /* fork, alarm */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

#define MAX_INPUT_BYTES ((size_t)1 << 20)
#define MAX_SECONDS 120

static void
run(const char *path)
{
    static uint8_t bytes[MAX_INPUT_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        _exit(EXIT_FAILURE);
    }
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);

    /* Of its very size, so that a sanitizer sees what is read beyond. */
    uint8_t *input = malloc(size ? size : 1);
    if (!input) _exit(EXIT_FAILURE);
    memcpy(input, bytes, size);
    alarm(MAX_SECONDS);
    LLVMFuzzerTestOneInput(input, size);
    free(input);
}

static int
succeeds(const char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        run(path);
        exit(EXIT_SUCCESS); /* not _exit: leaks are looked for */
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int
main(int argc, char **argv)
{
    int n_failed = 0;
    for (int i = 1; i < argc; i++) {
        if (succeeds(argv[i])) continue;
        fprintf(stderr, "%s: FAILED with %s\n", argv[0], argv[i]);
        n_failed++;
    }
    const char *name = strrchr(argv[0], '/');
    printf("%s: %d inputs, %d failed\n", name ? name + 1 : argv[0], argc - 1, n_failed);
    return n_failed > 0;
}
