/* usage: program SEED COUNT [KEEP]    Runs a random program and prints what it sees, one line an operation.
 *
 * KEEP is a file with the numbers of the operations to run; all without it. Threads take turns, so that what is printed depends on nothing
 * but the driver's answers. Work on one block is ordered by events; nothing orders it with what a freed block was used for, because the
 * driver's cuMemFree owes that. Addresses and handles are not printed. Lines that begin with `host`, `zero` or `aligned` tell what
 * CUSHION_MODE=fast gives up.
 */
#include "../sim-driver/tests/c/simtest.h"
#include "operations.h"

typedef struct { H handle; int context; int capturing; } stream_slot;
typedef struct {
    P address;
    uint64_t bytes;
    int context, ordered; /* ordered: from cuMemAllocAsync */
    int busy, at, busy_context; /* work is queued, on this stream, and its event is of this context */
    int captured; /* by the capture of this stream, plus one */
    int written; /* every byte of it, by the program */
    H event[CONTEXTS];
} memory_slot;

static H contexts[CONTEXTS], modules[CONTEXTS];
static stream_slot streams[STREAMS];
static memory_slot slots[SLOTS];
static struct { unsigned *address; int context; } hosts[HOSTS];
static int captures, current[THREADS], me;
static const unsigned char image[] = "any image";

static int use_context(int c, int thread)
{
    (void)thread;
    return cuCtxSetCurrent(contexts[c]);
}

/* The handle of a stream for this thread, and in which context it is. 0 is the legacy stream, 1 the thread's own. */
static H stream_of(int s, int *context)
{
    *context = s < 2 ? current[me] : streams[s].context;
    return s < 2 ? (H)(uintptr_t)(s + 1) : streams[s].handle;
}

/* A number that two uses of the same stream share. */
static int identity(int s, int context) { return s == 0 ? context : s == 1 ? 100 + 10 * me + context : 1000 + s; }

static int launch_in(int c, const char *name, H stream, void **arguments)
{
    H f;
    if (cuCtxPushCurrent_v2(contexts[c])) return -1;
    int code = cuModuleGetFunction(&f, modules[c], name);
    if (!code) code = cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
    cuCtxPopCurrent_v2(&f);
    return code;
}

/* Whether work on the block may be queued there now; if so, it is behind the work that is queued already. */
static int may_use(memory_slot *m, int s, H *stream, int *context)
{
    *stream = stream_of(s, context);
    if (!m->address || (s > 1 && !*stream) || m->captured || (s > 1 && streams[s].capturing) || (s == 1 && streams[1].capturing)) return 0;
    if (captures && (s == 0 || (m->busy && m->at != identity(s, *context)))) return 0;
    if (m->busy && m->at != identity(s, *context)) cuStreamWaitEvent(*stream, m->event[m->busy_context], 0);
    return 1;
}

static void used(memory_slot *m, int s, H stream, int context)
{
    cuCtxPushCurrent_v2(contexts[context]);
    if (!m->event[context]) cuEventCreate(&m->event[context], 2);
    cuEventRecord(m->event[context], stream);
    H popped;
    cuCtxPopCurrent_v2(&popped);
    m->busy = 1, m->at = identity(s, context), m->busy_context = context;
}

static void emptied(memory_slot *m)
{
    for (int c = 0; c < CONTEXTS; c++)
        if (m->event[c]) cuEventDestroy_v2(m->event[c]);
    *m = (memory_slot){ 0 };
}

static uint64_t contents(P p, uint64_t bytes, int *code)
{
    static unsigned char host[16 << 20];
    memset(host, 0xEE, bytes);
    *code = cuMemcpyDtoH_v2(host, p, bytes);
    uint64_t sum = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; i++) sum = (sum ^ host[i]) * 0x100000001b3u;
    return sum;
}

static uint64_t sum_of_zeros(uint64_t bytes)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < bytes; i++) sum *= 0x100000001b3u;
    return sum;
}

/* Everything that is queued anywhere has ended. Only while nothing captures. */
static void settle(void)
{
    for (int c = 0; c < CONTEXTS; c++) {
        H popped;
        if (!contexts[c] || cuCtxPushCurrent_v2(contexts[c])) continue;
        cuCtxSynchronize();
        cuCtxPopCurrent_v2(&popped);
    }
    for (int i = 0; i < SLOTS; i++) slots[i].busy = 0;
}

static void context_gone(int c)
{
    for (int i = 0; i < SLOTS; i++) {
        slots[i].event[c] = NULL;
        if (slots[i].address && slots[i].context == c) emptied(&slots[i]);
    }
    for (int s = 2; s < STREAMS; s++)
        if (streams[s].context == c) streams[s] = (stream_slot){ 0 };
    for (int h = 0; h < HOSTS; h++)
        if (hosts[h].context == c) hosts[h].address = NULL;
    contexts[c] = modules[c] = NULL;
}

static void context_made(int c)
{
    cuCtxPushCurrent_v2(contexts[c]);
    IS(cuModuleLoadData(&modules[c], image), 0);
    H popped;
    cuCtxPopCurrent_v2(&popped);
}

#include "interpret.h"

/* One thread at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const operation *turn;
static int turn_number, ended;

static void *worker(void *argument)
{
    int thread = (int)(intptr_t)argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!ended && !(turn && turn->thread == thread)) pthread_cond_wait(&changed, &lock);
        if (ended) break;
        me = thread;
        use_context(current[me], me);
        interpret(turn_number, turn);
        turn = NULL;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void run(int number, const operation *o)
{
    pthread_mutex_lock(&lock);
    turn = o, turn_number = number;
    pthread_cond_broadcast(&changed);
    while (turn) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    static operation operations[OPERATIONS_MAX];
    static char keep[OPERATIONS_MAX];
    if (argc < 3) return 2;
    int count = atoi(argv[2]);
    if (count > OPERATIONS_MAX) return 2;
    generate(strtoull(argv[1], NULL, 0), operations, count);
    memset(keep, argc < 4, sizeof keep);
    if (argc > 3) {
        FILE *file = fopen(argv[3], "r");
        for (int n; file && fscanf(file, "%d", &n) == 1;) keep[n] = 1;
    }
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    context_made(0);
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, worker, (void *)(intptr_t)t);
    for (int i = 0; i < count; i++)
        if (keep[i]) run(i, &operations[i]);
    /* The end: captures end, what is left is read and freed. */
    for (int s = 1; s < STREAMS; s++)
        if (streams[s].capturing) run(count, &(operation){ .kind = CAPTURE_END, .stream = s, .thread = streams[s].capturing - 1 });
    for (int i = 0; i < SLOTS; i++) {
        run(count, &(operation){ .kind = READ, .slot = i });
        run(count, &(operation){ .kind = FREE, .slot = i });
    }
    pthread_mutex_lock(&lock);
    ended = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    printf("end, %d complaints\n", failures);
    fflush(stdout);
    /* The driver's own count, for the test. */
    fprintf(stderr, "driver holds %llu bytes\n", (unsigned long long)simcuda_live_bytes(0));
    return failures != 0;
}
