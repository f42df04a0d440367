/* Group 17, driver API: corners. Calls from host functions of streams, captures that are shielded, abandoned or cut short, contexts made and ended by the
 * functions of older versions, twins for the thread's own stream, and what is destroyed while it is busy. */
#include "drv.h"
#include "said.h"

static CUdevice device;
static CUcontext primary;
static void start(void) { primary = drv_primary(&device); }
static int code(CUresult e) { return (int)e; }

/* ---------------------------------------------------------------------------------------------------- callbacks */

static CUdeviceptr live, dead;
static CUstream side;
static int called;
/* Natively no call of CUDA is allowed here. */
static void CUDA_CB in_host_function(void *unused)
{
    CUdeviceptr q = 5;
    size_t a = 0, b = 0;
    unsigned long long v = 0;
    char host[8];
    CUcontext now = NULL;
    (void)unused;
    say("alloc", cuMemAlloc_v2(&q, 70000));
    say("alloc-zero", cuMemAlloc_v2(&q, 0));
    say("pitch", cuMemAllocPitch_v2(&q, &a, 100, 3, 4));
    say("free", cuMemFree_v2(live));
    say("free-null", cuMemFree_v2(0));
    say("free-freed", cuMemFree_v2(dead));
    say("free-async", cuMemFreeAsync(live, side));
    say("info", cuMemGetInfo_v2(&a, &b));
    say("range", cuMemGetAddressRange_v2(&q, &a, live));
    say("range-freed", cuMemGetAddressRange_v2(&q, &a, dead));
    say("type", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, live));
    say("id", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_BUFFER_ID, live));
    say("to-host-freed", cuMemcpyDtoH_v2(host, dead, 8));
    say("set-freed", cuMemsetD8_v2(dead, 1, 8));
    say("get-current", cuCtxGetCurrent(&now));
    __atomic_store_n(&called, 1, __ATOMIC_RELEASE);
}
static void CUDA_CB in_callback(CUstream s, CUresult e, void *data)
{
    (void)s, (void)e;
    in_host_function(data);
}
static void hangs(int signal)
{
    static const char text[] = "SKIP drv-host-functions: a call in a host function does not return\n";
    (void)signal;
    if (write(1, text, sizeof text - 1) < 0) _exit(1);
    _exit(77);
}
static void host_functions(void)
{
    signal(SIGALRM, hangs);
    alarm(15);
    start();
    CKD(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CKD(cuMemAlloc_v2(&live, 70000));
    CKD(cuMemAlloc_v2(&dead, 70000));
    CKD(cuMemFree_v2(dead));
    CKD(cuLaunchHostFunc(side, in_host_function, NULL));
    CKD(cuStreamSynchronize(side));
    EXPECT(__atomic_load_n(&called, __ATOMIC_ACQUIRE), "the function was not called");
    flush("host_function");
    CKD(cuStreamAddCallback(side, in_callback, NULL, 0));
    CKD(cuStreamSynchronize(side));
    flush("callback");
    RECORD("free_after=%d", code(cuMemFree_v2(live)));
    CKD(cuMemAlloc_v2(&live, 70000));
    CKD(cuMemFree_v2(live));
}

/* ----------------------------------------------------------------------------------------------------- captures */

static void shielded(CUstreamCaptureMode mode, CUstreamCaptureMode shield)
{
    CUstream s;
    CUgraph graph = NULL;
    CUdeviceptr p = 0, q, r = 0;
    CKD(cuMemAlloc_v2(&q, 70000));
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuStreamBeginCapture_v2(s, mode));
    CUstreamCaptureMode was = shield;
    CKD(cuThreadExchangeStreamCaptureMode(&was));
    say("alloc", cuMemAlloc_v2(&p, 70000));
    say("free", cuMemFree_v2(q));
    say("free-again", cuMemFree_v2(q));
    say("alloc-large", cuMemAlloc_v2(&r, MiB(9)));
    say("free-new", p ? cuMemFree_v2(p) : CUDA_ERROR_UNKNOWN);
    CKD(cuThreadExchangeStreamCaptureMode(&was));
    say("end", cuStreamEndCapture(s, &graph));
    char key[64];
    snprintf(key, sizeof key, "mode_%d_shield_%d", (int)mode, (int)shield);
    flush(key);
    if (graph) CKD(cuGraphDestroy(graph));
    if (r) CKD(cuMemFree_v2(r));
    CKD(cuStreamDestroy_v2(s));
}
static void shielded_captures(void)
{
    start();
    for (int mode = 0; mode < 3; mode++)
        for (int shield = 0; shield < 3; shield++) shielded((CUstreamCaptureMode)mode, (CUstreamCaptureMode)shield);
}

