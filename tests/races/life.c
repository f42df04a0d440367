/* usage: life [CASE]    What must outlive a context, what must not, and what a capture may not notice. Each is the same natively; the limit
 * (CUSHION_MEMORY_LIMIT=256M) is never reached by what is live. */
#include "../sim-driver/tests/c/simtest.h"

R cuCtxAttach(H *, unsigned);
R cuCtxDetach(H);
typedef struct { size_t width, height; int format; unsigned channels; } Shape;
R cuArrayCreate_v2(H *, const Shape *);

/* Memory of every kind dies with its context, and is the device's again. */
static void contexts_in_turn(void)
{
    H context, array;
    P p;
    begin();
    for (int i = 0; i < 20; i++) {
        Shape shape = { 1024, 16384, 1, 1 };
        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuMemAllocManaged(&p, 100 << 20, 1));
        OK(cuArrayCreate_v2(&array, &shape));
        OK(cuMemAlloc_v2(&p, 60 << 20));
        OK(cuMemAlloc_v2(&p, 1000));
        OK(cuCtxDestroy_v2(context));
    }
}

/* A context that was attached lives until it is detached as often, and so does its memory. */
static void attached(void)
{
    H context, again;
    P p;
    begin();
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuCtxAttach(&again, 0));
    IS(again == context, 1);
    OK(cuCtxDetach(context));
    OK(cuMemsetD8_v2(p, 1, 5000));
    IS(cuMemsetD8_v2(p, 1, 5001), 1);
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuCtxDetach(context));
    IS(cuMemFree_v2(p), 1);
}

/* A call that a capture allows fails for memory: the cache goes back, and the capture does not notice. */
static void short_of_memory_in_a_capture(void)
{
    H stream, graph;
    P p;
    uint64_t handle;
    Prop all = { .type = 1, .location = 1 };
    begin();
    OK(cuStreamCreate(&stream, 1));
    for (int mode = 0; mode < 3; mode++) {
        OK(cuMemAlloc_v2(&p, 30 << 20));
        OK(cuMemFree_v2(p));
        OK(cuStreamBeginCapture_v2(stream, mode));
        IS(cuMemCreate(&handle, 200ull << 30, &all, 0), 2);
        OK(cuMemCreate(&handle, 240 << 20, &all, 0)); /* there is room only without the cache */
        OK(cuMemRelease(handle));
        OK(cuStreamEndCapture(stream, &graph));
    }
    IS(simcuda_live_bytes(0), 0);
}

/* A stream that captures goes with its context; then nothing captures. */
static void a_capture_ends_with_its_context(void)
{
    H context, stream;
    P p;
    begin();
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(cuCtxDestroy_v2(context));
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&p, 5000));
    uint64_t live = simcuda_live_allocations(0);
    P q;
    OK(cuMemAlloc_v2(&q, 5000));
    /* And the pool serves again: one segment holds both. */
    if (getenv("LD_PRELOAD")) IS(simcuda_live_allocations(0) - live, 0);
    OK(cuMemFree_v2(q));
    OK(cuMemFree_v2(p));
}

/* While a context is being destroyed its work goes on, on memory that is freed already. Whoever gets that must not see it. */
static H first;
static volatile int freed;
static void *user(void *argument)
{
    P p;
    (void)argument;
    OK(cuCtxSetCurrent(first));
    while (!freed) usleep(100);
    usleep(20000);
    H stream;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&p, 5000));
    OK(fill(p, 5000, 1, stream));
    OK(cuStreamSynchronize(stream));
    usleep(150000);
    IS(wrong(p, 5000, 1, stream), 0);
    OK(cuMemFree_v2(p));
    return NULL;
}

static void work_of_a_context_that_leaves(void)
{
    H side, popped, module;
    P p;
    pthread_t thread;
    first = begin();
    module = the_module;
    pthread_create(&thread, NULL, user, NULL);
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuCtxCreate_v2(&side, 0, 0));
    OK(cuModuleLoadData(&the_module, "any image"));
    OK(late_fill(p, 5000, 2, 100, NULL));
    the_module = module;
    OK(cuCtxPopCurrent_v2(&popped));
    OK(cuMemFree_v2(p));
    freed = 1;
    OK(cuCtxDestroy_v2(side));
    pthread_join(thread, NULL);
}

/* Another device's stream copies to memory that is freed already. Copies need no peer access. What a free of the driver's waits for with two
 * devices was not measured, so this is asked of the pool alone. Two ways do not show it: the stream of another device than the current one,
 * and a graph. */
typedef struct { size_t x, y, z, lod; unsigned kind; void *host; P device; H array; void *reserved; size_t pitch, height; } Side;
typedef struct { Side from, to; size_t width, height, depth; } Copy;
R cuGraphAddMemcpyNode(H *, H, const H *, size_t, const Copy *, H);

