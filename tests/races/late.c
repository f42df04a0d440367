/* usage: late ROUNDS    Blocks are freed while kernels that write to them are queued, and used again at once from elsewhere: another stream,
 * another thread, a graph, a side context that is being destroyed. Whoever gets the memory next must never see the late write.
 */
#include "../sim-driver/tests/c/simtest.h"

enum { THREADS = 4, KINDS = 7 };
static const size_t sizes[] = { 512, 4096, 100000, 1 << 20, 3 << 20 };
static H primary, legacy_fill, legacy_module;
static int rounds;
static long seen[KINDS], wrong_blocks;
/* A wait for the whole context spoils a capture, natively too. */
static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER;

#define MUST(call) \
    do { \
        int code_ = (call); \
        if (code_) { \
            fprintf(stderr, "%s:%d: %s answers %d\n", __FILE__, __LINE__, #call, code_); \
            exit(3); \
        } \
    } while (0)

static unsigned next(unsigned *state)
{
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state;
}

static void fill_late(P p, unsigned long long n, unsigned seed, unsigned microseconds, H stream, H function)
{
    unsigned long long ns = microseconds * 1000ull;
    void *a[] = { &p, &n, &seed, &ns };
    MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, a, NULL));
}

/* The block is the caller's alone: what it writes is what it reads, now and a little later. */
static void use(P p, size_t n, unsigned value, H stream, unsigned char *host)
{
    for (int again = 0; again < 2; again++) {
        if (!again) MUST(cuMemsetD8Async(p, (unsigned char)value, n, stream));
        MUST(cuMemcpyDtoHAsync_v2(host, p, n, stream));
        MUST(cuStreamSynchronize(stream));
        for (size_t i = 0; i < n; i++)
            if (host[i] != (unsigned char)value) {
                __atomic_add_fetch(&wrong_blocks, 1, __ATOMIC_RELAXED);
                fprintf(stderr, "byte %zu of a block of %zu is %02x, not %02x (look %d)\n", i, n, host[i], (unsigned char)value, again);
                return;
            }
        if (!again && value % 4 == 0) usleep(200);
    }
}

static H graph_of(P p, size_t n, unsigned seed, unsigned microseconds, H stream)
{
    H graph, executable;
    pthread_rwlock_rdlock(&captures);
    MUST(cuStreamBeginCapture_v2(stream, 2));
    fill_late(p, n, seed, microseconds, stream, legacy_fill);
    MUST(cuStreamEndCapture(stream, &graph));
    pthread_rwlock_unlock(&captures);
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    MUST(cuGraphDestroy(graph));
    return executable;
}

static void *worker(void *argument)
{
    unsigned state = 7919 * (unsigned)(1 + (intptr_t)argument);
    H streams[4] = { 0, (H)2 }, side, side_stream, side_module, side_fill, popped;
    unsigned char *host = malloc(4 << 20);
    P held[8] = { 0 };
    MUST(cuCtxSetCurrent(primary));
    MUST(cuStreamCreate(&streams[2], 0));
    MUST(cuStreamCreate(&streams[3], 1));
    for (int round = 0; round < rounds; round++) {
        size_t n = sizes[next(&state) % 5];
        unsigned kind = next(&state) % KINDS, seed = next(&state), late = next(&state) % 3 * 150;
        /* Making and ending a context is slow. */
        if (kind == 5 && next(&state) % 4) kind = 2;
        P p;
        H executable = NULL;
        if (kind == 6) {
            /* Copies, too, are late. */
            P q;
            MUST(cuMemAlloc_v2(&p, n));
            MUST(cuMemAlloc_v2(&q, n));
            fill_late(q, n, seed, late, streams[3], legacy_fill);
            MUST(cuMemcpyDtoDAsync_v2(p, q, n, streams[3]));
            MUST(cuMemFree_v2(q));
            MUST(cuMemFree_v2(p));
        } else if (kind == 5) {
            MUST(cuMemAlloc_v2(&p, n));
            MUST(cuCtxCreate_v2(&side, 0, 0));
            MUST(cuModuleLoadData(&side_module, "any image"));
            MUST(cuModuleGetFunction(&side_fill, side_module, "k_spin_fill"));
            MUST(cuStreamCreate(&side_stream, 1));
            fill_late(p, n, seed, 500, side_stream, side_fill);
            MUST(cuCtxPopCurrent_v2(&popped));
            MUST(cuMemFree_v2(p));
            MUST(cuCtxDestroy_v2(side));
        } else {
            MUST(cuMemAlloc_v2(&p, n));
            if (kind == 4) {
                executable = graph_of(p, n, seed, late, streams[3]);
                MUST(cuGraphLaunch(executable, streams[2]));
            } else {
                fill_late(p, n, seed, late, streams[kind], legacy_fill);
            }
            MUST(seed % 3 ? cuMemFree_v2(p) : cuMemFreeAsync(p, kind == 4 ? streams[2] : streams[kind]));
            if (executable) MUST(cuGraphExecDestroy(executable));
        }
        __atomic_add_fetch(&seen[kind], 1, __ATOMIC_RELAXED);
        /* Most likely the same memory, or what another thread has just freed. */
        MUST(cuMemAlloc_v2(&p, n));
        use(p, n, seed >> 8, streams[next(&state) % 4], host);
        unsigned at = seed % 8;
        if (held[at]) MUST(cuMemFree_v2(held[at]));
        held[at] = p;
        if (round % 64 == 63) {
            /* More than the limit: everything cached goes back first. */
            P none;
            if (cuMemAlloc_v2(&none, 3ull << 30) == 0) MUST(cuMemFree_v2(none));
        }
        if (seed % 97 == 0) {
            pthread_rwlock_wrlock(&captures);
            MUST(cuCtxSynchronize());
            pthread_rwlock_unlock(&captures);
        }
    }
    for (int i = 0; i < 8; i++)
        if (held[i]) MUST(cuMemFree_v2(held[i]));
    free(host);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    rounds = argc > 1 ? atoi(argv[1]) : 100;
    primary = begin();
    legacy_module = the_module;
    MUST(cuModuleGetFunction(&legacy_fill, legacy_module, "k_spin_fill"));
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < KINDS; i++) YES(seen[i] > 0 || rounds < 50);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    printf("%d frees of busy memory, %ld wrong; the driver holds %llu bytes\n", rounds * THREADS, wrong_blocks, (unsigned long long)simcuda_live_bytes(0));
    return wrong_blocks || failures || simcuda_live_bytes(0);
}
