/* usage: idle CASE    Programs beside whose work memory goes back, or is taken ahead. What must be so is checked here. */
#include "../sim-driver/tests/c/simtest.h"

enum { MiB = 1 << 20 };
static H context;

static void rest(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

static long live(void) { return (long)(simcuda_live_bytes(0) / MiB); }

/* Three large blocks that nobody uses any more. */
static void leave_idle(void)
{
    P p[3];
    for (int i = 0; i < 3; i++) OK(cuMemAlloc_v2(&p[i], 40 * MiB));
    for (int i = 0; i < 3; i++) OK(cuMemFree_v2(p[i]));
    OK(cuCtxSynchronize());
}

/* They go; what is in use stays, and so does its content. */
static void idle(int before_mib, int expected_mib)
{
    P kept;
    unsigned char byte = 0;
    OK(cuMemAlloc_v2(&kept, 30 * MiB));
    OK(cuMemsetD8_v2(kept, 7, 30 * MiB));
    leave_idle();
    IS(live(), before_mib);
    rest(1500);
    IS(live(), expected_mib);
    OK(cuMemcpyDtoH_v2(&byte, kept + 29 * MiB, 1));
    IS(byte, 7);
    leave_idle();
    OK(cuMemFree_v2(kept));
}

/* Nothing happens while a capture is open, of any mode, and it does not notice. */
static void captures(void)
{
    for (int mode = 0; mode < 3; mode++) {
        H stream, graph;
        leave_idle();
        OK(cuStreamCreate(&stream, 1));
        OK(cuStreamBeginCapture_v2(stream, mode));
        rest(1200);
        IS(live(), 120);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
        rest(1200);
        IS(live(), 0);
        OK(cuStreamDestroy_v2(stream));
    }
}

static volatile int go_on;
static void wait_for_it(void *unused)
{
    (void)unused;
    while (!go_on) rest(1);
}

/* Reports written so far. */
static int reports(void)
{
    char name[40];
    int count = 0;
    do snprintf(name, sizeof name, "report.%d.json", count++);
    while (access(name, F_OK) == 0);
    return count;
}

/* A kernel that ends only when the program has allocated and launched once more: were the driver kept waiting, it would
 * never. */
static void busy(void)
{
    H stream, other;
    P p;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamCreate(&other, 1));
    leave_idle();
    OK(cuLaunchHostFunc(stream, wait_for_it, NULL));
    rest(600);
    int before = reports();
    rest(1200);
    IS(live(), 120);
    /* The thread that would give it back does not wait in the driver. */
    IS(reports() > before + 2, 1);
    OK(cuMemAlloc_v2(&p, 1000));
    OK(cuMemsetD8Async(p, 1, 1000, other));
    OK(cuStreamSynchronize(other));
    go_on = 1;
    OK(cuStreamSynchronize(stream));
    rest(1200);
    IS(live(), 2);
}

/* Contexts that end while their memory is about to go. */
static void *churn(void *number)
{
    unsigned seed = (unsigned)(long)number;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        H own, current;
        P p;
        OK(cuCtxCreate_v2(&own, 0, 0));
        for (int i = 0; i < 4; i++) {
            OK(cuMemAlloc_v2(&p, (2 + rand_r(&seed) % 30) * MiB));
            OK(cuMemFree_v2(p));
        }
        rest(rand_r(&seed) % 700);
        OK(cuCtxGetCurrent(&current));
        IS(current == own, 1);
        OK(cuCtxDestroy_v2(own));
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 4);
    return NULL;
}

static void contexts(void)
{
    pthread_t id[6];
    for (long i = 0; i < 6; i++) pthread_create(&id[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 6; i++) pthread_join(id[i], NULL);
    IS(live(), 0);
}

/* What is taken ahead is there after the first allocation, and serves what follows. */
static void ahead(void)
{
    P p[4];
    size_t free_bytes, total_bytes, before;
    OK(cuMemGetInfo_v2(&before, &total_bytes));
    OK(cuMemAlloc_v2(&p[0], 10 * MiB));
    IS(live(), 100);
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    IS((before - free_bytes) / MiB, 10);
    for (int i = 1; i < 4; i++) OK(cuMemAlloc_v2(&p[i], 30 * MiB));
    IS(live(), 100);
    for (int i = 0; i < 4; i++) OK(cuMemFree_v2(p[i]));
    OK(cuMemAlloc_v2(&p[0], 1000));
    IS(live(), 102);
}

/* 100 MiB idle, 60 MiB in use, and 2 MiB more: less than there ever was, so nothing but a threshold gives any back. */
static void threshold(int expected_mib)
{
    P large, kept, small;
    OK(cuMemAlloc_v2(&large, 100 * MiB));
    OK(cuMemAlloc_v2(&kept, 60 * MiB));
    OK(cuMemFree_v2(large));
    OK(cuMemAlloc_v2(&small, 1000));
    IS(live(), expected_mib);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    context = begin();
    if (!strcmp(name, "idle")) idle(number, argc > 3 ? atoi(argv[3]) : 0);
    else if (!strcmp(name, "captures")) captures();
    else if (!strcmp(name, "busy")) busy();
    else if (!strcmp(name, "contexts")) contexts();
    else if (!strcmp(name, "ahead")) ahead();
    else if (!strcmp(name, "threshold")) threshold(number);
    else if (!strcmp(name, "allocate")) leave_idle();
    else return 3;
    return failures != 0;
}
