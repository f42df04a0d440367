/* usage: record CASE    Programs to be recorded; what each allocates is known to tests/trace/run. */
#include "../sim-driver/tests/c/simtest.h"
#include <signal.h>

typedef struct { size_t width, height; int format; unsigned channels; } Shape;
R cuArrayCreate_v2(H *, const Shape *);
R cuArrayDestroy(H);

enum { MiB = 1 << 20, THREADS = 40, EACH = 500 };
static H context;

/* One of each kind is freed, and one of each stays: 1000 + its place in the list. */
static void kinds(void)
{
    static char memory[2][4096];
    for (int round = 0; round < 2; round++) {
        P pooled, managed, ordered;
        void *host;
        H array, stream;
        uint64_t handle;
        Prop prop = { 1, 0, 1, 0, NULL, 0 };
        Shape shape = { 1006, 1, 1, 1 };
        OK(cuStreamCreate(&stream, 1));
        OK(cuMemAlloc_v2(&pooled, 1000));
        OK(cuMemAllocManaged(&managed, 1001, 1));
        OK(cuMemHostAlloc(&host, 1002, 0));
        OK(cuMemHostRegister_v2(memory[round], 1003, 0));
        OK(cuMemAllocAsync(&ordered, 1004, stream));
        OK(cuMemCreate(&handle, 2 * MiB, &prop, 0));
        OK(cuArrayCreate_v2(&array, &shape));
        if (round) break;
        OK(cuMemFree_v2(pooled));
        OK(cuMemFree_v2(managed));
        OK(cuMemFreeHost(host));
        OK(cuMemHostUnregister(memory[round]));
        OK(cuMemFreeAsync(ordered, stream));
        OK(cuMemRelease(handle));
        OK(cuArrayDestroy(array));
        /* Refused: no event. */
        cuMemFree_v2(pooled);
        cuMemFree_v2(12345);
    }
}

/* Memory while a stream captures is the driver's. */
static void captured(void)
{
    H stream, graph;
    P before, during;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&before, 1 * MiB));
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuMemAlloc_v2(&during, 3000));
    OK(cuMemFree_v2(before));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemFree_v2(during));
}

/* A context dies with live blocks, and what comes after gets its addresses. */
static void contexts(void)
{
    P p;
    for (int i = 0; i < 5; i++) {
        H other;
        OK(cuCtxCreate_v2(&other, 0, 0));
        for (int j = 0; j < 3; j++) OK(cuMemAlloc_v2(&p, 5 * MiB));
        OK(cuMemAllocManaged(&p, 1 * MiB, 1));
        OK(cuCtxDestroy_v2(other));
    }
}

/* Threads that pass blocks on to each other and end. */
static P shared[8];
static pthread_mutex_t locks[8];
static void *worker(void *number)
{
    unsigned seed = (unsigned)(long)number;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < EACH; i++) {
        int slot = rand_r(&seed) % 8;
        pthread_mutex_lock(&locks[slot]);
        P mine = shared[slot];
        shared[slot] = 0;
        pthread_mutex_unlock(&locks[slot]);
        if (mine) OK(cuMemFree_v2(mine));
        OK(cuMemAlloc_v2(&mine, 256 + rand_r(&seed) % 4096));
        pthread_mutex_lock(&locks[slot]);
        P other = shared[slot];
        shared[slot] = mine;
        pthread_mutex_unlock(&locks[slot]);
        if (other) OK(cuMemFree_v2(other));
    }
    return NULL;
}

static void threads(void)
{
    for (int i = 0; i < 8; i++) pthread_mutex_init(&locks[i], NULL);
    for (int round = 0; round < THREADS / 8; round++) {
        pthread_t id[8];
        for (long i = 0; i < 8; i++) pthread_create(&id[i], NULL, worker, (void *)(round * 8 + i + 1));
        for (int i = 0; i < 8; i++) pthread_join(id[i], NULL);
    }
    for (int i = 0; i < 8; i++) if (shared[i]) OK(cuMemFree_v2(shared[i]));
}

/* Sizes and lifetimes as a training step has them, three times. */
static void steps(void)
{
    enum { LAYERS = 60 };
    unsigned seed = 7;
    P weights[LAYERS], kept[LAYERS], scratch;
    for (int i = 0; i < LAYERS; i++) OK(cuMemAlloc_v2(&weights[i], 100000 + rand_r(&seed) % (3 * MiB)));
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < LAYERS; i++) {
            OK(cuMemAlloc_v2(&kept[i], 1 * MiB + rand_r(&seed) % (16 * MiB)));
            OK(cuMemAlloc_v2(&scratch, 1000 + rand_r(&seed) % (8 * MiB)));
            OK(cuMemFree_v2(scratch));
        }
        for (int i = LAYERS; i-- > 0;) OK(cuMemFree_v2(kept[i]));
    }
    for (int i = 0; i < LAYERS; i += 2) OK(cuMemFree_v2(weights[i]));
}

/* As many pairs as it is told to make. */
static void pairs(long count)
{
    P p;
    while (count--) {
        OK(cuMemAlloc_v2(&p, 512 + count % 100000));
        OK(cuMemFree_v2(p));
    }
}

/* 100 blocks; a flush; ten more at once, and the end that cannot be seen coming. */
static void killed(void)
{
    P p;
    for (int i = 0; i < 100; i++) OK(cuMemAlloc_v2(&p, 4096));
    sleep(1);
    for (int i = 0; i < 10; i++) OK(cuMemAlloc_v2(&p, 4096));
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    context = begin();
    if (!strcmp(name, "kinds")) kinds();
    else if (!strcmp(name, "captured")) captured();
    else if (!strcmp(name, "contexts")) contexts();
    else if (!strcmp(name, "threads")) threads();
    else if (!strcmp(name, "steps")) steps();
    else if (!strcmp(name, "pairs")) pairs(argc > 2 ? atol(argv[2]) : 1000);
    else if (!strcmp(name, "killed")) killed();
    else return 3;
    printf("done\n");
    return failures != 0;
}
