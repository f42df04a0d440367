/* The end of a process, behind the handlers that were registered before its first allocation: route_leaving MODE.
 * own: such a handler frees. joined: it ends a thread that frees. beside: threads go on allocating to the very end, and stderr
 * has their turns in a tenth of a second behind the driver. */
#include "route.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static int (*alloc)(unsigned long long *, size_t);
static int (*release)(unsigned long long);
static void *context;
static int (*set)(void *);
static const char *mode;
static unsigned long long block;
static pthread_t worker;
static atomic_int ending, turns;

static void *frees_at_last(void *unused)
{
    if (set(context)) return unused;
    while (!ending) usleep(100);
    printf("worker free %d\n", release(block));
    return unused;
}

static void *goes_on(void *unused)
{
    unsigned long long mine;
    set(context);
    for (;; turns++)
        if (alloc(&mine, 4096) || release(mine)) usleep(100);
    return unused;
}

/* What stands in the report now keeps its inode under this name. */
static void keep_report(void)
{
    char path[64];
    snprintf(path, sizeof path, "cushion.%d.json", (int)getpid());
    printf("kept\n");
    if (link(path, "kept.json")) fprintf(stderr, "no report yet\n");
}

static void handler(void)
{
    keep_report();
    if (strcmp(mode, "own") == 0) printf("free %d\n", release(block));
    if (strcmp(mode, "joined") == 0) {
        ending = 1;
        pthread_join(worker, NULL);
    }
    fflush(stdout);
}

static void behind_the_driver(void)
{
    int before = turns;
    usleep(100000);
    if (strcmp(mode, "beside") == 0) fprintf(stderr, "%d", turns - before);
}

int main(int argc, char **argv)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), device;
    void *cuda = driver(RTLD_NOW);
    atexit(behind_the_driver);
    mode = argc > 1 ? argv[1] : "own";
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&get = dlsym(cuda, "cuDeviceGet");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(cuda, "cuMemAlloc_v2");
    *(void **)&release = dlsym(cuda, "cuMemFree_v2");
    if (init(0) || get(&device, 0) || retain(&context, device) || set(context)) return 9;
    atexit(handler);
    if (alloc(&block, 70000)) return 9;
    if (strcmp(mode, "joined") == 0) pthread_create(&worker, NULL, frees_at_last, NULL);
    if (strcmp(mode, "beside") == 0) {
        pthread_create(&worker, NULL, goes_on, NULL);
        while (turns < 100) usleep(100);
    }
    return 42;
}
