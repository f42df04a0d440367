/* Group 16, driver API: allocations, frees, copies and queries in every state that a thread, a context or a capture can be in. What the driver answers is
 * recorded, and compared; little of it is documented. */
#include "drv.h"
#include "said.h"

static CUdevice device;
static CUcontext primary;

static void start(void) { primary = drv_primary(&device); }
static int code(CUresult e) { return (int)e; }

#define SAY(what, call) say(what, call)

/* Every question about an address. */
static void ask(const char *key, CUdeviceptr p)
{
    CUdeviceptr base = 1;
    size_t size = 1;
    unsigned long long v[4] = { 0 };
    char host[8];
    SAY("range", cuMemGetAddressRange_v2(&base, &size, p));
    SAY("type", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    SAY("context", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    SAY("device-pointer", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
    SAY("host-pointer", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
    SAY("id", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    SAY("size", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    SAY("mapped", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_MAPPED, p));
    SAY("ordinal", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    SAY("sync", cuPointerGetAttribute(v, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    SAY("to-host", cuMemcpyDtoH_v2(host, p, 4));
    SAY("from-host", cuMemcpyHtoD_v2(p, host, 4));
    SAY("set", cuMemsetD8_v2(p, 3, 4));
    flush(key);
}

/* ---------------------------------------------------------------------------------------------------- contexts */

static void no_current_context(void)
{
    CUdeviceptr p, q = 5, small;
    size_t a, b, pitch = 5;
    start();
    CKD(cuMemAlloc_v2(&p, MiB(3)));
    CKD(cuMemAlloc_v2(&small, 1000));
    CKD(cuCtxSetCurrent(NULL));
    ask("live", p);
    ask("live_small", small + 999);
    SAY("alloc", cuMemAlloc_v2(&q, 100));
    SAY("pitch", cuMemAllocPitch_v2(&q, &pitch, 100, 3, 4));
    SAY("managed", cuMemAllocManaged(&q, 100, CU_MEM_ATTACH_GLOBAL));
    SAY("async", cuMemAllocAsync(&q, 100, NULL));
    SAY("info", cuMemGetInfo_v2(&a, &b));
    SAY("free-null", cuMemFree_v2(0));
    SAY("free-interior", cuMemFree_v2(p + 512));
    SAY("free-garbage", cuMemFree_v2(0x4000));
    SAY("synchronize", cuCtxSynchronize());
    flush("calls");
    RECORD("untouched=%d %d", q == 5, pitch == 5);
    CUresult e = cuMemFree_v2(small), f = cuMemFree_v2(small);
    RECORD("free=%d again=%d", code(e), code(f));
    e = cuMemFreeAsync(p, NULL);
    RECORD("free_async=%d", code(e));
    CKD(cuCtxSetCurrent(primary));
    f = cuMemFree_v2(p);
    RECORD("free_later=%d", code(f));
}

static void second_context(void)
{
    CUdeviceptr a, b, big, q;
    CUcontext other, popped;
    drv_mod m;
    start();
    drv_module(&m);
    CKD(cuMemAlloc_v2(&a, 70000));
    CKD(cuCtxCreate_v4(&other, NULL, 0, device));
    CKD(cuMemAlloc_v2(&b, 70000));
    CKD(cuMemAlloc_v2(&big, MiB(5)));
    ask("of_primary", a);
    CUcontext c = NULL;
    CKD(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    EXPECT(c == primary, "the block's context is not the primary one");
    CKD(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, b));
    EXPECT(c == other, "the block's context is not the second one");
    /* freed while the other context is current, both ways */
    RECORD("free_of_primary=%d", code(cuMemFree_v2(a)));
    CKD(cuCtxPopCurrent_v2(&popped));
    EXPECT(popped == other, "popped another context");
    CKD(cuCtxSetCurrent(primary));
    ask("of_other", b);
    RECORD("free_of_other=%d", code(cuMemFree_v2(b)));
    RECORD("free_of_other_again=%d", code(cuMemFree_v2(b)));
    CKD(cuMemAlloc_v2(&q, 70000));
    CKD(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, q));
    EXPECT(c == primary, "a block of the other context was given out in the primary one");
    drv_fill(&m, q, 70000, 3, NULL);
    drv_verify(&m, q, 70000, 3, NULL, "after a free of another context's block");
    CKD(cuMemFree_v2(q));
    CKD(cuCtxDestroy_v2(other));
    ask("destroyed", big);
    RECORD("free_destroyed=%d", code(cuMemFree_v2(big)));
    RECORD("free_async_destroyed=%d", code(cuMemFreeAsync(big, NULL)));
    for (int i = 0; i < 3; i++) {
        CUdeviceptr r;
        CKD(cuCtxCreate_v4(&other, NULL, 0, device));
        CKD(cuMemAlloc_v2(&r, MiB(5)));
        unsigned char first = 9;
        CKD(cuMemcpyDtoH_v2(&first, r, 1));
        RECORD("first_byte=%u", first);
        CKD(cuMemsetD8_v2(r, 0xaa, MiB(5)));
        if (i == 1) CKD(cuMemFree_v2(r));
        CKD(cuCtxDestroy_v2(other));
    }
    CUcontext now = (CUcontext)5;
    DRC_REC("get_current_at_end", cuCtxGetCurrent(&now));
    RECORD("current_at_end=%s", now == primary ? "primary" : now ? "other" : "none");
}

static void destroyed_while_current(void)
{
    CUdeviceptr p, q = 5;
    CUcontext other, now = (CUcontext)5;
    size_t a, b;
    start();
    CKD(cuCtxSetCurrent(NULL));
    CKD(cuCtxCreate_v4(&other, NULL, 0, device));
    CKD(cuMemAlloc_v2(&p, 4096));
    CKD(cuCtxDestroy_v2(other));
    RECORD("get_current=%d %s", code(cuCtxGetCurrent(&now)), now ? "some" : "none");
    SAY("alloc", cuMemAlloc_v2(&q, 100));
    SAY("free", cuMemFree_v2(p));
    SAY("info", cuMemGetInfo_v2(&a, &b));
    SAY("free-null", cuMemFree_v2(0));
    flush("calls");
    CKD(cuCtxSetCurrent(primary));
    CKD(cuMemAlloc_v2(&q, 100));
    CKD(cuMemFree_v2(q));
}

static void *in_thread(void *argument)
{
    CUdeviceptr p = *(CUdeviceptr *)argument, q = 5;
    SAY("alloc", cuMemAlloc_v2(&q, 100));
    SAY("free-null", cuMemFree_v2(0));
    SAY("free-interior", cuMemFree_v2(p + 1));
    flush("thread_without_context");
    ask("thread_asks", p);
    RECORD("thread_frees=%d", code(cuMemFree_v2(p)));
    return NULL;
}
static void thread_without_context(void)
{
    CUdeviceptr p;
    pthread_t t;
    start();
    CKD(cuMemAlloc_v2(&p, 4096));
    REQUIRE(pthread_create(&t, NULL, in_thread, &p) == 0, "no thread");
    pthread_join(t, NULL);
    RECORD("free_here=%d", code(cuMemFree_v2(p)));
}

static void primary_counts(void)
{
    CUdeviceptr p, q;
    CUcontext c;
    unsigned flags = 0;
    int active = -1;
    start();
    CKD(cuDevicePrimaryCtxRetain(&c, device));
    EXPECT(c == primary, "another primary context");
    CKD(cuMemAlloc_v2(&p, 4096));
    CKD(cuMemAlloc_v2(&q, MiB(4)));
    CKD(cuMemsetD8_v2(q, 0x77, MiB(4)));
    CKD(cuDevicePrimaryCtxRelease_v2(device));
    ask("retained_once", p);
    RECORD("free=%d", code(cuMemFree_v2(p)));
    CKD(cuDevicePrimaryCtxGetState(device, &flags, &active));
    RECORD("active=%d", active);
    CKD(cuDevicePrimaryCtxRelease_v2(device));
    CKD(cuDevicePrimaryCtxGetState(device, &flags, &active));
    RECORD("active_released=%d", active);
    RECORD("release_too_often=%d", code(cuDevicePrimaryCtxRelease_v2(device)));
    CKD(cuCtxSetCurrent(NULL));
    CKD(cuDevicePrimaryCtxRetain(&c, device));
    CKD(cuCtxSetCurrent(c));
    ask("of_life_before", q);
    RECORD("free_of_life_before=%d", code(cuMemFree_v2(q)));
    CKD(cuMemAlloc_v2(&p, MiB(4)));
    unsigned char last = 9;
    CKD(cuMemcpyDtoH_v2(&last, p + MiB(4) - 1, 1));
    RECORD("last_byte=%u", last);
    CKD(cuMemFree_v2(p));
    RECORD("reset=%d", code(cuDevicePrimaryCtxReset_v2(device)));
}

/* -------------------------------------------------------------------------------------------------- allocation */

static void pitch_arguments(void)
{
    CUdeviceptr p = 5;
    size_t pitch = 5, base_size;
    CUdeviceptr base;
    start();
    static const unsigned elements[] = { 0, 1, 2, 3, 4, 8, 12, 16, 32 };
    for (unsigned i = 0; i < CONF_N(elements); i++) {
        p = 5, pitch = 5;
        CUresult e = cuMemAllocPitch_v2(&p, &pitch, 1000, 5, elements[i]);
        RECORD("element_%u=%d %s pitch=%zu", elements[i], code(e), p == 5 ? "untouched" : p ? "set" : "0", pitch);
        if (!e) {
            CKD(cuMemGetAddressRange_v2(&base, &base_size, p + 4 * pitch));
            RECORD("element_%u_range=%zu", elements[i], base_size);
            RECORD("element_%u_past=%d", elements[i], code(cuMemsetD8_v2(p, 1, base_size + 1)));
            CKD(cuMemFree_v2(p));
        }
    }
    p = 5, pitch = 5;
    SAY("no-width", cuMemAllocPitch_v2(&p, &pitch, 0, 5, 4));
    SAY("no-height", cuMemAllocPitch_v2(&p, &pitch, 5, 0, 4));
    SAY("no-pointer", cuMemAllocPitch_v2(NULL, &pitch, 5, 5, 4));
    SAY("no-pitch", cuMemAllocPitch_v2(&p, NULL, 5, 5, 4));
    SAY("huge", cuMemAllocPitch_v2(&p, &pitch, (size_t)1 << 40, 1 << 20, 4));
    SAY("huge-width", cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX - 100, 1, 4));
    SAY("overflow", cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX / 2, 4, 4));
    flush("wrong");
    RECORD("after=%s %zu", p == 5 ? "untouched" : p ? "set" : "0", pitch);
    p = 5, pitch = 5;
    CUresult e = cuMemAllocPitch_v2(&p, &pitch, (size_t)1 << 42, 8, 4);
    RECORD("out_of_memory=%d %s %s", code(e), p == 5 ? "untouched" : p ? "set" : "0", pitch == 5 ? "untouched" : "set");
}

static void free_twice_each_way(void)
{
    static const size_t sizes[] = { 1, 1000, 70000, MiB(1), MiB(2), MiB(3), MiB(40) };
    CUdeviceptr p;
    start();
    for (unsigned i = 0; i < CONF_N(sizes); i++)
        for (int order = 0; order < 4; order++) {
            CKD(cuMemAlloc_v2(&p, sizes[i]));
            CUresult e = order & 1 ? cuMemFreeAsync(p, NULL) : cuMemFree_v2(p);
            CKD(cuStreamSynchronize(NULL));
            CUresult f = order & 2 ? cuMemFreeAsync(p, NULL) : cuMemFree_v2(p);
            RECORD("%zu_order_%d=%d %d", sizes[i], order, code(e), code(f));
        }
}

static void async_arguments(void)
{
    CUdeviceptr p, q;
    CUstream s;
    start();
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuMemAlloc_v2(&p, MiB(3)));
    SAY("null", cuMemFreeAsync(0, s));
    SAY("interior", cuMemFreeAsync(p + 512, s));
    SAY("garbage", cuMemFreeAsync(0x4000, s));
    SAY("behind", cuMemFreeAsync(p + MiB(3), s));
    SAY("per-thread", cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
    flush("free_async");
    CKD(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    ask("freed", p);
    CKD(cuMemAllocAsync(&q, MiB(3), s));
    CKD(cuStreamSynchronize(s));
    ask("async", q);
    SAY("interior", cuMemFree_v2(q + 512));
    SAY("behind", cuMemFree_v2(q + MiB(3)));
    SAY("free", cuMemFree_v2(q));
    SAY("async", cuMemFreeAsync(q, s));
    flush("free_of_async");
}

/* Of host memory, managed memory, a module's variable. */
static void free_of_other_kinds(void)
{
    CUdeviceptr p, g, device_pointer = 0;
    size_t n;
    void *host, *plain = NULL;
    unsigned flags = 0;
    drv_mod m;
    start();
    drv_module(&m);
    CKD(cuMemAlloc_v2(&p, MiB(3)));
    CKD(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    REQUIRE(posix_memalign(&plain, 4096, 8192) == 0, "no memory");
    CKD(cuModuleGetGlobal_v2(&g, &n, m.mod, "g_scratch"));
    SAY("pinned", cuMemFree_v2((CUdeviceptr)(uintptr_t)host));
    SAY("plain", cuMemFree_v2((CUdeviceptr)(uintptr_t)plain));
    SAY("global", cuMemFree_v2(g));
    SAY("global-async", cuMemFreeAsync(g, NULL));
    SAY("pinned-async", cuMemFreeAsync((CUdeviceptr)(uintptr_t)host, NULL));
    flush("free");
    SAY("free-host", cuMemFreeHost((void *)(uintptr_t)p));
    SAY("free-host-interior", cuMemFreeHost((void *)(uintptr_t)(p + 512)));
    SAY("register", cuMemHostRegister_v2((void *)(uintptr_t)p, 4096, 0));
    SAY("unregister", cuMemHostUnregister((void *)(uintptr_t)p));
    SAY("device-pointer", cuMemHostGetDevicePointer_v2(&device_pointer, (void *)(uintptr_t)p, 0));
    SAY("flags", cuMemHostGetFlags(&flags, (void *)(uintptr_t)p));
    SAY("ipc-close", cuIpcCloseMemHandle(p));
    flush("of_device_memory");
    ask("still_there", p);
    CKD(cuMemFree_v2(p));
    SAY("free-host", cuMemFreeHost((void *)(uintptr_t)p));
    SAY("unregister", cuMemHostUnregister((void *)(uintptr_t)p));
    SAY("device-pointer", cuMemHostGetDevicePointer_v2(&device_pointer, (void *)(uintptr_t)p, 0));
    SAY("flags", cuMemHostGetFlags(&flags, (void *)(uintptr_t)p));
    SAY("ipc-close", cuIpcCloseMemHandle(p));
    flush("of_freed_memory");
    DRC_REC("free_host_at_last", cuMemFreeHost(host));
    free(plain);
}

/* --------------------------------------------------------------------------------------------------- questions */

static void many_attributes(void)
{
    CUdeviceptr p;
    start();
    CKD(cuMemAlloc_v2(&p, 5000));
    unsigned type = 9, size[2] = { 9, 9 };
    unsigned long long start_ = 9, id = 9;
    CUpointer_attribute list[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID };
    void *data[] = { &type, size, &start_, &id };
    CUpointer_attribute wrong[] = { CU_POINTER_ATTRIBUTE_RANGE_SIZE, (CUpointer_attribute)9999 };
    SAY("none", cuPointerGetAttributes(0, list, data, p));
    SAY("wrong", cuPointerGetAttributes(2, wrong, data, p));
    flush("arguments");
    CUdeviceptr at[] = { p, p + 2500, p + 4999, p + 5000, p + 5119, 0, 0x10 };
    for (unsigned i = 0; i < CONF_N(at); i++) {
        type = 9, size[0] = size[1] = 9, start_ = id = 9;
        CUresult e = cuPointerGetAttributes(4, list, data, at[i]);
        RECORD("at_%u=%d type %u size %u start %lld id %s", i, code(e), type, size[0], i < 5 && start_ > 9 ? (long long)(start_ - p) : (long long)start_, id == 9 ? "untouched" : id ? "set" : "0");
    }
    SAY("both", cuMemGetAddressRange_v2(NULL, NULL, p));
    SAY("behind", cuMemGetAddressRange_v2(NULL, NULL, p + 5000));
    flush("range");
    unsigned on = 1, off = 0;
    SAY("set-type", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    SAY("set-id", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    SAY("set-behind", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 5000));
    SAY("set-on", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 4999));
    SAY("set-off", cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    SAY("set-global", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x4000));
    flush("set");
    CKD(cuMemFree_v2(p));
}

/* ---------------------------------------------------------------------------------------------------- captures */

static CUdeviceptr live, freed, interior;
static CUstream other_stream;
typedef CUresult act(void);
static CUresult a_alloc(void) { CUdeviceptr p; CUresult e = cuMemAlloc_v2(&p, 70000); if (!e) live = p; return e; }
static CUresult a_alloc_zero(void) { CUdeviceptr p; return cuMemAlloc_v2(&p, 0); }
static CUresult a_alloc_null(void) { return cuMemAlloc_v2(NULL, 70000); }
static CUresult a_pitch(void) { CUdeviceptr p; size_t n; return cuMemAllocPitch_v2(&p, &n, 1000, 3, 4); }
static CUresult a_pitch_wrong(void) { CUdeviceptr p; size_t n; return cuMemAllocPitch_v2(&p, &n, 1000, 3, 5); }
static CUresult a_huge(void) { CUdeviceptr p; return cuMemAlloc_v2(&p, (size_t)1 << 45); }
static CUresult a_managed(void) { CUdeviceptr p; return cuMemAllocManaged(&p, 1000, CU_MEM_ATTACH_GLOBAL); }
static CUresult a_host(void) { void *p; return cuMemHostAlloc(&p, 1000, 0); }
static CUresult a_free(void) { return cuMemFree_v2(live); }
static CUresult a_free_null(void) { return cuMemFree_v2(0); }
static CUresult a_free_freed(void) { return cuMemFree_v2(freed); }
static CUresult a_free_interior(void) { return cuMemFree_v2(interior); }
static CUresult a_free_garbage(void) { return cuMemFree_v2(0x4000); }
static CUresult a_free_async(void) { return cuMemFreeAsync(live, other_stream); }
static CUresult a_free_async_freed(void) { return cuMemFreeAsync(freed, other_stream); }
static CUresult a_range(void) { CUdeviceptr b; size_t n; return cuMemGetAddressRange_v2(&b, &n, live); }
static CUresult a_range_freed(void) { CUdeviceptr b; size_t n; return cuMemGetAddressRange_v2(&b, &n, freed); }
static CUresult a_id(void) { unsigned long long v; return cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_BUFFER_ID, live); }
static CUresult a_id_freed(void) { unsigned long long v; return cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_BUFFER_ID, freed); }
static CUresult a_sync_memops(void) { unsigned on = 1; return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, live); }
static CUresult a_ipc(void) { CUipcMemHandle h; return cuIpcGetMemHandle(&h, live); }
static CUresult a_ipc_freed(void) { CUipcMemHandle h; return cuIpcGetMemHandle(&h, freed); }
static CUresult a_info(void) { size_t a, b; return cuMemGetInfo_v2(&a, &b); }
static CUresult a_to_host(void) { char h[8]; return cuMemcpyDtoH_v2(h, live, 8); }
static CUresult a_to_host_past(void) { static char h[80000]; return cuMemcpyDtoH_v2(h, live, 70001); }
static CUresult a_to_host_freed(void) { char h[8]; return cuMemcpyDtoH_v2(h, freed, 8); }
static CUresult a_set(void) { return cuMemsetD8_v2(live, 1, 8); }
static CUresult a_set_freed(void) { return cuMemsetD8_v2(freed, 1, 8); }
static CUresult a_set_async(void) { return cuMemsetD8Async(live, 1, 8, other_stream); }
static CUresult a_set_async_freed(void) { return cuMemsetD8Async(freed, 1, 8, other_stream); }
static CUresult a_copy_async_past(void) { return cuMemcpyDtoDAsync_v2(live, live + 35000, 35001, other_stream); }
static CUresult a_context_sync(void) { return cuCtxSynchronize(); }
static CUresult a_stream_create(void) { CUstream s; return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING); }
static CUresult a_reset(void) { return cuDevicePrimaryCtxReset_v2(device); }

static const struct { const char *name; act *act; } acts[] = {
    { "alloc", a_alloc }, { "alloc-zero", a_alloc_zero }, { "alloc-null", a_alloc_null }, { "pitch", a_pitch }, { "pitch-wrong", a_pitch_wrong }, { "huge", a_huge },
    { "managed", a_managed }, { "host", a_host }, { "free", a_free }, { "free-null", a_free_null }, { "free-freed", a_free_freed }, { "free-interior", a_free_interior },
    { "free-garbage", a_free_garbage }, { "free-async", a_free_async }, { "free-async-freed", a_free_async_freed }, { "range", a_range }, { "range-freed", a_range_freed },
    { "id", a_id }, { "id-freed", a_id_freed }, { "sync-memops", a_sync_memops }, { "ipc", a_ipc }, { "ipc-freed", a_ipc_freed }, { "info", a_info }, { "to-host", a_to_host },
    { "to-host-past", a_to_host_past }, { "to-host-freed", a_to_host_freed }, { "set", a_set }, { "set-freed", a_set_freed }, { "set-async", a_set_async },
    { "set-async-freed", a_set_async_freed }, { "copy-async-past", a_copy_async_past }, { "context-sync", a_context_sync }, { "stream-create", a_stream_create },
};

static act *delegated;
static CUcontext delegated_context;
static void *acting(void *answer)
{
    cuCtxSetCurrent(delegated_context);
    *(CUresult *)answer = delegated();
    return NULL;
}

/* Each call in a capture of its own: what it answers, and how the capture ends. */
static void in_capture(CUstreamCaptureMode mode, int elsewhere)
{
    CUstream s;
    start();
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < CONF_N(acts); i++) {
        CUgraph graph = NULL;
        /* Where the capture allows it, a driver (580.159) dies by SIGSEGV when what cuMemFreeAsync freed is freed once more. What comes
         * after it has not been tried on one without that. */
        int is_refused = mode == CU_STREAM_CAPTURE_MODE_GLOBAL || (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !elsewhere);
        if (!is_refused && acts[i].act == a_free_async) break;
        CKD(cuMemAlloc_v2(&live, 70000));
        CKD(cuMemAlloc_v2(&freed, 70000));
        CKD(cuMemFree_v2(freed));
        interior = live + 1024;
        CKD(cuCtxSynchronize());
        CKD(cuStreamBeginCapture_v2(s, mode));
        CUresult answer = CUDA_ERROR_UNKNOWN;
        if (elsewhere) {
            pthread_t t;
            delegated = acts[i].act, delegated_context = primary;
            REQUIRE(pthread_create(&t, NULL, acting, &answer) == 0, "no thread");
            pthread_join(t, NULL);
        } else {
            answer = acts[i].act();
        }
        CUresult ended = cuStreamEndCapture(s, &graph);
        RECORD("%s=%d end=%d graph=%d", acts[i].name, code(answer), code(ended), graph != NULL);
        if (graph) cuGraphDestroy(graph);
        cuMemFree_v2(live);
        CKD(cuCtxSynchronize());
    }
}
static void capture_global(void) { in_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, 0); }
static void capture_global_elsewhere(void) { in_capture(CU_STREAM_CAPTURE_MODE_GLOBAL, 1); }
static void capture_thread(void) { in_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 0); }
static void capture_thread_elsewhere(void) { in_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1); }
static void capture_relaxed(void) { in_capture(CU_STREAM_CAPTURE_MODE_RELAXED, 0); }
static void capture_relaxed_elsewhere(void) { in_capture(CU_STREAM_CAPTURE_MODE_RELAXED, 1); }

