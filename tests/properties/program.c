/* usage: program [-g] [-i IMAGE] [-s SECONDS] OPERATIONS JOBS    Runs random programs and prints what they see, one line an operation.
 *
 * JOBS is a file with a program a line: its seed, and the numbers of the operations to run, all if there are none. They run one after the other in
 * this process, since a GPU takes a second for a process; each leaves the driver as it found it, but for what the pool has cached by then.
 * -g: programs for a GPU (operations.h). -i: the file with the kernels; the simulated driver needs none. -s: no program begins after so long.
 *
 * Threads take turns, so that what is printed depends on nothing but the driver's answers. Work on one block is ordered by events; nothing orders
 * it with what a freed block was used for, because the driver's cuMemFree owes that. Addresses, handles, and memory that nobody has written to
 * and that is not known to be zero natively are not printed. Lines that begin with `host`, `zero` or `aligned` tell what CUSHION_MODE=fast gives up;
 * a `zero` line that ends with 0 says that the driver promises nothing there.
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
    int managed;
    int written; /* every byte of it, by the program */
    H event[CONTEXTS];
} memory_slot;

static H contexts[CONTEXTS], modules[CONTEXTS];
static stream_slot streams[STREAMS];
static memory_slot slots[SLOTS];
static struct { unsigned *address; int context; } hosts[HOSTS];
static int captures, current[THREADS], me, gpu;
static const char *image = "any image";
static unsigned char host[64 << 20]; /* what was read last */
enum { MANAGED_MAX = 64 << 20 };

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
    if (!code) code = cuLaunchKernel(f, 24, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
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

/* Whether the block may be freed now. What a context does to another's memory while that is freed, nobody has measured on a GPU. */
static int may_free(memory_slot *m)
{
    if (!gpu || !m->busy || (m->busy_context == m->context && current[me] == m->context)) return 1;
    if (captures) return 0;
    IS(cuEventSynchronize(m->event[m->busy_context]), 0);
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

static uint64_t managed_bytes(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < SLOTS; i++) sum += slots[i].managed ? slots[i].bytes : 0;
    return sum;
}

/* Reads a block into `host`; a sum of its bytes. */
static uint64_t contents(P p, uint64_t bytes, int *code)
{
    /* A copy that writes nothing, or too little, must show. */
    for (uint64_t i = 0; i < bytes; i += 1024) host[i] = 0xEE;
    if (bytes) host[bytes - 1] = 0xEE;
    *code = cuMemcpyDtoH_v2(host, p, bytes);
    uint64_t sum = 0xcbf29ce484222325u, i = 0, word;
    for (; i + sizeof word <= bytes; i += sizeof word) memcpy(&word, host + i, sizeof word), sum = (sum ^ word) * 0x100000001b3u;
    for (; i < bytes; i++) sum = (sum ^ host[i]) * 0x100000001b3u;
    return sum;
}

static int all_zero(uint64_t bytes) { return host[0] == 0 && memcmp(host, host + 1, bytes - 1) == 0; }

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

/* Captures end, what is left is read and freed, and the driver is as it was. */
static void conclude(int count)
{
    for (int s = 1; s < STREAMS; s++)
        if (streams[s].capturing) run(count, &(operation){ .kind = CAPTURE_END, .stream = s, .thread = streams[s].capturing - 1 });
    cuCtxSetCurrent(contexts[0]);
    settle();
    for (int i = 0; i < SLOTS; i++) {
        run(count, &(operation){ .kind = READ, .slot = i });
        run(count, &(operation){ .kind = FREE, .slot = i });
    }
    cuCtxSetCurrent(contexts[0]);
    settle();
    for (int s = 2; s < STREAMS; s++)
        if (streams[s].handle) IS(cuStreamDestroy_v2(streams[s].handle), 0);
    for (int h = 0; h < HOSTS; h++)
        if (hosts[h].address) IS(cuMemFreeHost(hosts[h].address), 0);
    for (int c = 1; c < CONTEXTS; c++)
        if (contexts[c]) {
            IS(cuCtxDestroy_v2(contexts[c]), 0);
            contexts[c] = modules[c] = NULL;
        }
    memset(streams, 0, sizeof streams);
    memset(slots, 0, sizeof slots);
    memset(hosts, 0, sizeof hosts);
    memset(current, 0, sizeof current);
    captures = 0;
}

/* One line of the file of jobs. */
static void run_job(char *line, int count)
{
    static operation operations[OPERATIONS_MAX];
    static char keep[OPERATIONS_MAX];
    uint64_t seed = strtoull(line, &line, 0);
    char *next = line;
    memset(keep, 0, sizeof keep);
    int kept = 0;
    for (long n; n = strtol(line, &next, 10), next != line; line = next)
        if (n >= 0 && n < count) keep[n] = 1, kept++;
    generate(seed, operations, count, gpu);
    printf("program %llu\n", (unsigned long long)seed);
    failures = ended = 0;
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, worker, (void *)(intptr_t)t);
    /* Streams that wait for nobody, but not always: one stream alone is a case of its own. */
    for (int s = 2; s < 5 && seed % 4; s++) run(count, &(operation){ .kind = STREAM_CREATE, .stream = s, .mode = 1 });
    for (int i = 0; i < count; i++)
        if (!kept || keep[i]) run(i, &operations[i]);
    conclude(count);
    pthread_mutex_lock(&lock);
    ended = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    printf("end %llu, %d complaints\n", (unsigned long long)seed, failures);
    fflush(stdout);
}

static void read_image(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(1 << 22);
    if (!file || !bytes || !fread(bytes, 1, 1 << 22, file)) perror(path), exit(2);
    fclose(file);
    image = bytes;
}

int main(int argc, char **argv)
{
    double seconds = 1e9, began = ms();
    for (int option; (option = getopt(argc, argv, "gi:s:")) != -1;) {
        if (option == 'g') gpu = 1;
        else if (option == 'i') read_image(optarg);
        else if (option == 's') seconds = atof(optarg);
        else return 2;
    }
    if (argc - optind != 2) return 2;
    int count = atoi(argv[optind]), unhappy = 0;
    FILE *jobs = fopen(argv[optind + 1], "r");
    if (!jobs || count > OPERATIONS_MAX) return 2;
    /* Where a program crashes must be seen. */
    setvbuf(stdout, NULL, _IOLBF, 1 << 12);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    context_made(0);
    if (failures) return 1;
    printf("ready after %.0f ms\n", ms() - began);
    char *line = NULL;
    size_t size = 0;
    began = ms();
    while (ms() - began < seconds * 1e3 && getline(&line, &size, jobs) > 0) {
        run_job(line, count);
        unhappy += failures > 0;
    }
    printf("done after %.0f ms\n", ms() - began);
    fflush(stdout);
    /* The simulated driver's own count, for the test. */
    uint64_t (*live_bytes)(int) = (uint64_t (*)(int))dlsym(RTLD_DEFAULT, "simcuda_live_bytes");
    if (live_bytes) fprintf(stderr, "driver holds %llu bytes\n", (unsigned long long)live_bytes(0));
    return unhappy > 0;
}
