/* A small service that loses device memory in three places and breaks up what it keeps. It knows nothing of cushion:
 * it asks the driver for memory, as any CUDA program does in the end. No CUDA toolkit is needed to build it.
 *
 * What stays behind, and so what a report must name:
 *     load_weights    3 blocks of 1,048,576 bytes
 *     build_index     5 blocks of    20,000 bytes
 *     open_session   12 blocks of   262,144 bytes, with holes of the same size between them
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long device_address;

static int (*init)(unsigned flags);
static int (*device_get)(int *device, int ordinal);
static int (*device_name)(char *name, int length, int device);
static int (*context_retain)(void **context, int device);
static int (*context_set)(void *context);
static int (*memory_allocate)(device_address *address, size_t bytes);
static int (*memory_free)(device_address address);

static void *function(void *library, const char *name)
{
    void *f = dlsym(library, name);
    if (!f) {
        fprintf(stderr, "no %s in the driver\n", name);
        exit(2);
    }
    return f;
}

static void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: CUDA error %d\n", what, code);
        exit(2);
    }
}

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    char name[128] = "";
    void *context;
    int device;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    *(void **)&init = function(library, "cuInit");
    *(void **)&device_get = function(library, "cuDeviceGet");
    *(void **)&device_name = function(library, "cuDeviceGetName");
    *(void **)&context_retain = function(library, "cuDevicePrimaryCtxRetain");
    *(void **)&context_set = function(library, "cuCtxSetCurrent");
    *(void **)&memory_allocate = function(library, "cuMemAlloc_v2");
    *(void **)&memory_free = function(library, "cuMemFree_v2");
    check(init(0), "cuInit");
    check(device_get(&device, 0), "cuDeviceGet");
    check(device_name(name, sizeof name, device), "cuDeviceGetName");
    check(context_retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(context_set(context), "cuCtxSetCurrent");
    printf("running on %s\n", name);
}

#define SITE __attribute__((noinline))

/* Loses its blocks: nobody keeps the address. */
SITE void load_weights(void)
{
    device_address block;
    check(memory_allocate(&block, 1 << 20), "load_weights");
}

SITE void build_index(int shard)
{
    device_address block;
    check(memory_allocate(&block, 20000), "build_index");
    printf("shard %d at %s address\n", shard, block ? "an" : "no");
}

/* Between two of these lies a block of open_scratch, which is given back: the free memory lies in holes. */
SITE device_address open_session(void)
{
    device_address kept;
    check(memory_allocate(&kept, 1 << 18), "open_session");
    return kept;
}

SITE device_address open_scratch(void)
{
    device_address scratch;
    check(memory_allocate(&scratch, 1 << 18), "open_scratch");
    return scratch;
}

/* Gives everything back, and must not be in any list of leaks. */
SITE void run_batch(void)
{
    device_address block[4];
    for (int i = 0; i < 4; i++) check(memory_allocate(&block[i], (size_t)(i + 1) << 16), "run_batch");
    for (int i = 0; i < 4; i++) check(memory_free(block[i]), "run_batch");
}

/* Volatile, so that each loop below is one call site in the machine code, too. */
static volatile int sessions = 12, weights = 3, shards = 5;

int main(void)
{
    device_address scratch[12];
    open_driver();
    for (int i = 0; i < sessions; i++) {
        scratch[i] = open_scratch();
        open_session();
    }
    for (int i = 0; i < weights; i++) load_weights();
    for (int i = 0; i < shards; i++) build_index(i);
    for (int i = 0; i < 1000; i++) run_batch();
    for (int i = 0; i < sessions; i++) check(memory_free(scratch[i]), "main");
    printf("done\n");
    return 0;
}