static void reset_in_capture(void)
{
    CUstream s;
    CUgraph graph = NULL;
    CUdeviceptr p;
    start();
    CKD(cuMemAlloc_v2(&live, 70000));
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CKD(cuStreamEndCapture(s, &graph));
    CKD(cuGraphDestroy(graph));
    RECORD("reset=%d", code(a_reset()));
    CKD(cuDevicePrimaryCtxRetain(&primary, device));
    CKD(cuCtxSetCurrent(primary));
    RECORD("free=%d", code(cuMemFree_v2(live)));
    CKD(cuMemAlloc_v2(&p, 70000));
    CKD(cuMemFree_v2(p));
}

/* -------------------------------------------------------------------------------------------------------- ends */

static CUdeviceptr kept;
static int end_of_thread_key_made;
static pthread_key_t end_of_thread_key;
static void end_of_thread(void *p)
{
    CUresult e = cuMemFree_v2((CUdeviceptr)(uintptr_t)p);
    CUdeviceptr q = 0;
    CUresult f = cuMemAlloc_v2(&q, 70000), g = f ? f : cuMemFree_v2(q);
    RECORD("at_end_of_thread=%d %d %d", code(e), code(f), code(g));
}
static void *ends_with_block(void *unused)
{
    CUdeviceptr p;
    (void)unused;
    CKD(cuCtxSetCurrent(primary));
    CKD(cuMemAlloc_v2(&p, 70000));
    pthread_setspecific(end_of_thread_key, (void *)(uintptr_t)p);
    return NULL;
}
static void thread_ends_and_frees(void)
{
    start();
    end_of_thread_key_made = pthread_key_create(&end_of_thread_key, end_of_thread) == 0;
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        REQUIRE(pthread_create(&t, NULL, ends_with_block, NULL) == 0, "no thread");
        pthread_join(t, NULL);
    }
    printf("EXPECT live_at_exit=0 bytes=0\n");
}

