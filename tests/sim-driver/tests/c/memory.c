/* Allocation, limits, bounds, queries. */
#include "simtest.h"
#include <sys/mman.h>
#include <setjmp.h>
#include <signal.h>

static void zeros_and_alignment(void)
{
    begin();
    static const size_t sizes[] = { 1, 511, 4097, 1 << 20, (1 << 20) + 1, 5 << 20 };
    unsigned char *h = malloc(8 << 20);
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < 6; i++) {
            P p;
            size_t n = sizes[i], bad = 0;
            OK(cuMemAlloc_v2(&p, n));
            IS(p % (n > 1 << 20 ? 2 << 20 : 512), 0);
            OK(cuMemcpyDtoH_v2(h, p, n));
            for (size_t k = 0; k < n; k++) bad += h[k] != 0;
            IS(bad, 0);
            OK(cuMemsetD8_v2(p, 0xAB, n));
            OK(cuMemFree_v2(p));
        }
    free(h);
}

static void bounds(void)
{
    begin();
    P p, q;
    char *h = calloc(1, 4 << 20);
    OK(cuMemAlloc_v2(&p, 1024));
    OK(cuMemAlloc_v2(&q, 1024));
    IS(cuMemcpyHtoD_v2(p, h, 1025), 1);
    IS(cuMemcpyDtoH_v2(h, p, 1025), 1);
    IS(cuMemcpyDtoD_v2(q, p, 1025), 1);
    IS(cuMemcpy(p + 1, q, 1024), 1);
    IS(cuMemcpyHtoDAsync_v2(p, h, 1025, NULL), 1);
    IS(cuMemsetD8_v2(p, 0, 1025), 1);
    IS(cuMemsetD8_v2(p + 1024 - 8, 0, 9), 1);
    IS(cuMemsetD32_v2(p + 2, 0, 1), 1);
    IS(cuMemsetD2D8_v2(p, 512, 0, 512, 3), 1);
    OK(cuMemsetD2D8_v2(p, 512, 1, 512, 2));
    OK(cuMemcpyDtoD_v2(q, p, 1024));
    OK(cuMemFree_v2(q));
    IS(cuMemcpyHtoD_v2(q, h, 1), 1);
    IS(cuMemcpy(q, p, 1), 1);
    IS(cuMemsetD8_v2(q, 0, 1), 1);
    IS(cuMemFree_v2(q), 1);
    IS(cuMemFree_v2(p + 1), 1);
    IS(cuMemFree_v2((P)(uintptr_t)h), 1);
    OK(cuCtxSynchronize());
}

static sigjmp_buf back;
static void fault(int s) { siglongjmp(back, s); }
static void host_cannot_touch(void)
{
    begin();
    P p;
    OK(cuMemAlloc_v2(&p, 4096));
    signal(SIGSEGV, fault);
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)(uintptr_t)p = 1;
        failures++;
    }
}

static void capacity(void)
{
    /* SIMCUDA_MEMORY=256M: one MiB is the contexts'. */
    begin();
    size_t free0, total, free1;
    P p[300], q;
    int n = 0;
    OK(cuMemGetInfo_v2(&free0, &total));
    IS(total, 256 << 20);
    while (n < 300 && cuMemAlloc_v2(&p[n], 2 << 20) == 0) n++;
    YES(n >= 120 && n <= 127);
    q = 5;
    IS(cuMemAlloc_v2(&q, 3 << 20), 2);
    IS(q, 0);
    IS(simcuda_live_allocations(0), n);
    IS(simcuda_live_bytes(0), (uint64_t)n * (2 << 20));
    /* Pages, not places: what is free in pieces is enough. */
    for (int i = 0; i < n; i += 2) OK(cuMemFree_v2(p[i]));
    OK(cuMemAlloc_v2(&q, 64 << 20));
    OK(fill(q, 64 << 20, 3, NULL));
    IS(wrong(q, 64 << 20, 3, NULL), 0);
    OK(cuMemFree_v2(q));
    for (int i = 1; i < n; i += 2) OK(cuMemFree_v2(p[i]));
    OK(cuMemGetInfo_v2(&free1, &total));
    IS(free1, free0);
    IS(cuMemAlloc_v2(&q, SIZE_MAX), 2);
    IS(cuMemAlloc_v2(&q, SIZE_MAX - 600), 2);
}

static void host_memory(void)
{
    begin();
    void *h;
    char *own = malloc(10000);
    unsigned type = 0;
    P base;
    size_t n;
    OK(cuMemHostAlloc(&h, 5000, 0));
    OK(cuPointerGetAttribute(&type, 2, (P)(uintptr_t)h + 7));
    IS(type, 1);
    OK(cuMemGetAddressRange_v2(&base, &n, (P)(uintptr_t)h));
    IS(n, 5000);
    IS(cuMemFree_v2((P)(uintptr_t)h), 1);
    OK(cuMemFreeHost(h));
    IS(cuMemFreeHost(h), 1);
    OK(cuMemHostRegister_v2(own, 10000, 0));
    IS(cuMemHostRegister_v2(own, 10000, 0), 712);
    OK(fill((P)(uintptr_t)own, 10000, 4, NULL));
    IS(wrong((P)(uintptr_t)own, 10000, 4, NULL), 0);
    OK(cuMemHostUnregister(own));
    IS(cuMemHostUnregister(own), 713);
    OK(cuMemAlloc_v2(&base, 4096));
    IS(cuMemHostRegister_v2((void *)(uintptr_t)base, 4096, 0), 1);
    OK(cuMemFree_v2(base));
    IS(cuMemHostRegister_v2((void *)(uintptr_t)base, 4096, 0), 1);
    OK(cuMemAllocManaged(&base, 4096, 1));
    *(int *)(uintptr_t)base = 7;
    OK(fill(base, 4096, 1, NULL));
    OK(cuCtxSynchronize());
    YES(*(int *)(uintptr_t)base != 7);
    OK(cuMemFree_v2(base));
}