static CUstream abandoned;
static CUstreamCaptureMode abandoned_mode;
static void *begins_and_ends(void *unused)
{
    (void)unused;
    CKD(cuCtxSetCurrent(primary));
    CKD(cuStreamBeginCapture_v2(abandoned, abandoned_mode));
    return NULL;
}
static void abandoned_captures(void)
{
    start();
    for (int mode = 0; mode < 3; mode++) {
        pthread_t t;
        CUdeviceptr p, q = 0;
        CUgraph graph = NULL;
        CKD(cuMemAlloc_v2(&p, 70000));
        CKD(cuStreamCreate(&abandoned, CU_STREAM_NON_BLOCKING));
        abandoned_mode = (CUstreamCaptureMode)mode;
        REQUIRE(pthread_create(&t, NULL, begins_and_ends, NULL) == 0, "no thread");
        pthread_join(t, NULL);
        CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
        say("is-capturing", cuStreamIsCapturing(abandoned, &status));
        say("status", (CUresult)status);
        say("alloc", cuMemAlloc_v2(&q, 70000));
        say("free", cuMemFree_v2(p));
        say("end", cuStreamEndCapture(abandoned, &graph));
        say("destroy", cuStreamDestroy_v2(abandoned));
        char key[32];
        snprintf(key, sizeof key, "mode_%d", mode);
        say("alloc-later", cuMemAlloc_v2(&q, 70000));
        say("free-later", cuMemFree_v2(q));
        flush(key);
        cuMemFree_v2(p);
    }
}

/* A thread that has no context frees while a stream captures. */
static void *frees_alone(void *p)
{
    say("free", cuMemFree_v2(*(CUdeviceptr *)p));
    say("free-again", cuMemFree_v2(*(CUdeviceptr *)p));
    return NULL;
}
static void thread_without_context_in_capture(void)
{
    start();
    for (int mode = 0; mode < 3; mode++) {
        CUstream s;
        pthread_t t;
        CUdeviceptr p;
        CUgraph graph = NULL;
        CKD(cuMemAlloc_v2(&p, 70000));
        CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        CKD(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)mode));
        REQUIRE(pthread_create(&t, NULL, frees_alone, &p) == 0, "no thread");
        pthread_join(t, NULL);
        say("end", cuStreamEndCapture(s, &graph));
        say("free-here", cuMemFree_v2(p));
        char key[32];
        snprintf(key, sizeof key, "mode_%d", mode);
        flush(key);
        if (graph) CKD(cuGraphDestroy(graph));
        CKD(cuStreamDestroy_v2(s));
    }
}

static void cut_short_captures(void)
{
    CUstream s;
    CUdeviceptr p, q = 0;
    CUcontext other;
    start();
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuMemAlloc_v2(&p, 70000));
    CKD(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    RECORD("destroy_capturing_stream=%d", code(cuStreamDestroy_v2(s)));
    say("alloc", cuMemAlloc_v2(&q, 70000));
    say("free", cuMemFree_v2(p));
    flush("after_stream");
    CUresult e = cuCtxCreate_v4(&other, NULL, 0, device);
    DRC_REC("create_context", e);
    if (e) return;
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuMemAlloc_v2(&p, 70000));
    CKD(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    RECORD("destroy_context_that_captures=%d", code(cuCtxDestroy_v2(other)));
    CKD(cuCtxSetCurrent(primary));
    say("alloc", cuMemAlloc_v2(&q, 70000));
    say("free", cuMemFree_v2(q));
    say("free-gone", cuMemFree_v2(p));
    flush("after_context");
}

/* ----------------------------------------------------------------------------------------------------- contexts */

#define FIND(name, type) __typeof__(type) name##_found = NULL; *(void **)&name##_found = dlsym(RTLD_DEFAULT, #name)

