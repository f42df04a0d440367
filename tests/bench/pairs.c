/* usage: pairs                  Times of cuMemAlloc + cuMemFree in nanoseconds a pair, one line for each pattern: `NAME NANOSECONDS`.
 *
 *   same 512, 1 MiB, 64 MiB    the same size again and again
 *   mixed                      sizes from 256 B to 16 MiB, each freed at once
 *   window                     1,000 live blocks of mixed sizes, a random one replaced each time
 *   threads                    8 threads, each as `mixed`: wall time over all pairs
 *
 * Each figure is the median of 9 runs after a warm one; a run lasts at least 20 ms.
 *
 * usage: pairs bursts           4,000 pairs of 512 B and a rest of 20 ms, 101 times: the median burst's nanoseconds a pair. What another
 * thread does with what a burst has left behind (a trace, a scrub) falls into the rest.
 *
 * usage: pairs NAME COUNT [streams]    Makes so many pairs of a pattern and measures nothing, for a profiler: same_512B, same_1MiB,
 * same_64MiB, window_1000, window_100000 (blocks up to 8 KiB). With `streams` the program has a second stream.
 */
#include "../gpu/driver.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { RUNS = 9, THREADS = 8, LIVE = 1000, MANY = 100000 };
typedef unsigned long long address;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static unsigned next(unsigned *state)
{
    unsigned x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* A size between 256 B and 16 MiB, small ones as likely as large ones. */
static size_t mixed_size(unsigned *state)
{
    unsigned shift = 8 + next(state) % 16;
    return ((size_t)1 << shift) + next(state) % (1u << shift);
}

static void same(long pairs, void *size)
{
    address block;
    while (pairs--) {
        DRIVER(cuMemAlloc_v2(&block, *(size_t *)size));
        DRIVER(cuMemFree_v2(block));
    }
}

static void mixed(long pairs, void *seed)
{
    unsigned state = *(unsigned *)seed;
    address block;
    while (pairs--) {
        DRIVER(cuMemAlloc_v2(&block, mixed_size(&state)));
        DRIVER(cuMemFree_v2(block));
    }
}

static void window(long pairs, void *live)
{
    static unsigned state = 12345;
    address *block = live;
    while (pairs--) {
        unsigned slot = next(&state) % LIVE;
        DRIVER(cuMemFree_v2(block[slot]));
        DRIVER(cuMemAlloc_v2(&block[slot], mixed_size(&state) / 16 + 1));
    }
}

static long thread_pairs;
static void *thread(void *seed)
{
    DRIVER(cuCtxSetCurrent(context));
    mixed(thread_pairs, seed);
    return NULL;
}

static void threads(long pairs, void *unused)
{
    pthread_t id[THREADS];
    unsigned seed[THREADS];
    (void)unused;
    thread_pairs = pairs / THREADS + 1;
    for (unsigned i = 0; i < THREADS; i++) {
        seed[i] = 77 + i;
        pthread_create(&id[i], NULL, thread, &seed[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL);
}

static int ascending(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static void measure(const char *name, void (*work)(long, void *), void *argument)
{
    double run[RUNS], start;
    long pairs = 16;
    for (;;) { /* warms, and finds how many pairs fill 20 ms */
        start = now();
        work(pairs, argument);
        if (now() - start > 20e6 || pairs > 50000000) break;
        pairs *= 2;
    }
    for (int i = 0; i < RUNS; i++) {
        start = now();
        work(pairs, argument);
        run[i] = (now() - start) / (double)pairs;
    }
    qsort(run, RUNS, sizeof *run, ascending);
    printf("%s %.1f\n", name, run[RUNS / 2]);
    fflush(stdout);
}

static void bursts(void)
{
    enum { BURSTS = 101, PAIRS = 4000 };
    double run[BURSTS];
    size_t size = 512;
    struct timespec rest = { 0, 20000000 };
    same(PAIRS, &size);
    for (int i = 0; i < BURSTS; i++) {
        nanosleep(&rest, NULL);
        double start = now();
        same(PAIRS, &size);
        run[i] = (now() - start) / PAIRS;
    }
    qsort(run, BURSTS, sizeof *run, ascending);
    printf("bursts %.1f\n", run[BURSTS / 2]);
}

static address many[MANY];

/* Whoever takes the cost of one count from that of another is rid of the filling. */
static void small_window(long pairs, unsigned live)
{
    unsigned state = 12345;
    for (unsigned i = 0; i < live; i++) DRIVER(cuMemAlloc_v2(&many[i], next(&state) % 8192 + 1));
    while (pairs--) {
        unsigned slot = next(&state) % live;
        DRIVER(cuMemFree_v2(many[slot]));
        DRIVER(cuMemAlloc_v2(&many[slot], next(&state) % 8192 + 1));
    }
}

static int count_only(int count, char **argument)
{
    long pairs = atol(argument[2]);
    size_t sizes[] = { 512, 1 << 20, 64 << 20 };
    const char *names[] = { "same_512B", "same_1MiB", "same_64MiB" };
    void *stream;
    open_device();
    if (count > 3) DRIVER(cuStreamCreate(&stream, 1));
    for (int i = 0; i < 3; i++)
        if (!strcmp(argument[1], names[i])) return same(pairs, &sizes[i]), 0;
    if (!strcmp(argument[1], "window_1000")) return small_window(pairs, 1000), 0;
    if (!strcmp(argument[1], "window_100000")) return small_window(pairs, MANY), 0;
    return 3;
}

int main(int count, char **argument)
{
    static address live[LIVE];
    size_t sizes[] = { 512, 1 << 20, 64 << 20 };
    unsigned seed = 77;
    if (count > 2) return count_only(count, argument);
    open_device();
    if (count > 1 && !strcmp(argument[1], "bursts")) return bursts(), 0;
    measure("same_512B", same, &sizes[0]);
    measure("same_1MiB", same, &sizes[1]);
    measure("same_64MiB", same, &sizes[2]);
    measure("mixed", mixed, &seed);
    for (int i = 0; i < LIVE; i++) DRIVER(cuMemAlloc_v2(&live[i], mixed_size(&seed) / 16 + 1));
    measure("window_1000", window, live);
    for (int i = 0; i < LIVE; i++) DRIVER(cuMemFree_v2(live[i]));
    measure("threads_8", threads, NULL);
    return 0;
}
