/* usage: held [WORD...]    Allocates, says "ready", and does one thing for each line of its input; ends with its input.
 *
 * capture, busy: a stream captures, or works, from then on until the next line.
 * fork: the child says "child PID" and stays as long as its parent.  exec: becomes a shell that stays.
 * leave: ends by _exit.  quick: by quick_exit.  late: allocates only at the first line.
 */
#include "../sim-driver/tests/c/simtest.h"

enum { MiB = 1 << 20 };
static H context;
static volatile int go_on;
static P kept;

static void allocate(void)
{
    P p[3];
    context = begin();
    OK(cuMemAlloc_v2(&kept, 10 * MiB));
    OK(cuMemsetD8_v2(kept, 9, 10 * MiB));
    for (int i = 0; i < 3; i++) OK(cuMemAlloc_v2(&p[i], 40 * MiB));
    for (int i = 0; i < 3; i++) OK(cuMemFree_v2(p[i]));
    OK(cuCtxSynchronize());
}

static void wait_for_it(void *unused)
{
    (void)unused;
    struct timespec t = { 0, 1000000 };
    while (!go_on) nanosleep(&t, NULL);
}

static void next(void)
{
    char line[100];
    if (!fgets(line, sizeof line, stdin)) exit(failures != 0);
}

static void say(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    H stream, graph;
    if (argc < 2 || strcmp(argv[1], "late")) allocate();
    say("ready");
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        next();
        if (!strcmp(word, "late")) allocate();
        if (!strcmp(word, "capture")) {
            OK(cuStreamCreate(&stream, 1));
            OK(cuStreamBeginCapture_v2(stream, 0));
            say(word);
            next();
            OK(cuStreamEndCapture(stream, &graph));
        }
        if (!strcmp(word, "busy")) {
            OK(cuStreamCreate(&stream, 1));
            OK(cuLaunchHostFunc(stream, wait_for_it, NULL));
            say(word);
            next();
            go_on = 1;
            OK(cuStreamSynchronize(stream));
        }
        if (!strcmp(word, "fork")) {
            pid_t child = fork();
            if (!child) {
                next();
                _exit(0);
            }
            printf("child %d\n", child);
            fflush(stdout);
            waitpid(child, NULL, 0);
        }
        if (!strcmp(word, "exec")) execl("/bin/sh", "sh", "-c", "echo exec; read x", (char *)NULL);
        if (!strcmp(word, "leave")) _exit(0);
        if (!strcmp(word, "quick")) quick_exit(0);
        say(word);
    }
    next();
    unsigned char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, kept + 10 * MiB - 1, 1));
    IS(byte, 9);
    return failures != 0;
}