enum { PLAINLY, ON_ANOTHER_DEVICES_STREAM, IN_A_GRAPH };

static void late_copy_elsewhere(int way)
{
    H there, stream, popped, module, graph, executable, node, here = begin();
    P p, source, again;
    if (!getenv("LD_PRELOAD")) return;
    module = the_module;
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxSetCurrent(there));
    OK(cuModuleLoadData(&the_module, "any image"));
    OK(cuMemAlloc_v2(&source, 5000));
    OK(cuMemsetD8_v2(source, 9, 5000));
    OK(cuStreamCreate(&stream, 1));
    OK(spin(80, stream));
    the_module = module;
    if (way == PLAINLY) {
        OK(cuMemcpyDtoDAsync_v2(p, source, 5000, stream));
    } else if (way == ON_ANOTHER_DEVICES_STREAM) {
        OK(cuCtxSetCurrent(here));
        OK(cuMemcpyDtoDAsync_v2(p, p, 0, stream));
        OK(cuMemsetD8Async(p, 9, 5000, stream));
    } else {
        Copy copy = { { .kind = 2, .device = source, .pitch = 5000 }, { .kind = 2, .device = p, .pitch = 5000 }, 5000, 1, 1 };
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, there));
        OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
        OK(cuGraphLaunch(executable, stream));
    }
    OK(cuCtxSetCurrent(here));
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&again, 5000));
    OK(fill(again, 5000, 1, NULL));
    OK(cuCtxSynchronize());
    usleep(150000);
    IS(wrong(again, 5000, 1, NULL), 0);
    OK(cuCtxPushCurrent_v2(there));
    OK(cuCtxPopCurrent_v2(&popped));
}

static void a_copy_from_another_device(void) { late_copy_elsewhere(PLAINLY); }
static void a_copy_on_another_devices_stream(void) { late_copy_elsewhere(ON_ANOTHER_DEVICES_STREAM); }
static void a_graph_of_another_device(void) { late_copy_elsewhere(IN_A_GRAPH); }

/* A peer with access reaches all memory of a context, whatever was first; and what it still works on when it is freed is not taken away. */
R cuCtxDisablePeerAccess(H);

static void peer(int access_first)
{
    enum { BYTES = 12 << 20 };
    H there, here = begin(), module = the_module, module_there;
    P early = 0, late, more;
    if (!access_first) OK(cuMemAlloc_v2(&early, BYTES));
    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxSetCurrent(there));
    OK(cuModuleLoadData(&module_there, "any image"));
    OK(cuCtxEnablePeerAccess(here, 0));
    OK(cuCtxSetCurrent(here));
    if (access_first) OK(cuMemAlloc_v2(&early, BYTES));
    OK(cuMemAlloc_v2(&late, BYTES));
    OK(cuCtxSetCurrent(there));
    the_module = module_there;
    OK(fill(early, BYTES, 3, NULL));
    OK(fill(late, BYTES, 4, NULL));
    OK(cuCtxSynchronize());
    IS(wrong(early, BYTES, 3, NULL), 0);
    /* What a free of the driver's waits for with two devices was not measured: this is asked of the pool alone. */
    if (getenv("LD_PRELOAD")) OK(late_fill(late, BYTES, 5, 80, NULL));
    OK(cuCtxSetCurrent(here));
    the_module = module;
    OK(cuMemFree_v2(late));
    /* More than is left beside it (the limit of 256 MiB): the freed one goes back first. */
    OK(cuMemAlloc_v2(&more, 240 << 20));
    OK(fill(more, 240 << 20, 6, NULL));
    OK(cuCtxSynchronize());
    IS(wrong(more, 240 << 20, 6, NULL), 0);
    OK(cuMemFree_v2(more));
    OK(cuCtxSetCurrent(there));
    OK(cuCtxSynchronize());
    OK(cuCtxDisablePeerAccess(here));
    OK(cuCtxSetCurrent(here));
    IS(wrong(early, BYTES, 3, NULL), 0);
    OK(cuMemFree_v2(early));
}

static void a_peer_of_memory_that_is_there(void) { peer(0); }
static void memory_of_a_context_that_has_a_peer(void) { peer(1); }

/* The thread's own stream of one context captures; the thread uses another. */
static void a_capture_on_the_threads_own_stream(void)
{
    H other, graph, popped, first = begin(), own = (H)2;
    P p;
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuCtxPopCurrent_v2(&popped));
    OK(cuStreamBeginCapture_v2(own, 2));
    OK(cuCtxSetCurrent(other));
    P q;
    OK(cuMemAlloc_v2(&q, 100));
    OK(cuMemFree_v2(p));
    OK(cuCtxSetCurrent(first));
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuMemFree_v2(p));
    OK(cuStreamEndCapture(own, &graph));
}