static void old_contexts(void)
{
    CUcontext c[3], popped;
    CUdeviceptr p[3], q;
    start();
    FIND(cuCtxCreate, CUresult (*)(CUcontext *, unsigned, CUdevice));
    FIND(cuCtxCreate_v2, CUresult (*)(CUcontext *, unsigned, CUdevice));
    FIND(cuCtxCreate_v3, CUresult (*)(CUcontext *, void *, int, unsigned, CUdevice));
    FIND(cuCtxDestroy, CUresult (*)(CUcontext));
    FIND(cuCtxAttach, CUresult (*)(CUcontext *, unsigned));
    FIND(cuCtxDetach, CUresult (*)(CUcontext));
    FIND(cuCtxPopCurrent, CUresult (*)(CUcontext *));
    FIND(cuDevicePrimaryCtxReset, CUresult (*)(CUdevice));
    FIND(cuDevicePrimaryCtxRelease, CUresult (*)(CUdevice));
    if (!cuCtxCreate_v2_found || !cuCtxCreate_v3_found || !cuCtxDestroy_found || !cuCtxDetach_found || !cuCtxAttach_found || !cuCtxPopCurrent_found)
        SKIP_CASE("the driver has not all of the old functions");
    CKD(cuCtxCreate_v2_found(&c[0], 0, device));
    CKD(cuMemAlloc_v2(&p[0], 70000));
    CKD(cuCtxCreate_v3_found(&c[1], NULL, 0, 0, device));
    CKD(cuMemAlloc_v2(&p[1], 70000));
    CKD(cuMemAlloc_v2(&q, MiB(5)));
    CKD(cuMemFree_v2(q));
    RECORD("destroy_v1=%d", code(cuCtxDestroy_found(c[1])));
    RECORD("free_of_destroyed=%d", code(cuMemFree_v2(p[1])));
    CKD(cuCtxSetCurrent(c[0]));
    CUcontext attached = NULL;
    CUresult e = cuCtxAttach_found(&attached, 0);
    RECORD("attach=%d %s", code(e), attached == c[0] ? "the current one" : "another");
    CKD(cuMemAlloc_v2(&p[2], 70000));
    if (!e) {
        RECORD("detach=%d", code(cuCtxDetach_found(c[0])));
        RECORD("free_when_detached_once=%d", code(cuMemFree_v2(p[2])));
    }
    RECORD("detach_last=%d", code(cuCtxDetach_found(c[0])));
    CKD(cuCtxSetCurrent(primary));
    RECORD("free_of_detached=%d", code(cuMemFree_v2(p[0])));
    if (cuCtxCreate_found) {
        e = cuCtxCreate_found(&c[2], 0, device);
        RECORD("create_v1=%d", code(e));
        if (!e) {
            say("alloc", cuMemAlloc_v2(&p[2], 70000));
            say("pop", cuCtxPopCurrent_found(&popped));
            say("destroy", cuCtxDestroy_v2(c[2]));
            say("free", cuMemFree_v2(p[2]));
            flush("v1");
        }
    }
    CKD(cuCtxSetCurrent(primary));
    CKD(cuMemAlloc_v2(&p[0], 70000));
    if (cuDevicePrimaryCtxReset_found) {
        RECORD("reset_v1=%d", code(cuDevicePrimaryCtxReset_found(device)));
        CKD(cuDevicePrimaryCtxRetain(&primary, device));
        CKD(cuCtxSetCurrent(primary));
        RECORD("free_of_reset=%d", code(cuMemFree_v2(p[0])));
        CKD(cuMemAlloc_v2(&p[0], 70000));
    }
    if (cuDevicePrimaryCtxRelease_found) {
        for (int i = 0; i < 4 && !cuDevicePrimaryCtxRelease_found(device); i++) { }
        CKD(cuCtxSetCurrent(NULL));
        CKD(cuDevicePrimaryCtxRetain(&primary, device));
        CKD(cuCtxSetCurrent(primary));
        RECORD("free_of_released=%d", code(cuMemFree_v2(p[0])));
    }
    unsigned char byte = 9;
    CKD(cuMemAlloc_v2(&q, MiB(5)));
    CKD(cuMemcpyDtoH_v2(&byte, q, 1));
    EXPECT(byte == 0, "memory of a new context: expected 0, got %u", byte);
    CKD(cuMemFree_v2(q));
}

/* ------------------------------------------------------------------------------------------------- late writers */

enum { BLOCK = 300000 };

/* Blocks of the same size, filled from `by`, and what is in them when everything has ended. */
static void claim(drv_mod *m, CUstream by, const char *what)
{
    CUdeviceptr q[4];
    for (unsigned i = 0; i < 4; i++) {
        CKD(cuMemAlloc_v2(&q[i], BLOCK));
        drv_fill(m, q[i], BLOCK, 90 + i, by);
    }
    CKD(cuCtxSynchronize());
    for (unsigned i = 0; i < 4; i++) drv_verify(m, q[i], BLOCK, 90 + i, by, what);
    for (unsigned i = 0; i < 4; i++) CKD(cuMemFree_v2(q[i]));
}

