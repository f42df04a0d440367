/* usage: program STEPS    Uses memory in many ways while calls of the shim's own fail, and checks what it was promised.
 *
 * FAULT_CODE is the code that is injected: besides success, the program may be told that one and no other. A call that failed has done
 * nothing: a block whose free failed is as it was. What was written is read back, whoever else failed; new memory is zero; the current
 * context and the thread's capture mode are as they were left; a capture that nobody spoiled is not spoiled.
 */
#include "../sim-driver/tests/c/simtest.h"

enum { BLOCKS = 48, QUEUES = 4, STICKY = 700 };
typedef struct { P address; unsigned long long bytes; unsigned seed; int context, written, exported, unknown; } block;

static block blocks[BLOCKS];
static H contexts[2], modules[2], queues[QUEUES], events[2][QUEUES];
static int fault, complaints, current, dead, zeroed = 1;
static uint64_t state = 88172645463325252u;
static unsigned char host[3 << 20];

static unsigned below(unsigned n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state >> 11) % n;
}

#define COMPLAIN(...) (complaints++, fprintf(stderr, "complaint: " __VA_ARGS__), fputc('\n', stderr))

/* Whether a call succeeded; complains of a code that nobody can have caused. */
static int ok(int code, const char *what, int step)
{
    if (code == STICKY && fault == STICKY) dead = 1;
    if (code && code != fault) COMPLAIN("step %d: %s answers %d", step, what, code);
    return code == 0;
}
#define DO(call) ok(call, #call, step)

static int pattern_at(const unsigned char *bytes, unsigned long long n, unsigned seed)
{
    unsigned long long at = 0;
    for (; at < n && bytes[at] == (unsigned char)seed; at++) ;
    return at == n;
}

/* Everything queued in a context has ended: by the driver alone, so that no injected failure can come between. */
static void settle(int c)
{
    for (int q = 0; q < QUEUES; q++)
        if (events[c][q]) cuEventSynchronize(events[c][q]);
}

static void check(block *b, int step)
{
    if (!b->address || b->bytes > sizeof host || b->unknown) return;
    settle(0), settle(1);
    if (!DO(cuMemcpyDtoH_v2(host, b->address, b->bytes))) return;
    unsigned want = b->written ? b->seed : 0;
    if ((b->written || zeroed) && !pattern_at(host, b->bytes, want)) COMPLAIN("step %d: a block of %llu holds something else than %02x", step, b->bytes, (unsigned char)want);
}

static void allocate(block *b, unsigned long long bytes, int step)
{
    P p = 0;
    if (!DO(cuMemAlloc_v2(&p, bytes))) return;
    *b = (block){ .address = p, .bytes = bytes, .context = current };
    if (below(3) == 0) check(b, step);
}

/* Late: after a kernel that takes its time, on a queue of the block's own context. */
static void write_late(block *b, int step)
{
    unsigned q = below(QUEUES);
    unsigned long long ns = below(4) * 300000ull;
    if (!b->address || b->context != current || (q && !queues[q]) || current) return;
    void *a[] = { &ns };
    H f, stream = q ? queues[q] : NULL;
    settle(0);
    OK(cuModuleGetFunction(&f, modules[current], "k_spin"));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, a, NULL));
    unsigned seed = 1 + below(255);
    if (DO(cuMemsetD8Async(b->address, (unsigned char)seed, b->bytes, stream))) b->seed = seed, b->written = 1;
    if (!events[current][q]) OK(cuEventCreate(&events[current][q], 2));
    OK(cuEventRecord(events[current][q], stream));
}

static void free_block(block *b, int step)
{
    if (!b->address) return;
    int freed = DO(cuMemFree_v2(b->address));
    if (freed) memset(b, 0, sizeof *b);
    else if (!dead) check(b, step);
}

static void capture(int step)
{
    H graph = NULL, executable = NULL;
    block extra = { 0 };
    if (current || !queues[1]) return;
    settle(0);
    if (!DO(cuStreamBeginCapture_v2(queues[1], 2))) return;
    allocate(&extra, 1 + below(100000), step);
    extra.unknown = 1;
    for (int i = 0; i < 3; i++) free_block(&blocks[below(BLOCKS)], step);
    P p = 0;
    if (DO(cuMemAlloc_v2(&p, 4000)) && !DO(cuMemFree_v2(p)) && !dead) DO(cuMemFree_v2(p));
    int code = cuStreamEndCapture(queues[1], &graph);
    if (code && code != fault) COMPLAIN("step %d: the capture ends with %d", step, code);
    if (code && code == fault) cuStreamEndCapture(queues[1], &graph);
    if (!code && graph && DO(cuGraphInstantiateWithFlags(&executable, graph, 0))) DO(cuGraphLaunch(executable, queues[1]));
    if (executable) cuGraphExecDestroy(executable);
    if (graph) cuGraphDestroy(graph);
    extra.unknown = 0;
    check(&extra, step);
    for (int i = 0; extra.address && i < BLOCKS; i++)
        if (!blocks[i].address) blocks[i] = extra, extra.address = 0;
    free_block(&extra, step);
}

