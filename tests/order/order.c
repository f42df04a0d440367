/* usage: order WAY [large]    order race US [large]    order ending thread|self    Late work of the legacy stream, and the first use of another one.
 *
 * A kernel on the legacy stream writes late to a block, the block is freed, and a new block of that size is made: with one stream in
 * the process the pool may hand out the same memory at once. Then work reaches another stream for the first time, in the given
 * WAY, and writes to the new block. No late write may be seen there. The last line says whether the memory came back.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *H;
typedef uint64_t P;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(H *, int);
int cuCtxCreate_v2(H *, unsigned, int);
int cuCtxDestroy_v2(H);
int cuCtxSetCurrent(H);
int cuCtxSynchronize(void);
int cuStreamQuery(H);
int cuIpcGetMemHandle(void *, P);
int cuMemcpyPeerAsync(P, H, P, H, size_t, H);
int cuModuleLoadData(H *, const void *);
int cuModuleGetFunction(H *, H, const char *);
int cuMemAlloc_v2(P *, size_t);
int cuMemFree_v2(P);
int cuMemsetD8Async(P, unsigned char, size_t, H);
int cuMemsetD8Async_ptsz(P, unsigned char, size_t, H);
int cuMemcpyDtoH_v2(void *, P, size_t);
int cuMemcpyDtoHAsync_v2(void *, P, size_t, H);
int cuStreamCreate(H *, unsigned);
int cuStreamCreateWithPriority(H *, unsigned, int);
int cuStreamSynchronize(H);
int cuStreamWaitEvent(H, H, unsigned);
int cuEventCreate(H *, unsigned);
int cuEventRecord(H, H);
int cuGetExportTable(const void **, const void *);
int cuLaunchHostFunc(H, void (*)(void *), void *);
int cuLaunchKernel(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
int cuLaunchKernel_ptsz(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
typedef struct { unsigned shape[6], shared; H stream; void *attributes; unsigned count; } Config;
typedef struct { int id, pad; uint64_t value[8]; } Attribute;
int cuLaunchKernelEx(const Config *, H, void **, void **);

#define OK(call) do { int code_ = (call); if (code_) { fprintf(stderr, "%s: %d\n", #call, code_); exit(2); } } while (0)
enum { PER_THREAD = 2, NON_BLOCKING = 1, LARGE = 3 << 20 };
static size_t SIZE = 1 << 20; /* or large, which is scrubbed and not cut beside its own dirt */
static H context, spin_fill, fill;

static void late_write(P block, uint64_t ns)
{
    uint64_t size = SIZE;
    unsigned seed = 7;
    void *arguments[] = { &block, &size, &seed, &ns };
    OK(cuLaunchKernel(spin_fill, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
}

static unsigned char host[LARGE];
static int is_filled(int byte)
{
    for (size_t i = 0; i < SIZE; i++)
        if (host[i] != byte) return 0;
    return 1;
}

static void write_on(H stream, P block)
{
    OK(cuMemsetD8Async(block, 0x55, SIZE, stream));
}

static void *from_thread(void *block)
{
    H stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    write_on(stream, (P)block);
    return NULL;
}

/* A host function, in which the driver refuses every call. */
static H made;
static volatile int may_call, has_called;
static void call_back(void *block)
{
    while (!may_call) usleep(100);
    if (!cuMemsetD8Async((P)block, 0, 1, made)) printf("set in a host function\n");
    has_called = 1;
}

/* As a tool is called back, inside a call of the program's that takes its time. */
static P written_inside;
static void inside(int signal)
{
    (void)signal;
    has_called = !cuMemsetD8Async(written_inside, 0x55, SIZE, made);
}

/* The end of a context waits for a host function, and that for a thread, or for itself, in a call that ends the order. */
static volatile int may_return;
static void *look_up(void *unused)
{
    const void *table;
    (void)unused;
    usleep(100000);
    cuGetExportTable(&table, "0123456789abcdef");
    may_return = 1;
    return NULL;
}
static void await_other(void *unused)
{
    (void)unused;
    while (!may_return) usleep(100);
}
static void call_late(void *block)
{
    usleep(200000);
    for (int i = 0; i < 3; i++)
        if (!cuMemsetD8Async((P)block, 0, 1, made)) printf("set in a host function\n");
}
static void end_context(const char *by)
{
    H other;
    P block;
    pthread_t thread;
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuStreamCreate(&made, NON_BLOCKING));
    OK(cuMemAlloc_v2(&block, SIZE));
    if (!strcmp(by, "thread")) {
        OK(cuLaunchHostFunc(NULL, await_other, NULL));
        pthread_create(&thread, NULL, look_up, NULL);
    } else {
        OK(cuLaunchHostFunc(NULL, call_late, (void *)block));
    }
    OK(cuCtxDestroy_v2(other));
    if (!strcmp(by, "thread")) pthread_join(thread, NULL);
    printf("ended\n");
}

/* A context of another device, with a stream and a block full of 0x55. */
static H peer, peer_stream;
static P peer_block;
static void meet_peer(void)
{
    OK(cuCtxCreate_v2(&peer, 0, 1));
    OK(cuStreamCreate(&peer_stream, NON_BLOCKING));
    OK(cuMemAlloc_v2(&peer_block, SIZE));
    write_on(peer_stream, peer_block);
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(context));
}

