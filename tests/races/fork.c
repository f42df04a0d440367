/* usage: fork FORKS    Forks while other threads allocate, free and make streams. Each child does something harmless and leaves: by _exit, exit,
 * exec, or by asking the driver, which answers 3 in a child. A child that hangs is killed by its alarm, and told of. */
#include "../sim-driver/tests/c/simtest.h"
#include <errno.h>
#include <signal.h>

enum { THREADS = 3, WAYS = 5 };
static volatile int stop;
static H primary;

static void *allocator(void *argument)
{
    unsigned state = 31 * (1 + (unsigned)(intptr_t)argument);
    P blocks[32] = { 0 };
    H stream;
    OK(cuCtxSetCurrent(primary));
    while (!stop) {
        state = state * 1664525 + 1013904223;
        P *b = &blocks[state >> 27];
        if (*b) {
            OK(cuMemFree_v2(*b));
            *b = 0;
        } else {
            OK(cuMemAlloc_v2(b, 1 + (state >> 8) % 3000000));
        }
        if (state >> 24 == 7) {
            OK(cuStreamCreate(&stream, 1));
            OK(cuStreamDestroy_v2(stream));
        }
    }
    for (int i = 0; i < 32; i++)
        if (blocks[i]) OK(cuMemFree_v2(blocks[i]));
    return NULL;
}

static void child(int way)
{
    P p = 0;
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    switch (way) {
    case 0: _exit(0);
    case 1: exit(0);
    case 2: execl("/bin/true", "true", NULL); _exit(9);
    case 3: _exit(cuMemAlloc_v2(&p, 100) == 3 && cuMemFree_v2(4096) == 3 ? 0 : 8);
    default: _Exit(0);
    }
}

int main(int argc, char **argv)
{
    int forks = argc > 1 ? atoi(argv[1]) : 100, status;
    pthread_t threads[THREADS];
    primary = begin();
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, allocator, (void *)i);
    for (int i = 0; i < forks; i++) {
        pid_t pid = fork();
        if (pid == 0) child(i % WAYS);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) ;
        if (status) {
            fprintf(stderr, "child %d (way %d): status %x\n", i, i % WAYS, status);
            failures++;
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d forks\n", forks);
    return failures != 0;
}