/* A primary context ends by its last release, and the driver gives its memory to another context at that moment. */
static volatile int over;
static void *taker(void *argument)
{
    H side, popped;
    P p[12];
    (void)argument;
    while (!over) {
        OK(cuCtxCreate_v2(&side, 0, 0));
        for (int i = 0; i < 12; i++) {
            OK(cuMemAlloc_v2(&p[i], 3 << 20));
            OK(cuMemsetD8_v2(p[i], 1, 3 << 20));
            IS(cuMemsetD8_v2(p[i], 1, (3 << 20) + 1), 1);
        }
        for (int i = 0; i < 12; i += 2) OK(cuMemFree_v2(p[i]));
        OK(cuCtxDestroy_v2(side));
        cuCtxPopCurrent_v2(&popped);
    }
    return NULL;
}

static void memory_of_a_released_primary(void)
{
    H primary;
    P p;
    pthread_t threads[2];
    OK(cuInit(0));
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, taker, NULL);
    /* As many rounds as fit: what the takers clean, the simulated driver really fills. */
    double end = ms() + 3000;
    for (int round = 0; round < 400 && !failures && ms() < end; round++) {
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        OK(cuCtxSetCurrent(primary));
        for (int i = 0; i < 8; i++) OK(cuMemAlloc_v2(&p, 3 << 20));
        OK(cuMemFree_v2(p));
        OK(cuCtxSetCurrent(NULL));
        OK(cuDevicePrimaryCtxRelease_v2(0));
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    IS(simcuda_live_bytes(0), 0);
}

/* Others retain and release the primary context that this thread uses, and release it once too often after a reset. */
static void *holder(void *argument)
{
    H primary;
    while (!over) {
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        IS(primary == argument, 1);
        OK(cuDevicePrimaryCtxRelease_v2(0));
        IS(cuDevicePrimaryCtxRelease_v2(1), 201);
    }
    return NULL;
}

static void a_primary_that_others_hold_too(void)
{
    P p;
    H here = begin();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, holder, here);
    for (int round = 0; round < 3000 && !failures; round++) {
        OK(cuMemAlloc_v2(&p, 5000));
        OK(cuMemsetD8_v2(p, 1, 5000));
        IS(cuMemsetD8_v2(p, 1, 5001), 1);
        OK(cuMemFree_v2(p));
        IS(cuMemFree_v2(p), 1);
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* A release that the driver refuses changes nothing, though it might have been the last (SIMCUDA_FAIL). */
static void *refused(void *argument)
{
    (void)argument;
    while (!over) IS(cuDevicePrimaryCtxRelease_v2(0), 999);
    return NULL;
}

static void a_release_that_is_refused(void)
{
    P p;
    pthread_t thread;
    begin();
    if (!getenv("SIMCUDA_FAIL")) return;
    pthread_create(&thread, NULL, refused, NULL);
    for (int round = 0; round < 3000 && !failures; round++) {
        OK(cuMemAlloc_v2(&p, 5000));
        IS(cuMemsetD8_v2(p, 1, 5001), 1);
        OK(cuMemFree_v2(p));
    }
    over = 1;
    pthread_join(thread, NULL);
}

/* The same takes its time (SIMCUDA_SLOW), and meanwhile a second stream comes: what was handed out by the order of the one stream is behind a
 * fence before the new one's first work. */
static void *refused_slowly(void *unused)
{
    (void)unused;
    IS(cuDevicePrimaryCtxRelease_v2(0), 999);
    return NULL;
}

static void a_stream_beside_a_release(void)
{
    P p, again;
    H stream;
    pthread_t thread;
    begin();
    if (!getenv("SIMCUDA_SLOW")) return;
    OK(cuMemAlloc_v2(&p, 5000));
    OK(late_fill(p, 5000, 2, 500, NULL));
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&again, 5000));
    pthread_create(&thread, NULL, refused_slowly, NULL);
    usleep(50000);
    OK(cuStreamCreate(&stream, 1));
    OK(fill(again, 5000, 1, stream));
    OK(cuCtxSynchronize());
    IS(wrong(again, 5000, 1, stream), 0);
    pthread_join(thread, NULL);
}

/* Blocks that are scrubbed each time, by one stream's order or beside it. */
static void scrubs(int in_order)
{
    P p;
    H stream;
    begin();
    if (!in_order) OK(cuStreamCreate(&stream, 1));
    for (int round = 0; round < 40; round++) {
        OK(cuMemAlloc_v2(&p, 3 << 20));
        if (!in_order && !round) OK(fill(p, 5000, 1, stream));
        OK(cuMemsetD8_v2(p, 1, 3 << 20));
        OK(cuMemFree_v2(p));
    }
}