static void quick(void)
{
    CUdeviceptr q = 0;
    CUresult e = cuMemFree_v2(kept), f = cuMemAlloc_v2(&q, 100);
    RECORD("at_quick_exit=%d %d", code(e), code(f));
    printf("PASS %s\n", conf_name);
    fflush(stdout);
}
static void quick_exit_frees(void)
{
    start();
    CKD(cuMemAlloc_v2(&kept, MiB(4)));
    at_quick_exit(quick);
    quick_exit(0);
}

static void forked_child(void)
{
    /* After the driver was started, a child is refused everything, also what the pool could answer. */
    CUdeviceptr p, dead;
    start();
    CKD(cuMemAlloc_v2(&p, 70000));
    CKD(cuMemAlloc_v2(&dead, 70000));
    CKD(cuMemFree_v2(dead));
    fflush(stdout);
    pid_t pid = fork();
    REQUIRE(pid >= 0, "fork failed");
    if (pid == 0) {
        CUdeviceptr q = 5;
        size_t a, b;
        unsigned long long v;
        char host[8];
        CUcontext now;
        SAY("alloc", cuMemAlloc_v2(&q, 70000));
        SAY("alloc-zero", cuMemAlloc_v2(&q, 0));
        SAY("alloc-null", cuMemAlloc_v2(NULL, 70000));
        SAY("free", cuMemFree_v2(p));
        SAY("free-null", cuMemFree_v2(0));
        SAY("free-freed", cuMemFree_v2(dead));
        SAY("free-async", cuMemFreeAsync(p, NULL));
        SAY("info", cuMemGetInfo_v2(&a, &b));
        SAY("range", cuMemGetAddressRange_v2(&q, &a, p));
        SAY("type", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
        SAY("type-freed", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dead));
        SAY("to-host", cuMemcpyDtoH_v2(host, p, 8));
        SAY("to-host-freed", cuMemcpyDtoH_v2(host, dead, 8));
        SAY("set", cuMemsetD8_v2(p, 1, 8));
        SAY("synchronize", cuCtxSynchronize());
        SAY("get-current", cuCtxGetCurrent(&now));
        SAY("init", cuInit(0));
        flush("child");
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %x", status);
    CKD(cuMemFree_v2(p));
}

/* After an illegal access of a kernel every call is refused, also what a pool could answer. */
static void after_sticky_error(void)
{
    CUdeviceptr p, dead, small, q = 5;
    size_t a, b, pitch;
    unsigned long long v;
    unsigned on = 1;
    char host[8];
    CUipcMemHandle handle;
    CUstream s;
    drv_mod m;
    start();
    drv_module(&m);
    CKD(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CKD(cuMemAlloc_v2(&p, 70000));
    CKD(cuMemAlloc_v2(&small, 1000));
    CKD(cuMemAlloc_v2(&dead, 70000));
    CKD(cuMemFree_v2(dead));
    drv_fill(&m, 0x7000, 64, 1, s);
    RECORD("synchronize=%d", code(cuCtxSynchronize()));
    SAY("alloc", cuMemAlloc_v2(&q, 70000));
    SAY("alloc-zero", cuMemAlloc_v2(&q, 0));
    SAY("alloc-null", cuMemAlloc_v2(NULL, 70000));
    SAY("pitch", cuMemAllocPitch_v2(&q, &pitch, 100, 3, 4));
    SAY("pitch-wrong", cuMemAllocPitch_v2(&q, &pitch, 100, 3, 5));
    SAY("huge", cuMemAlloc_v2(&q, (size_t)1 << 45));
    SAY("free-null", cuMemFree_v2(0));
    SAY("free-interior", cuMemFree_v2(p + 512));
    SAY("free-freed", cuMemFree_v2(dead));
    SAY("free-garbage", cuMemFree_v2(0x4000));
    SAY("free", cuMemFree_v2(small));
    SAY("free-again", cuMemFree_v2(small));
    SAY("free-async", cuMemFreeAsync(p, s));
    SAY("free-async-freed", cuMemFreeAsync(dead, s));
    flush("allocation");
    SAY("info", cuMemGetInfo_v2(&a, &b));
    SAY("range", cuMemGetAddressRange_v2(&q, &a, p));
    SAY("range-freed", cuMemGetAddressRange_v2(&q, &a, dead));
    SAY("type", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    SAY("type-freed", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dead));
    SAY("id", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    SAY("set-sync", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    SAY("ipc", cuIpcGetMemHandle(&handle, p));
    SAY("ipc-freed", cuIpcGetMemHandle(&handle, dead));
    flush("questions");
    SAY("to-host", cuMemcpyDtoH_v2(host, p, 8));
    SAY("to-host-past", cuMemcpyDtoH_v2(host, p + 69999, 8));
    SAY("to-host-freed", cuMemcpyDtoH_v2(host, dead, 8));
    SAY("set-freed", cuMemsetD8_v2(dead, 1, 8));
    SAY("set-freed-async", cuMemsetD8Async(dead, 1, 8, s));
    SAY("set-freed-default", cuMemsetD8Async(dead, 1, 8, NULL));
    SAY("copy-freed", cuMemcpyDtoD_v2(p, dead, 8));
    flush("copies");
}

/* ------------------------------------------------------------------------------------------- other processes */

typedef struct { CUipcMemHandle handle[4]; } handles;
static void read_all(int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        REQUIRE(got > 0, "the pipe ended");
        done += (size_t)got;
    }
}

/* The importer: it is started before the driver is. */
static void import(int from, int to)
{
    handles h;
    CUdeviceptr p[4], q = 5, base;
    size_t size;
    unsigned long long v;
    char host[8], byte = 1;
    read_all(from, &h, sizeof h);
    start();
    SAY("flags-0", cuIpcOpenMemHandle_v2(&q, h.handle[0], 0));
    SAY("flags-2", cuIpcOpenMemHandle_v2(&q, h.handle[0], 2));
    flush("open_wrongly");
    for (int i = 0; i < 4; i++) {
        CUresult e = cuIpcOpenMemHandle_v2(&p[i], h.handle[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (e) p[i] = 0;
        SAY("open", e);
        if (e) continue;
        SAY("range", cuMemGetAddressRange_v2(&base, &size, p[i] + 7));
        RECORD("size_%d=%zu at %lld", i, size, (long long)(p[i] - base));
        SAY("copy", cuMemcpyDtoH_v2(host, p[i] + size - 8, 8));
        SAY("copy-past", cuMemcpyDtoH_v2(host, p[i] + size - 7, 8));
        SAY("set-past", cuMemsetD8_v2(p[i] + size, 1, 1));
        SAY("export", cuIpcGetMemHandle(&h.handle[i], p[i]));
        SAY("free", cuMemFree_v2(p[i]));
        SAY("free-async", cuMemFreeAsync(p[i], NULL));
        SAY("type", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p[i]));
        flush("opened");
    }
    SAY("close-interior", cuIpcCloseMemHandle(p[0] + 512));
    SAY("close", cuIpcCloseMemHandle(p[0]));
    SAY("close-again", cuIpcCloseMemHandle(p[0]));
    SAY("close-null", cuIpcCloseMemHandle(0));
    SAY("close-garbage", cuIpcCloseMemHandle(0x4000));
    flush("close");
    ask("closed", p[0]);
    for (int i = 1; i < 4; i++)
        if (p[i]) SAY("close", cuIpcCloseMemHandle(p[i]));
    flush("close_rest");
    fflush(stdout);
    REQUIRE(write(to, &byte, 1) == 1, "the exporter is gone");
    _exit(conf_nfail != 0);
}

static void ipc_each_call(void)
{
    int there[2], back[2];
    handles h;
    CUdeviceptr p[4], q;
    size_t pitch;
    char byte;
    REQUIRE(pipe(there) == 0 && pipe(back) == 0, "no pipe");
    fflush(stdout);
    pid_t pid = fork();
    REQUIRE(pid >= 0, "fork failed");
    if (pid == 0) import(there[0], back[1]);
    start();
    CKD(cuMemAlloc_v2(&p[0], 5000));
    CKD(cuMemAlloc_v2(&p[1], MiB(3)));
    CKD(cuMemAllocPitch_v2(&p[2], &pitch, 1000, 9, 4));
    CKD(cuMemAlloc_v2(&p[3], MiB(33)));
    for (int i = 0; i < 4; i++) CKD(cuIpcGetMemHandle(&h.handle[i], p[i] + (i == 1 ? 4096 : 0)));
    CKD(cuMemAlloc_v2(&q, 5000));
    CKD(cuMemFree_v2(q));
    CUipcMemHandle wrong;
    SAY("freed", cuIpcGetMemHandle(&wrong, q));
    SAY("null", cuIpcGetMemHandle(&wrong, 0));
    SAY("garbage", cuIpcGetMemHandle(&wrong, 0x4000));
    SAY("behind", cuIpcGetMemHandle(&wrong, p[0] + 5000));
    SAY("own", cuIpcOpenMemHandle_v2(&q, h.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    SAY("close-own", cuIpcCloseMemHandle(p[0]));
    flush("export");
    CKD(cuCtxSynchronize());
    REQUIRE(write(there[1], &h, sizeof h) == sizeof h, "the importer is gone");
    int ended = read(back[0], &byte, 1) == 1, status = 0;
    waitpid(pid, &status, 0);
    EXPECT(ended && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the importer ended with status %x", status);
    for (int i = 0; i < 4; i++) CKD(cuMemFree_v2(p[i]));
}

/* ----------------------------------------------------------------------------------------------------- look-ups */

static void every_look_up(void)
{
    static const char *const names[] = {
        "cuMemAlloc", "cuMemFree", "cuMemAllocPitch", "cuMemGetInfo", "cuMemGetAddressRange", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocManaged",
        "cuMemHostAlloc", "cuMemcpyDtoH", "cuMemcpyHtoDAsync", "cuMemsetD8", "cuMemsetD8Async", "cuIpcOpenMemHandle", "cuIpcGetMemHandle", "cuCtxDestroy", "cuCtxCreate",
        "cuCtxSynchronize", "cuCtxGetDevice", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease", "cuPointerGetAttribute", "cuStreamBeginCapture", "cuLaunchKernel",
        "cuDeviceTotalMem", "cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyDtoH_v2_ptds", "cuMemFreeAsync_ptsz", "", "cuNoSuchFunction",
        "cuMem", "cuMemAllocX", "cuStreamGetCaptureInfo", "cuMemPrefetchAsync", "cuGraphInstantiate", "cuEventRecord", "cuStreamWaitValue32",
    };
    static const int versions[] = { 0, 2000, 3020, 4000, 7000, 10000, 11020, 11030, 12000, 12050, 13000, 13050, 99999, -1 };
    static const cuuint64_t flags[] = { 0, 1, 2, 3, 4, 1ull << 40 };
    start();
    for (unsigned n = 0; n < CONF_N(names); n++)
        for (unsigned f = 0; f < CONF_N(flags); f++) {
            void *seen[CONF_N(versions)] = { 0 };
            for (unsigned v = 0; v < CONF_N(versions); v++) {
                void *p = (void *)7;
                CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
                CUresult e = cuGetProcAddress_v2(names[n], &p, versions[v], flags[f], &status);
                /* which of the versions before gave the same function */
                unsigned same = v;
                for (unsigned k = v; k-- > 0;)
                    if (seen[k] && seen[k] == p) same = k;
                seen[v] = p == (void *)7 ? NULL : p;
                size_t used = strlen(said);
                snprintf(said + used, sizeof said - used, " %d/%d/%s%u", code(e), (int)status, p == (void *)7 ? "untouched" : p ? "" : "null", p && p != (void *)7 ? same : 0);
            }
            RECORD("%s.%u=%s", names[n], f, said);
            said[0] = 0;
        }
    void *p = (void *)7;
    SAY("no-status", cuGetProcAddress_v2("cuMemAlloc", &p, 13000, 0, NULL));
    SAY("no-status-unknown", cuGetProcAddress_v2("cuNoSuchFunction", &p, 13000, 0, NULL));
    flush("arguments");
}

static const conf_case cases[] = {
    { "drv-no-current-context", no_current_context }, { "drv-second-context", second_context },
    { "drv-destroyed-while-current", destroyed_while_current }, { "drv-thread-without-context", thread_without_context },
    { "drv-primary-counts", primary_counts }, { "drv-pitch-arguments", pitch_arguments },
    { "drv-free-twice-each-way", free_twice_each_way }, { "drv-async-arguments", async_arguments },
    { "drv-free-of-other-kinds", free_of_other_kinds }, { "drv-many-attributes", many_attributes },
    { "drv-capture-global", capture_global }, { "drv-capture-global-elsewhere", capture_global_elsewhere },
    { "drv-capture-thread", capture_thread }, { "drv-capture-thread-elsewhere", capture_thread_elsewhere },
    { "drv-capture-relaxed", capture_relaxed }, { "drv-capture-relaxed-elsewhere", capture_relaxed_elsewhere },
    { "drv-reset-after-capture", reset_in_capture }, { "drv-thread-ends-and-frees", thread_ends_and_frees },
    { "drv-quick-exit-frees", quick_exit_frees }, { "drv-forked-child", forked_child },
    { "drv-after-sticky-error", after_sticky_error }, { "drv-ipc-each-call", ipc_each_call }, { "drv-every-look-up", every_look_up },
};
CONF_MAIN(cases)