static void asynchronous(void)
{
    begin();
    P p, q;
    H s;
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAllocAsync(&p, 1 << 20, s));
    OK(late_fill(p, 1 << 20, 1, 150, s));
    OK(cuMemFreeAsync(p, s));
    IS(cuMemFreeAsync(p, s), 1);
    IS(cuMemFree_v2(p), 1);
    YES(simcuda_live_bytes(0) == 1 << 20);
    OK(cuStreamSynchronize(s));
    IS(simcuda_live_bytes(0), 0);
    OK(cuMemAllocAsync(&p, 1 << 20, s));
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&q, 4000));
    OK(cuMemFreeAsync(q, s));
    OK(cuStreamSynchronize(s));
    IS(cuMemFreeAsync(q, s), 1);
    IS(simcuda_live_allocations(0), 0);
}

static void mapped_memory(void)
{
    begin();
    const size_t m = 2 << 20;
    Prop prop = { 1, 0, 1, 0, NULL, 0 };
    Access access = { 1, 0, 3 };
    P va, base, twice;
    uint64_t h[2];
    size_t n;
    Ipc ipc;
    OK(cuMemAddressReserve(&va, 16ull << 40, 0, 0, 0));
    OK(cuMemAddressFree(va, 16ull << 40));
    OK(cuMemAddressReserve(&va, 8 * m, 0, 0, 0));
    OK(cuMemCreate(&h[0], 2 * m, &prop, 0));
    OK(cuMemCreate(&h[1], m, &prop, 0));
    IS(cuMemMap(va, m, 0, h[0], 0), 801);
    IS(cuMemMap(va, m, m, h[0], 0), 801);
    OK(cuMemMap(va, 2 * m, 0, h[0], 0));
    IS(cuMemMap(va + m, m, 0, h[1], 0), 1);
    OK(cuMemMap(va + 2 * m, m, 0, h[1], 0));
    IS(cuMemsetD8_v2(va, 1, 16), 1);
    OK(cuMemSetAccess(va, 3 * m, &access, 1));
    OK(fill(va, 3 * m, 9, NULL));
    IS(wrong(va, 3 * m, 9, NULL), 0);
    OK(cuMemsetD8_v2(va + 2 * m - 8, 1, 16));
    OK(cuMemGetAddressRange_v2(&base, &n, va + 2 * m + 5));
    IS(base, va + 2 * m);
    IS(n, m);
    IS(cuMemFree_v2(va), 1);
    IS(cuIpcGetMemHandle(&ipc, va), 1);
    /* One handle at two places. */
    twice = va + 4 * m;
    OK(cuMemMap(twice, 2 * m, 0, h[0], 0));
    OK(cuMemSetAccess(twice, 2 * m, &access, 1));
    OK(fill(va, 2 * m, 5, NULL));
    IS(wrong(twice, 2 * m, 5, NULL), 0);
    IS(cuMemUnmap(va, m), 1);
    OK(cuMemUnmap(va, 3 * m));
    OK(cuMemRelease(h[0]));
    OK(cuMemRelease(h[1]));
    IS(cuMemRelease(h[1]), 1);
    IS(wrong(twice, 2 * m, 5, NULL), 0);
    IS(cuMemAddressFree(va, 8 * m), 1);
    OK(cuMemUnmap(twice, 2 * m));
    OK(fill(twice, 64, 1, NULL));
    IS(cuCtxSynchronize(), 700);
    OK(cuMemAddressFree(va, 8 * m));
}

static void external_memory(void)
{
    begin();
    int fd = memfd_create("external", 0);
    IS(ftruncate(fd, 1 << 20), 0);
    struct { unsigned kind, pad; int fd; int rest[3]; uint64_t size; unsigned flags; } d = { 1, 0, fd, { 0 }, 1 << 20, 0 };
    struct { uint64_t offset, size; unsigned flags; } part = { 8192, 5000, 0 };
    H m;
    P p, base;
    size_t n;
    OK(cuImportExternalMemory(&m, &d));
    OK(cuExternalMemoryGetMappedBuffer(&p, m, &part));
    OK(cuMemGetAddressRange_v2(&base, &n, p + 5));
    IS(base, p);
    IS(n, 5000);
    OK(fill(p, 5000, 6, NULL));
    IS(wrong(p, 5000, 6, NULL), 0);
    IS(cuIpcCloseMemHandle(p), 1);
    OK(cuMemFree_v2(p));
    IS(cuMemFree_v2(p), 1);
    OK(cuDestroyExternalMemory(m));
}

static const Case cases[] = {
    { "external-memory", external_memory },
    { "zeros", zeros_and_alignment }, { "bounds", bounds }, { "host-cannot-touch", host_cannot_touch },
    { "capacity", capacity }, { "host-memory", host_memory }, { "asynchronous", asynchronous },
    { "mapped-memory", mapped_memory },
};
CASES(cases)