static void scrubs_in_order(void) { scrubs(1); }
static void scrubs_beside_the_stream(void) { scrubs(0); }

static int is_mapped(void)
{
    const char *backing = getenv("CUSHION_BACKING");
    return backing && !strcmp(backing, "vmm");
}

/* Memory whose SYNC_MEMOPS was set is the driver's to take back: the attribute is on all of its segment, so neither the block nor a piece of
 * it is anybody's again. */
R cuPointerSetAttribute(const void *, int, P);

static void a_block_that_was_set_apart(void)
{
    P p, q[64];
    unsigned on = 1, is = 0;
    begin();
    for (unsigned long long bytes = 5000; bytes < 8 << 20; bytes *= 30) {
        int count = bytes > 1 << 20 ? 12 : 64;
        OK(cuMemAlloc_v2(&p, bytes));
        OK(cuPointerSetAttribute(&on, 6, p));
        OK(cuMemFree_v2(p));
        for (int i = 0; i < count; i++) {
            OK(cuMemAlloc_v2(&q[i], bytes));
            OK(cuPointerGetAttribute(&is, 6, q[i]));
            IS(is, 0);
            /* A larger one may have been all of its segment, whose address the driver may give out again; mapped memory goes back by the
             * handle, and other memory may come to its addresses. */
            if (getenv("LD_PRELOAD") && !is_mapped() && bytes <= 1 << 20) IS(q[i] == p, 0);
        }
        for (int i = 0; i < count; i++) OK(cuMemFree_v2(q[i]));
    }
}

/* Above 1 MiB memory starts at a multiple of 2 MiB, whatever was allocated before it; in the fast mode of 64 KiB. */
static void large_blocks_are_aligned(void)
{
    const char *mode = getenv("CUSHION_MODE");
    P p[12], multiple = mode && !strcmp(mode, "fast") ? 64 << 10 : 2 << 20;
    begin();
    /* One piece of memory to cut all of them from. */
    OK(cuMemAlloc_v2(&p[0], 60 << 20));
    OK(cuMemFree_v2(p[0]));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 12; i++) {
            OK(cuMemAlloc_v2(&p[i], (1 << 20) + 1 + i * 77777));
            IS(p[i] % multiple, 0);
        }
        for (int i = 0; i < 12; i++) OK(cuMemFree_v2(p[(i * 5 + round) % 12]));
    }
}

/* The driver itself is short (SIMCUDA_MEMORY=1G, and no limit): what the pool has cached is no reason to refuse. */
static void the_driver_is_short(void)
{
    P p;
    uint64_t handle;
    Prop all = { .type = 1, .location = 1 };
    begin();
    if (!getenv("SIMCUDA_MEMORY")) return;
    for (int way = 0; way < 2; way++) {
        OK(cuMemAlloc_v2(&p, 600 << 20));
        OK(cuMemFree_v2(p));
        if (way) {
            OK(cuMemCreate(&handle, 700 << 20, &all, 0));
            OK(cuMemRelease(handle));
        } else {
            OK(cuMemAllocManaged(&p, 700 << 20, 1));
            OK(cuMemFree_v2(p));
        }
    }
}

static const Case cases[] = {
    { "the driver is short", the_driver_is_short },
    { "a block that was set apart", a_block_that_was_set_apart },
    { "large blocks are aligned", large_blocks_are_aligned },
    { "memory of a released primary", memory_of_a_released_primary },
    { "a primary that others hold, too", a_primary_that_others_hold_too },
    { "a release that is refused", a_release_that_is_refused },
    { "a stream beside a release", a_stream_beside_a_release },
    { "scrubs in order", scrubs_in_order },
    { "scrubs beside the stream", scrubs_beside_the_stream },
    { "contexts in turn", contexts_in_turn },
    { "attached", attached },
    { "short of memory in a capture", short_of_memory_in_a_capture },
    { "a capture ends with its context", a_capture_ends_with_its_context },
    { "work of a context that leaves", work_of_a_context_that_leaves },
    { "a copy from another device", a_copy_from_another_device },
    { "a copy on another device's stream", a_copy_on_another_devices_stream },
    { "a graph of another device", a_graph_of_another_device },
    { "a peer of memory that is there", a_peer_of_memory_that_is_there },
    { "memory of a context that has a peer", memory_of_a_context_that_has_a_peer },
    { "a capture on the thread's own stream", a_capture_on_the_threads_own_stream },
};
CASES(cases)