static void use(const char *way, P block)
{
    H stream;
    uint64_t size = SIZE;
    unsigned seed = 1;
    void *arguments[] = { &block, &size, &seed };
    if (!strcmp(way, "created")) {
        OK(cuStreamCreate(&stream, NON_BLOCKING));
        write_on(stream, block);
    } else if (!strcmp(way, "prioritised")) {
        OK(cuStreamCreateWithPriority(&stream, NON_BLOCKING, 0));
        write_on(stream, block);
    } else if (!strcmp(way, "handle")) {
        write_on((H)PER_THREAD, block);
    } else if (!strcmp(way, "twin")) {
        OK(cuMemsetD8Async_ptsz(block, 0x55, SIZE, NULL));
    } else if (!strcmp(way, "launched-handle")) {
        OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, (H)PER_THREAD, arguments, NULL));
        write_on(NULL, block);
    } else if (!strcmp(way, "launched-twin")) {
        OK(cuLaunchKernel_ptsz(fill, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
        write_on(NULL, block);
    } else if (!strcmp(way, "configured")) {
        Config config = { { 1, 1, 1, 32, 1, 1 }, 0, (H)PER_THREAD, NULL, 0 };
        OK(cuLaunchKernelEx(&config, fill, arguments, NULL));
        write_on(NULL, block);
    } else if (!strcmp(way, "programmatic")) {
        Attribute attribute = { 6, 0, { 1 } };
        Config config = { { 1, 1, 1, 32, 1, 1 }, 0, NULL, &attribute, 1 };
        OK(cuLaunchKernelEx(&config, fill, arguments, NULL));
        write_on(NULL, block);
    } else if (!strcmp(way, "table")) {
        static const unsigned char private[17] = "0123456789abcdef";
        const void *table;
        cuGetExportTable(&table, private);
        write_on(NULL, block);
    } else if (!strcmp(way, "context")) {
        OK(cuCtxCreate_v2(&stream, 0, 0));
        OK(cuCtxSetCurrent(context));
        write_on(NULL, block);
    } else if (!strcmp(way, "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, from_thread, (void *)block);
        pthread_join(thread, NULL);
    } else if (!strcmp(way, "called-back")) {
        may_call = 1;
        while (!has_called) usleep(100);
        write_on(made, block);
    } else if (!strcmp(way, "inside")) {
        OK(cuStreamCreate(&made, NON_BLOCKING));
        written_inside = block;
        signal(SIGALRM, inside);
        ualarm(10000, 0);
        OK(cuMemcpyDtoH_v2(host, block, 1)); /* waits for the late write */
        while (!has_called) usleep(100);
    } else if (!strcmp(way, "peer")) {
        OK(cuCtxSetCurrent(peer));
        OK(cuMemcpyPeerAsync(block, context, peer_block, peer, SIZE, peer_stream));
        OK(cuStreamSynchronize(peer_stream));
        OK(cuCtxSetCurrent(context));
    } else if (!strcmp(way, "exported")) {
        char handle[64];
        OK(cuIpcGetMemHandle(handle, block));
        if (cuStreamQuery(NULL)) printf("exported while it is written\n");
        write_on(NULL, block);
    } else if (!strcmp(way, "never")) {
        /* Streams that are made and get no work, as cuBLAS makes them; tables that compilers and NVML ask for; a cluster shape, and
         * leave not taken, to start early. */
        static const unsigned char quiet[][17] = {
            "\xda\x91\x51\xd3\x3a\xe6\xcc\x41\xa5\xc0\x4f\x26\xd5\x33\xe3\x28",
            "\x69\xa2\x8e\x9f\x24\x49\x8b\x47\xb0\x30\xc5\xda\x33\x0e\xa4\xe9",
            "\x17\x34\xdc\x26\x80\x0d\x47\x45\x87\x26\xc0\xf1\xe7\xdd\x8b\xca",
        };
        const void *table;
        H event;
        Attribute attributes[] = { { 4, 0, { 1 } }, { 6, 0, { 0 } } };
        Config config = { { 1, 1, 1, 32, 1, 1 }, 0, (H)1, attributes, 2 };
        for (int i = 0; i < 3; i++) cuGetExportTable(&table, quiet[i]); /* whether the driver has it or not */
        OK(cuStreamCreate(&stream, 0));
        OK(cuStreamCreateWithPriority(&stream, NON_BLOCKING, 0));
        OK(cuEventCreate(&event, 0));
        OK(cuEventRecord(event, NULL));
        OK(cuStreamWaitEvent(stream, event, 0));
        OK(cuEventRecord(event, stream));
        OK(cuLaunchKernelEx(&config, fill, arguments, NULL));
        write_on((H)1, block);
    } else {
        exit(3);
    }
}

/* The legacy stream's thread reuses memory all the time while the other one uses its first stream. */
static volatile int stop;
static void *reuse(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; !stop; i++) {
        P block;
        OK(cuMemAlloc_v2(&block, SIZE));
        late_write(block, 300000);
        OK(cuMemFree_v2(block));
        usleep(100);
        if (i % 4 == 3) OK(cuStreamSynchronize(NULL)); /* else the queue grows for ever */
    }
    return NULL;
}

static void race(unsigned us)
{
    pthread_t thread;
    H stream;
    P block[4];
    pthread_create(&thread, NULL, reuse, NULL);
    usleep(us);
    for (int i = 0; i < 4; i++) OK(cuMemAlloc_v2(&block[i], SIZE));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            if (round) {
                OK(cuMemFree_v2(block[i]));
                OK(cuMemAlloc_v2(&block[i], SIZE));
            }
            write_on(stream, block[i]);
            OK(cuStreamSynchronize(stream));
            usleep(600);
            OK(cuMemcpyDtoHAsync_v2(host, block[i], SIZE, stream));
            OK(cuStreamSynchronize(stream));
            if (!is_filled(0x55)) printf("late write seen\n");
        }
    }
    stop = 1;
    pthread_join(thread, NULL);
}