static void switch_context(int step)
{
    if (current == 0) {
        if (!contexts[1]) {
            /* The call makes it current, too. */
            if (!DO(cuCtxCreate_v2(&contexts[1], 0, 0))) return;
            OK(cuModuleLoadData(&modules[1], "any image"));
        } else {
            OK(cuCtxPushCurrent_v2(contexts[1]));
        }
        current = 1;
    } else {
        H popped;
        OK(cuCtxPopCurrent_v2(&popped));
        current = 0;
    }
}

static void destroy_side(int step)
{
    if (!contexts[1] || current) return;
    settle(0), settle(1);
    if (!DO(cuCtxDestroy_v2(contexts[1]))) return;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].context == 1) memset(&blocks[i], 0, sizeof *blocks);
    memset(events[1], 0, sizeof events[1]);
    contexts[1] = NULL;
}

static void step_once(int step)
{
    block *b = &blocks[below(BLOCKS)];
    H now = NULL;
    int mode = 0;
    switch (below(20)) {
    case 0: case 1: case 2: case 3: case 4:
        if (!b->address) allocate(b, 1 + below(below(3) ? 6000 : 3 << 20), step);
        break;
    case 5: case 6: case 7: case 8: write_late(b, step); break;
    case 9: case 10: case 11: case 12: free_block(b, step); break;
    case 13: case 14: check(b, step); break;
    case 15: if (below(2)) DO(cuCtxSynchronize()); break;
    case 16: if (below(3) == 0) capture(step); break;
    case 17: switch_context(step); break;
    case 18: if (below(3) == 0) destroy_side(step); break;
    case 19: /* past the limit: refused, after everything cached was given back */
        if (below(2)) {
            P p = 0;
            int code = cuMemAlloc_v2(&p, 900ull << 20);
            if (code != 2 && code != fault) COMPLAIN("step %d: more than there is: %d", step, code);
        } else if (b->address && !current && b->context == 0) {
            Ipc handle;
            if (DO(cuIpcGetMemHandle(&handle, b->address))) b->exported = 1;
        }
        break;
    }
    OK(cuCtxGetCurrent(&now));
    if (now != contexts[current]) COMPLAIN("step %d: another context is current", step), cuCtxSetCurrent(contexts[current]);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    if (mode) COMPLAIN("step %d: the capture mode is %d", step, mode);
    mode = 0;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 200, step = -1, left = 0;
    const char *code = getenv("FAULT_CODE"), *zero = getenv("FAULT_ZERO");
    fault = code ? atoi(code) : 0, zeroed = !zero;
    void *pinned = NULL;
    if (!DO(cuInit(0)) || !DO(cuDevicePrimaryCtxRetain(&contexts[0], 0))) return complaints != 0;
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuModuleLoadData(&modules[0], "any image"));
    for (int q = 1; q < QUEUES; q++) DO(cuStreamCreate(&queues[q], q & 1));
    for (step = 0; step < steps; step++) {
        if (step == steps / 2) DO(cuMemHostAlloc(&pinned, 4096, 0)); /* frees wait on the host from here on */
        step_once(step);
    }
    if (current) switch_context(step);
    settle(0), settle(1);
    for (int i = 0; i < BLOCKS; i++) {
        check(&blocks[i], step);
        free_block(&blocks[i], step);
        /* With one call in twenty failing, a free of three calls fails twice in fifty blocks at times; not eight times. */
        for (int again = 0; again < 7 && blocks[i].address && !dead; again++) free_block(&blocks[i], step);
        left += blocks[i].address != 0;
    }
    if (left && !dead) COMPLAIN("%d blocks cannot be freed", left);
    P p = 0;
    /* Give back what is cached; a failure may stop the first. */
    for (int i = 0; i < 3; i++) cuMemAlloc_v2(&p, 900ull << 20);
    unsigned long long kept = simcuda_live_bytes(0);
    if (kept && fault != STICKY && getenv("FAULT_ONCE")) COMPLAIN("%llu bytes stay with the driver after everything was freed and trimmed", kept);
    destroy_side(step);
    int reset = cuDevicePrimaryCtxReset_v2(0);
    if (reset && reset != fault) COMPLAIN("the reset answers %d", reset);
    if (reset) cuDevicePrimaryCtxReset_v2(0);
    fprintf(stderr, "driver holds %llu bytes\n", (unsigned long long)simcuda_live_bytes(0));
    return complaints + failures != 0;
}
