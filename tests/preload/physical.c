/* Physical memory that is mapped and whose handle is released at once, as JAX does. Prints nothing but errors. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long u64;
static void *lib;

static void *get(const char *name)
{
    void *f = dlsym(lib, name);
    if (!f) {
        printf("no %s\n", name);
        exit(2);
    }
    return f;
}

#define CALL(name, types, ...) \
    do { \
        int e = ((int (*) types)get(#name))(__VA_ARGS__); \
        if (e) { \
            printf("%s: %d\n", #name, e); \
            exit(1); \
        } \
    } while (0)

/* CUmemAllocationProp: pinned memory of device 0. */
static struct { int type, handles, where, id; void *win32; unsigned char rest[8]; } prop = { 1, 0, 1, 0, 0, { 0 } };

static u64 piece(u64 at, size_t bytes)
{
    u64 handle;
    CALL(cuMemCreate, (u64 *, size_t, void *, u64), &handle, bytes, &prop, 0);
    if (at) CALL(cuMemMap, (u64, size_t, size_t, u64, u64), at, bytes, 0, handle, 0);
    return handle;
}

static void let_go(u64 handle) { CALL(cuMemRelease, (u64), handle); }

int main(void)
{
    const size_t MiB = 1 << 20;
    int device;
    void *context;
    u64 base, again;
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return 3;
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemAddressReserve, (u64 *, size_t, size_t, u64, u64), &base, 64 * MiB, 0, 0, 0);
    for (int i = 0; i < 8; i++) let_go(piece(base + i * 4 * MiB, 4 * MiB));
    /* five gone, one at a time, then two at once: one of 4 MiB stays */
    for (int i = 0; i < 5; i++) CALL(cuMemUnmap, (u64, size_t), base + i * 4 * MiB, 4 * MiB);
    CALL(cuMemUnmap, (u64, size_t), base + 6 * 4 * MiB, 8 * MiB);
    /* a handle that was never mapped: gone; one that is unmapped and kept: 2 MiB stay */
    let_go(piece(0, 6 * MiB));
    piece(base, 2 * MiB);
    CALL(cuMemUnmap, (u64, size_t), base, 2 * MiB);
    /* a handle taken again from the address outlives the mapping: 10 MiB stay */
    let_go(piece(base, 10 * MiB));
    CALL(cuMemRetainAllocationHandle, (u64 *, void *), &again, (void *)(base + 100));
    CALL(cuMemUnmap, (u64, size_t), base, 10 * MiB);
    return 0;
}
