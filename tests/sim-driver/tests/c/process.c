/* Contexts, names, forks, the end; and the environment, by the first argument. */
#include "simtest.h"

static void before_init(void)
{
    P p;
    int v, n;
    H c;
    OK(cuDriverGetVersion(&v));
    IS(cuMemAlloc_v2(&p, 1), 3);
    IS(cuMemFree_v2(0x10000), 3);
    IS(cuDeviceGetCount(&n), 3);
    IS(cuInit(1), 1);
    OK(cuInit(0));
    IS(cuMemAlloc_v2(&p, 1), 201);
    IS(cuMemFree_v2(0x7f0000000000), 1);
    OK(cuCtxGetCurrent(&c));
    IS(c, 0);
}

static void contexts(void)
{
    H primary = begin(), a, b, c;
    int active = 0, d = -1;
    uint64_t i, k;
    P p, q;
    OK(cuMemAlloc_v2(&p, 100));
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuCtxCreate_v4(&b, NULL, 0, 0));
    OK(cuCtxGetCurrent(&c));
    YES(c == b);
    OK(cuCtxGetId(a, &i));
    OK(cuCtxGetId(NULL, &k));
    YES(i != k);
    OK(cuMemAlloc_v2(&q, 100));
    OK(cuCtxPopCurrent_v2(&c));
    YES(c == b);
    OK(cuCtxDestroy_v2(b));
    IS(cuMemFree_v2(q), 1);
    OK(cuCtxGetCurrent(&c));
    YES(c == a);
    /* Memory is freed from any context. */
    OK(cuMemFree_v2(p));
    OK(cuCtxDestroy_v2(a));
    OK(cuCtxGetCurrent(&c));
    YES(c == primary);
    IS(cuCtxSetCurrent(a), 709);
    OK(cuCtxGetDevice(&d));
    IS(d, 0);
    OK(cuMemAlloc_v2(&p, 100));
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    YES(c == primary);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&p, 100));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, NULL, &active));
    IS(active, 0);
    IS(cuMemFree_v2(p), 1);
    IS(cuMemAlloc_v2(&p, 1), 709);
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuMemAlloc_v2(&p, 1));
    IS(simcuda_live_bytes(0), 1);
}

static pthread_key_t at_end;
static R freed = -1, allocated = -1;
static void thread_storage_ends(void *p)
{
    P q;
    freed = cuMemFree_v2((P)(uintptr_t)p);
    allocated = cuMemAlloc_v2(&q, 64);
}
static void *thread_with_storage(void *context)
{
    P p;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&p, 64));
    pthread_setspecific(at_end, (void *)(uintptr_t)p);
    return NULL;
}
static void *thread_without_context(void *p)
{
    P q = 5, block = (P)(uintptr_t)p;
    size_t n = 5;
    IS(cuMemAllocPitch_v2(&q, &n, 64, 2, 4), 201);
    YES(q == 0 && n == 0);
    IS(cuMemGetAddressRange_v2(&q, &n, block), 201);
    IS(cuPointerGetAttribute(&q, 3, block), 201);
    OK(cuPointerGetAttribute(&q, 11, block));
    YES(q == block);
    return NULL;
}

/* What a thread has before it has a context, and in the destructors of its storage. */
static void threads(void)
{
    H primary = begin();
    pthread_t t;
    P p;
    OK(cuMemAlloc_v2(&p, 64));
    YES(pthread_create(&t, NULL, thread_without_context, (void *)(uintptr_t)p) == 0);
    pthread_join(t, NULL);
    OK(cuMemFree_v2(p));
    YES(pthread_key_create(&at_end, thread_storage_ends) == 0);
    YES(pthread_create(&t, NULL, thread_with_storage, primary) == 0);
    pthread_join(t, NULL);
    OK(freed);
    IS(allocated, 201);
    IS(simcuda_live_bytes(0), 0);
}

static void forks(void)
{
    begin();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        P p;
        size_t a, b;
        failures = 0;
        IS(cuMemAlloc_v2(&p, 1), 3);
        IS(cuMemFree_v2(1), 3);
        IS(cuMemGetInfo_v2(&a, &b), 3);
        IS(cuInit(0), 3);
        exit(failures);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    IS(status, 0);
    OK(spin(1, NULL));
    OK(cuCtxSynchronize());
}

static int look(const char *name, int version, uint64_t flags, void **p)
{
    int status = -1;
    *p = &status;
    int e = cuGetProcAddress_v2(name, p, version, flags, &status);
    return e ? -e : status;
}

