/* The table of what a capture survives, row by row; and graphs with effects. */
#include "simtest.h"

enum { GLOBAL, LOCAL, RELAXED };
static H context, capturing, other, event;
static P block;

static R mem_alloc(void) { P p; R e = cuMemAlloc_v2(&p, 64); if (!e) cuMemFree_v2(p); return e; }
static R mem_free(void) { return cuMemFree_v2(block); }
static R event_query(void) { return cuEventQuery(event); }
static R event_sync(void) { return cuEventSynchronize(event); }
static R stream_sync(void) { return cuStreamSynchronize(other); }
static R event_record(void) { return cuEventRecord(event, other); }
static R stream_wait(void) { return cuStreamWaitEvent(other, event, 0); }
static R mem_info(void) { size_t a, b; return cuMemGetInfo_v2(&a, &b); }
static R mem_create(void)
{
    Prop p = { 1, 0, 1, 0, NULL, 0 };
    uint64_t h;
    R e = cuMemCreate(&h, 2 << 20, &p, 0);
    if (!e) cuMemRelease(h);
    return e;
}
static R ctx_record(void) { return cuCtxRecordEvent(context, event); }
static R alloc_nothing(void) { return cuMemAlloc_v2(NULL, 0) == 900 ? 900 : 0; }
static R free_null(void) { return cuMemFree_v2(0); }
static R free_unknown(void) { return cuMemFree_v2(0x4000) == 900 ? 900 : 0; }
static R free_async_unknown(void) { return cuMemFreeAsync(0x4000, other) == 900 ? 900 : 0; }
static R host_alloc(void) { void *p; R e = cuMemHostAlloc(&p, 64, 0); if (!e) cuMemFreeHost(p); return e; }
static R sync_memops(void) { unsigned on = 1; return cuPointerSetAttribute(&on, 6, block); }
static R wrong_element(void) { P p; size_t n; return cuMemAllocPitch_v2(&p, &n, 64, 1, 5) != 1; }
static R copy(void) { char h[4]; return cuMemcpyDtoH_v2(h, block, 4); }
static R ctx_sync(void) { return cuCtxSynchronize(); }

typedef struct { const char *name; R (*call)(void); int row; } Row;
static const Row rows[] = {
    { "cuMemAlloc", mem_alloc, 0 }, { "cuMemFree", mem_free, 0 }, { "cuEventQuery", event_query, 0 },
    { "cuEventSynchronize", event_sync, 0 }, { "cuStreamSynchronize", stream_sync, 0 },
    { "cuMemAlloc of nothing", alloc_nothing, 0 }, { "cuMemFree of null", free_null, 0 },
    { "cuMemFree of an unknown address", free_unknown, 0 }, { "cuMemFreeAsync of one", free_async_unknown, 0 },
    { "cuMemHostAlloc", host_alloc, 0 }, { "cuPointerSetAttribute", sync_memops, 0 },
    { "cuMemAllocPitch with a wrong element", wrong_element, 1 }, { "cuMemcpyDtoH", copy, 1 },
    { "cuEventRecord", event_record, 1 }, { "cuStreamWaitEvent", stream_wait, 1 },
    { "cuMemGetInfo", mem_info, 1 }, { "cuMemCreate", mem_create, 1 },
    { "cuCtxRecordEvent", ctx_record, 2 }, { "cuCtxSynchronize", ctx_sync, 2 },
};

typedef struct { const Row *row; int shield; R answer; } Call;
static void *make_call(void *x)
{
    Call *c = x;
    int mode = RELAXED;
    cuCtxSetCurrent(context);
    if (c->shield) OK(cuThreadExchangeStreamCaptureMode(&mode));
    c->answer = c->row->call();
    if (c->shield) OK(cuThreadExchangeStreamCaptureMode(&mode));
    return NULL;
}

static void table(void)
{
    context = begin();
    OK(cuStreamCreate(&capturing, 1));
    OK(cuStreamCreate(&other, 1));
    OK(cuEventCreate(&event, 2));
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int mode = 0; mode < 3; mode++)
            for (int elsewhere = 0; elsewhere < 2; elsewhere++)
                for (int shield = 0; shield < 2; shield++) {
                    int refused = rows[i].row == 2 ? 1
                        : rows[i].row == 1 || shield || mode == RELAXED ? 0
                        : mode == GLOBAL || !elsewhere;
                    Call c = { &rows[i], shield, -1 };
                    H graph = NULL;
                    int before = failures;
                    OK(cuMemAlloc_v2(&block, 64));
                    OK(cuStreamBeginCapture_v2(capturing, mode));
                    OK(spin(0, capturing));
                    if (elsewhere) {
                        pthread_t t;
                        pthread_create(&t, NULL, make_call, &c);
                        pthread_join(t, NULL);
                    } else {
                        make_call(&c);
                    }
                    IS(c.answer, refused ? 900 : 0);
                    int status = 0;
                    OK(cuStreamIsCapturing(capturing, &status));
                    IS(status, refused ? 2 : 1);
                    IS(cuStreamEndCapture(capturing, &graph), refused ? 901 : 0);
                    IS(graph != NULL, !refused);
                    if (graph) OK(cuGraphDestroy(graph));
                    cuMemFree_v2(block);
                    if (failures > before)
                        fprintf(stderr, "  %s mode %d, %s thread%s\n", rows[i].name, mode,
                                elsewhere ? "other" : "same", shield ? ", shielded" : "");
                }
}