int main(int count, char **argument)
{
    H module;
    P block, again;
    if (count < 2) return 3;
    if (!strcmp(argument[1], "ending")) {
        OK(cuInit(0));
        end_context(argument[2]);
        return 0;
    }
    if (!strcmp(argument[count - 1], "large")) SIZE = LARGE;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, ""));
    OK(cuModuleGetFunction(&spin_fill, module, "k_spin_fill"));
    OK(cuModuleGetFunction(&fill, module, "k_fill"));
    if (!strcmp(argument[1], "race")) {
        race((unsigned)atoi(argument[2]));
        printf("done\n");
        return 0;
    }
    if (!strcmp(argument[1], "peer")) meet_peer();
    OK(cuMemAlloc_v2(&block, SIZE));
    if (!strcmp(argument[1], "called-back")) {
        OK(cuStreamCreate(&made, NON_BLOCKING));
        OK(cuLaunchHostFunc(NULL, call_back, (void *)block));
    }
    late_write(block, 50000000);
    OK(cuMemFree_v2(block));
    OK(cuMemAlloc_v2(&again, SIZE));
    use(argument[1], again);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(host, again, SIZE));
    if (!is_filled(0x55)) printf("late write seen\n");
    printf("%s\n", block == again ? "same" : "other");
    return 0;
}