static void names(void)
{
    void *p, *q, *self = dlopen("libcuda.so.1", RTLD_NOW);
    OK(look("cuMemAlloc", 3020, 0, &p));
    YES(p == dlsym(self, "cuMemAlloc_v2"));
    OK(look("cuMemAlloc", 2000, 0, &q));
    YES(q == dlsym(self, "cuMemAlloc"));
    IS(look("cuNoSuchFunction", 12000, 0, &p), 1);
    YES(p == NULL);
    IS(look("cuMemAllocAsync", 10000, 0, &p), 2);
    IS(look("cuMemAlloc_v2", 12000, 0, &p), 1);
    IS(look("", 12000, 0, &p), 1);
    IS(look("cuMemAlloc", 99000, 0, &p), -1);
    IS(look("cuMemAlloc", 12000, 0x80, &p), -1);
    p = &q;
    IS(cuGetProcAddress("cuNoSuchFunction", &p, 12000, 0), 500);
    YES(p == &q);
    OK(look("cuMemcpyHtoDAsync", 12000, 2, &p));
    YES(p == dlsym(self, "cuMemcpyHtoDAsync_v2_ptsz"));
    OK(look("cuMemcpyHtoDAsync", 12000, 0, &p));
    YES(p == dlsym(self, "cuMemcpyHtoDAsync_v2"));
    OK(look("cuMemcpyHtoDAsync", 12000, 3, &p));
    YES(p == dlsym(self, "cuMemcpyHtoDAsync_v2_ptsz"));
    IS(look("cuMemcpyHtoDAsync", 4000, 2, &p), 2);
    OK(look("cuMemcpyHtoDAsync", 4000, 1, &p));
    OK(look("cuMemAlloc", -1, 0, &p));
    YES(p == dlsym(self, "cuMemAlloc_v2"));
    OK(look("cuMemAlloc", 12000, 2, &p));
    OK(look("cuCtxSynchronize", 12000, 0, &p));
    OK(look("cuCtxSynchronize", 13000, 0, &q));
    YES(p != q);
    OK(look("cuGetProcAddress", 12000, 0, &p));
    YES(p == dlsym(self, "cuGetProcAddress_v2"));
    OK(look("cuGetProcAddress", 11030, 0, &p));
    YES(p == dlsym(self, "cuGetProcAddress"));
    const void *table = NULL;
    IS(cuGetExportTable(&table, "sixteen bytes..."), 801);
    IS(look("cuCtxRecordEvent", 12050, 0, &p), 0);
}

/* SIMCUDA_DRIVER_VERSION=12000 */
static void old_driver(void)
{
    int v = 0;
    void *p;
    OK(cuDriverGetVersion(&v));
    IS(v, 12000);
    IS(look("cuCtxRecordEvent", 12000, 0, &p), 1);
    IS(look("cuCtxRecordEvent", 12050, 0, &p), -1);
    OK(look("cuMemAlloc", 12000, 0, &p));
    /* The linker finds the symbol all the same; the function is not there. */
    H c = begin();
    IS(cuCtxRecordEvent(c, c), 801);
}

/* SIMCUDA_FAIL=cuMemAlloc_v2:2:2,cuMemFree*:3+:999,cuEventCreate:all:1:caller=shim */
static void injected(void)
{
    begin();
    P p[3];
    H e;
    OK(cuMemAlloc_v2(&p[0], 64));
    IS(cuMemAlloc_v2(&p[1], 64), 2);
    OK(cuMemAlloc_v2(&p[1], 64));
    OK(cuMemFree_v2(p[0]));
    OK(cuMemFree_v2(p[1]));
    OK(cuMemAlloc_v2(&p[2], 64));
    IS(cuMemFree_v2(p[2]), 999);
    IS(cuMemFree_v2(p[2]), 999);
    IS(cuMemFree_v2(p[2]), 999);
    IS(simcuda_live_bytes(0), 64);
    OK(cuEventCreate(&e, 0));
}

/* SIMCUDA_FAIL=cuEventCreate:all:999:caller=shim, with SHIM a library whose name begins with libcushion */
static void only_the_shim(void)
{
    begin();
    H e;
    R (*shim_event_create)(H *);
    void *shim = dlopen(getenv("SHIM"), RTLD_NOW);
    YES(shim != NULL);
    if (!shim) return;
    *(void **)&shim_event_create = dlsym(shim, "shim_event_create");
    OK(cuEventCreate(&e, 0));
    IS(shim_event_create(&e), 999);
    OK(cuEventCreate(&e, 0));
}

/* SIMCUDA_FAIL=cuMemAlloc_v2:random:0.2:2 with SIMCUDA_SEED=7 */
static void at_random(void)
{
    begin();
    int failed = 0;
    for (int i = 0; i < 500; i++) {
        P p;
        if (cuMemAlloc_v2(&p, 64)) failed++;
        else OK(cuMemFree_v2(p));
    }
    YES(failed > 60 && failed < 140);
}

/* SIMCUDA_DEVICES=2 */
static void two_devices(void)
{
    H c[2];
    int n = 0;
    P p, q;
    unsigned ordinal = 9;
    size_t a, b, rest;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    IS(n, 2);
    OK(cuDevicePrimaryCtxRetain(&c[0], 0));
    OK(cuDevicePrimaryCtxRetain(&c[1], 1));
    OK(cuCtxSetCurrent(c[1]));
    OK(cuMemGetInfo_v2(&a, &rest));
    OK(cuMemAlloc_v2(&p, 8 << 20));
    OK(cuCtxSetCurrent(c[0]));
    OK(cuMemAlloc_v2(&q, 1000));
    OK(cuPointerGetAttribute(&ordinal, 9, p));
    IS(ordinal, 1);
    OK(cuCtxSetCurrent(c[1]));
    OK(cuMemGetInfo_v2(&b, &rest));
    IS(a - b, 8 << 20);
    OK(cuCtxEnablePeerAccess(c[0], 0));
    IS(cuCtxEnablePeerAccess(c[0], 0), 704);
    OK(cuMemcpyDtoD_v2(p, q, 1000));
    OK(cuModuleLoadData(&the_module, "image"));
    OK(fill(q, 1000, 1, NULL));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(c[0]));
    OK(cuModuleLoadData(&the_module, "image"));
    OK(fill(p, 1000, 1, NULL));
    IS(cuCtxSynchronize(), 700);
    IS(simcuda_live_bytes(0), 1000);
    IS(simcuda_live_bytes(1), 8 << 20);
}

/* SIMCUDA_DEVICES=0 */
static void no_device(void) { IS(cuInit(0), 100); }

static const Case cases[] = {
    { "before-init", before_init }, { "contexts", contexts }, { "threads", threads }, { "forks", forks }, { "names", names },
    { "old-driver", old_driver }, { "injected", injected }, { "at-random", at_random }, { "only-the-shim", only_the_shim },
    { "two-devices", two_devices }, { "no-device", no_device },
};
CASES(cases)