static void effects(void)
{
    begin();
    H s, t, e, f, graph, exec;
    P p;
    size_t n = 0;
    void *flag;
    OK(cuStreamCreate(&s, 0));
    OK(cuStreamCreate(&t, 1));
    OK(cuEventCreate(&e, 2));
    OK(cuEventCreate(&f, 2));
    OK(cuMemAlloc_v2(&p, 1 << 20));
    OK(cuMemHostAlloc(&flag, 64, 0));
    OK(cuStreamBeginCapture_v2(s, GLOBAL));
    OK(fill(p, 1 << 20, 5, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(cuMemsetD8Async(p, 0, 512, t));
    OK(cuEventRecord(f, t));
    OK(cuStreamWaitEvent(s, f, 0));
    OK(cuMemcpyDtoHAsync_v2(flag, p + 1024, 4, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetNodes(graph, NULL, &n));
    IS(n, 3);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    IS(*(unsigned *)flag, 0);
    IS(wrong(p, 1 << 20, 5, s), 262144);
    for (int i = 0; i < 3; i++) {
        OK(cuMemsetD8_v2(p, 0xff, 1 << 20));
        OK(cuGraphLaunch(exec, s));
        OK(cuStreamSynchronize(s));
        IS(wrong(p, 1 << 20, 5, s), 128);
        YES(*(unsigned *)flag != 0 && *(unsigned *)flag != ~0u);
    }
    OK(cuGraphExecDestroy(exec));
}

static void memory_in_graphs(void)
{
    begin();
    H s, graph, exec;
    P p;
    uint64_t before = simcuda_live_bytes(0);
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamBeginCapture_v2(s, RELAXED));
    OK(cuMemAllocAsync(&p, 1 << 20, s));
    OK(fill(p, 1 << 20, 1, s));
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    IS(simcuda_live_bytes(0), before);
}

static void built_by_hand(void)
{
    begin();
    H graph, child, a, b, c, exec, s;
    P p;
    unsigned char got[4];
    size_t n = 0;
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAlloc_v2(&p, 16));
    struct { P to; size_t pitch; unsigned value, element; size_t width, height; } set = { p, 0, 7, 1, 4, 1 };
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    OK(cuGraphAddMemsetNode(&b, child, NULL, 0, &set, NULL));
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddChildGraphNode(&b, graph, &a, 1, child));
    set.value = 9;
    set.width = 2;
    OK(cuGraphAddMemsetNode(&c, graph, &b, 1, &set, NULL));
    OK(cuGraphGetNodes(graph, NULL, &n));
    YES(n >= 3);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH_v2(got, p, 4));
    YES(got[0] == 9 && got[1] == 9 && got[2] == 7 && got[3] == 7);
}

static void refusals(void)
{
    begin();
    H s, t, e, graph = (H)1;
    OK(cuStreamCreate(&s, 0));
    OK(cuStreamCreate(&t, 1));
    OK(cuEventCreate(&e, 2));
    IS(cuStreamBeginCapture_v2(NULL, 0), 900);
    IS(cuStreamEndCapture(s, &graph), 401);
    /* The legacy stream, while a blocking stream captures. A question spoils nothing. */
    int status;
    OK(cuStreamBeginCapture_v2(s, RELAXED));
    IS(cuStreamIsCapturing(NULL, &status), 906);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, RELAXED));
    IS(spin(0, NULL), 906);
    IS(cuStreamEndCapture(s, &graph), 901);
    /* Work that does not come back to the origin. */
    OK(cuStreamBeginCapture_v2(s, RELAXED));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(spin(0, t));
    IS(cuStreamEndCapture(t, &graph), 903);
    IS(cuStreamEndCapture(s, &graph), 901);
    OK(cuStreamBeginCapture_v2(s, RELAXED));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(spin(0, t));
    IS(cuStreamEndCapture(s, &graph), 904);
    /* The stream itself. */
    OK(cuStreamBeginCapture_v2(s, RELAXED));
    IS(cuStreamSynchronize(s), 900);
    IS(cuStreamEndCapture(s, &graph), 901);
    OK(spin(0, t));
    OK(spin(0, s));
    OK(cuCtxSynchronize());
}

static const Case cases[] = {
    { "table", table }, { "effects", effects }, { "memory-in-graphs", memory_in_graphs },
    { "built-by-hand", built_by_hand }, { "refusals", refusals },
};
CASES(cases)