/* The per-thread twins by name: no stream is ever created. */
static void own_stream_twins(void)
{
    drv_mod m;
    CUdeviceptr p, from;
    unsigned long long n = BLOCK, ns = 60000000;
    unsigned seed = 0xbad;
    start();
    drv_module(&m);
    FIND(cuLaunchKernel_ptsz, CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **));
    FIND(cuMemsetD8Async_ptsz, CUresult (*)(CUdeviceptr, unsigned char, size_t, CUstream));
    FIND(cuMemcpyDtoDAsync_v2_ptsz, CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream));
    FIND(cuMemFreeAsync_ptsz, CUresult (*)(CUdeviceptr, CUstream));
    if (!cuLaunchKernel_ptsz_found || !cuMemsetD8Async_ptsz_found || !cuMemcpyDtoDAsync_v2_ptsz_found || !cuMemFreeAsync_ptsz_found)
        SKIP_CASE("the driver has no twins");
    CUstream free_of_order;
    void *spin[] = { &ns }, *fill[] = { &p, &n, &seed, &ns };
    CKD(cuMemAlloc_v2(&from, BLOCK));
    CKD(cuMemsetD8_v2(from, 0xbb, BLOCK));
    for (int round = 0; round < 4; round++) {
        CKD(cuMemAlloc_v2(&p, BLOCK));
        if (round == 1) CKD(cuStreamCreate(&free_of_order, CU_STREAM_NON_BLOCKING));
        CKD(cuCtxSynchronize());
        if (round == 0) {
            CKD(cuLaunchKernel_ptsz_found(m.spin_fill, 24, 1, 1, 256, 1, 1, 0, NULL, fill, NULL));
        } else {
            CKD(cuLaunchKernel_ptsz_found(m.spin, 1, 1, 1, 32, 1, 1, 0, NULL, spin, NULL));
            if (round == 1) CKD(cuMemsetD8Async_ptsz_found(p, 0xaa, BLOCK, NULL));
            if (round == 2) CKD(cuMemcpyDtoDAsync_v2_ptsz_found(p, from, BLOCK, NULL));
            if (round == 3) CKD(cuLaunchKernel_ptsz_found(m.spin_fill, 24, 1, 1, 256, 1, 1, 0, NULL, fill, NULL));
        }
        if (round == 3) CKD(cuMemFreeAsync_ptsz_found(p, NULL));
        else CKD(cuMemFree_v2(p));
        claim(&m, round ? free_of_order : CU_STREAM_LEGACY, "after a twin's late write");
    }
    CKD(cuMemFree_v2(from));
}

static void destroyed_while_busy(void)
{
    drv_mod m;
    CUdeviceptr p;
    CUstream a, b, waiting;
    CUevent event;
    start();
    drv_module(&m);
    CKD(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    claim(&m, b, "warm up");
    for (int round = 0; round < 3; round++) {
        CKD(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
        CKD(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
        CKD(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CKD(cuMemAlloc_v2(&p, BLOCK));
        drv_late_fill(&m, p, BLOCK, 0xbad, 50, a);
        if (round) {
            /* the late writer is behind an event of another stream, which goes away */
            CKD(cuEventRecord(event, a));
            CKD(cuStreamWaitEvent(waiting, event, 0));
            drv_late_fill(&m, p, BLOCK, 0xbad, 10, waiting);
        }
        CKD(cuEventDestroy_v2(event));
        CKD(cuStreamDestroy_v2(a));
        if (round == 2) CKD(cuStreamDestroy_v2(waiting));
        CKD(cuMemFree_v2(p));
        claim(&m, b, "after its writer's stream was destroyed");
        if (round != 2) CKD(cuStreamDestroy_v2(waiting));
    }
}

/* Written by a kernel of another context of the same device. */
static void late_in_other_context(void)
{
    drv_mod m, n;
    CUcontext other, popped;
    CUstream theirs, mine;
    CUdeviceptr p;
    start();
    drv_module(&m);
    CKD(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    CKD(cuCtxCreate_v4(&other, NULL, 0, device));
    drv_module(&n);
    CKD(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 3; round++) {
        /* a block of theirs, freed from here, and claimed there */
        CKD(cuMemAlloc_v2(&p, BLOCK));
        drv_late_fill(&n, p, BLOCK, 0xbad, 40, theirs);
        CKD(cuCtxPopCurrent_v2(&popped));
        CKD(cuMemFree_v2(p));
        claim(&m, mine, "here");
        CKD(cuCtxPushCurrent_v2(other));
        claim(&n, CU_STREAM_LEGACY, "there");
        claim(&n, CU_STREAM_PER_THREAD, "there, own stream");
    }
    CKD(cuCtxDestroy_v2(other));
}

static const conf_case cases[] = {
    { "drv-host-functions", host_functions }, { "drv-shielded-captures", shielded_captures },
    { "drv-abandoned-captures", abandoned_captures }, { "drv-thread-without-context-in-capture", thread_without_context_in_capture }, { "drv-cut-short-captures", cut_short_captures },
    { "drv-old-contexts", old_contexts }, { "drv-own-stream-twins", own_stream_twins },
    { "drv-destroyed-while-busy", destroyed_while_busy }, { "drv-late-in-other-context", late_in_other_context },
};
CONF_MAIN(cases)
