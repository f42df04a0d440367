/* What the test programs need of the driver API, without NVIDIA's headers. */
#ifndef SIMTEST_H
#define SIMTEST_H
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int R;
typedef uint64_t P;
typedef void *H;

R cuInit(unsigned);
R cuDriverGetVersion(int *);
R cuDeviceGetCount(int *);
R cuDeviceGet(int *, int);
R cuDeviceGetName(char *, int, int);
R cuDeviceGetAttribute(int *, int, int);
R cuDeviceTotalMem_v2(size_t *, int);
R cuDevicePrimaryCtxRetain(H *, int);
R cuDevicePrimaryCtxRelease_v2(int);
R cuDevicePrimaryCtxReset_v2(int);
R cuDevicePrimaryCtxGetState(int, unsigned *, int *);
R cuCtxCreate_v2(H *, unsigned, int);
R cuCtxCreate_v4(H *, void *, unsigned, int);
R cuCtxDestroy_v2(H);
R cuCtxSetCurrent(H);
R cuCtxGetCurrent(H *);
R cuCtxPushCurrent_v2(H);
R cuCtxPopCurrent_v2(H *);
R cuCtxGetDevice(int *);
R cuCtxGetId(H, uint64_t *);
R cuCtxSynchronize(void);
R cuCtxRecordEvent(H, H);
R cuCtxWaitEvent(H, H);
R cuCtxEnablePeerAccess(H, unsigned);
R cuMemAlloc_v2(P *, size_t);
R cuMemAllocManaged(P *, size_t, unsigned);
R cuMemAllocPitch_v2(P *, size_t *, size_t, size_t, unsigned);
R cuMemFree_v2(P);
R cuMemGetInfo_v2(size_t *, size_t *);
R cuMemGetAddressRange_v2(P *, size_t *, P);
R cuMemHostAlloc(void **, size_t, unsigned);
R cuMemFreeHost(void *);
R cuMemHostRegister_v2(void *, size_t, unsigned);
R cuMemHostUnregister(void *);
R cuMemAllocAsync(P *, size_t, H);
R cuMemFreeAsync(P, H);
R cuMemcpyHtoD_v2(P, const void *, size_t);
R cuMemcpyDtoH_v2(void *, P, size_t);
R cuMemcpyDtoD_v2(P, P, size_t);
R cuMemcpy(P, P, size_t);
R cuMemcpyHtoDAsync_v2(P, const void *, size_t, H);
R cuMemcpyDtoHAsync_v2(void *, P, size_t, H);
R cuMemcpyDtoDAsync_v2(P, P, size_t, H);
R cuMemsetD8_v2(P, unsigned char, size_t);
R cuMemsetD32_v2(P, unsigned, size_t);
R cuMemsetD8Async(P, unsigned char, size_t, H);
R cuMemsetD2D8_v2(P, size_t, unsigned char, size_t, size_t);
R cuStreamCreate(H *, unsigned);
R cuStreamDestroy_v2(H);
R cuStreamSynchronize(H);
R cuStreamQuery(H);
R cuStreamWaitEvent(H, H, unsigned);
R cuStreamBeginCapture_v2(H, int);
R cuStreamEndCapture(H, H *);
R cuStreamIsCapturing(H, int *);
R cuStreamGetCaptureInfo_v2(H, int *, uint64_t *, H *, const H **, size_t *);
R cuThreadExchangeStreamCaptureMode(int *);
R cuLaunchHostFunc(H, void (*)(void *), void *);
R cuStreamAddCallback(H, void (*)(H, R, void *), void *, unsigned);
R cuEventCreate(H *, unsigned);
R cuEventDestroy_v2(H);
R cuEventRecord(H, H);
R cuEventQuery(H);
R cuEventSynchronize(H);
R cuEventElapsedTime(float *, H, H);
R cuModuleLoadData(H *, const void *);
R cuModuleUnload(H);
R cuModuleGetFunction(H *, H, const char *);
R cuModuleGetGlobal_v2(P *, size_t *, H, const char *);
R cuLaunchKernel(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
R cuLibraryLoadData(H *, const void *, void *, void *, unsigned, void *, void *, unsigned);
R cuLibraryGetKernel(H *, H, const char *);
R cuLibraryUnload(H);
R cuGraphInstantiateWithFlags(H *, H, unsigned long long);
R cuGraphLaunch(H, H);
R cuGraphExecDestroy(H);
R cuGraphDestroy(H);
R cuGraphGetNodes(H, H *, size_t *);
R cuGraphNodeGetType(H, int *);
R cuPointerGetAttribute(void *, int, P);
R cuPointerSetAttribute(const void *, int, P);
R cuGraphAddEmptyNode(H *, H, const H *, size_t);
R cuGraphCreate(H *, unsigned);
R cuGraphAddChildGraphNode(H *, H, const H *, size_t, H);
R cuGraphAddMemsetNode(H *, H, const H *, size_t, const void *, H);
R cuStreamWriteValue32_v2(H, P, unsigned, unsigned);
R cuStreamWaitValue32_v2(H, P, unsigned, unsigned);
R cuImportExternalMemory(H *, const void *);
R cuExternalMemoryGetMappedBuffer(P *, H, const void *);
R cuDestroyExternalMemory(H);
R cuCtxGetStreamPriorityRange(int *, int *);
typedef struct { uint64_t w[8]; } Ipc;
R cuIpcGetMemHandle(Ipc *, P);
R cuIpcOpenMemHandle_v2(P *, Ipc, unsigned);
R cuIpcCloseMemHandle(P);
R cuIpcGetEventHandle(Ipc *, H);
R cuIpcOpenEventHandle(H *, Ipc);
typedef struct { unsigned type, handles, location, id; void *meta; uint64_t flags; } Prop;
typedef struct { unsigned location, id, flags; } Access;
R cuMemAddressReserve(P *, size_t, size_t, P, uint64_t);
R cuMemAddressFree(P, size_t);
R cuMemCreate(uint64_t *, size_t, const Prop *, uint64_t);
R cuMemRelease(uint64_t);
R cuMemMap(P, size_t, size_t, uint64_t, uint64_t);
R cuMemUnmap(P, size_t);
R cuMemSetAccess(P, size_t, const Access *, size_t);
R cuGetProcAddress(const char *, void **, int, uint64_t);
R cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
R cuGetExportTable(const void **, const void *);
R cuGetErrorName(R, const char **);
uint64_t simcuda_live_bytes(int);
uint64_t simcuda_live_allocations(int);

static int failures;
#define IS(call, want) \
    do { \
        long got_ = (long)(call), want_ = (long)(want); \
        if (got_ != want_) { \
            failures++; \
            fprintf(stderr, "%s:%d: %s: expected %ld, got %ld\n", __FILE__, __LINE__, #call, want_, got_); \
        } \
    } while (0)
#define OK(call) IS(call, 0)
#define YES(condition) IS(!!(condition), 1)

static inline double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static H the_module;

/* The primary context of device 0, and a module. */
static inline H begin(void)
{
    H c = NULL;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuCtxSetCurrent(c));
    OK(cuModuleLoadData(&the_module, "any image"));
    return c;
}

static inline R launch(const char *name, H stream, void **arguments)
{
    H f;
    R e = cuModuleGetFunction(&f, the_module, name);
    return e ? e : cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}

static inline R spin(unsigned long long milliseconds, H stream)
{
    unsigned long long ns = milliseconds * 1000000;
    void *a[] = { &ns };
    return launch("k_spin", stream, a);
}

static inline R fill(P p, unsigned long long n, unsigned seed, H stream)
{
    void *a[] = { &p, &n, &seed };
    return launch("k_fill", stream, a);
}

static inline R late_fill(P p, unsigned long long n, unsigned seed, unsigned long long milliseconds, H stream)
{
    unsigned long long ns = milliseconds * 1000000;
    void *a[] = { &p, &n, &seed, &ns };
    return launch("k_spin_fill", stream, a);
}

/* Wrong words in a block that should hold the pattern of seed. */
static inline unsigned long long wrong(P p, unsigned long long n, unsigned seed, H stream)
{
    unsigned slot = 0;
    unsigned long long r[3] = { 0 };
    P results;
    void *a[] = { &slot }, *b[] = { &p, &n, &seed, &slot };
    OK(cuModuleGetGlobal_v2(&results, NULL, the_module, "g_vres"));
    OK(launch("k_vreset", stream, a));
    OK(launch("k_verify", stream, b));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(r, results, sizeof r));
    return r[0];
}

typedef struct { const char *name; void (*run)(void); } Case;
static inline int run_cases(int argc, char **argv, const Case *cases, int n)
{
    for (int i = 0; i < n; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name)) continue;
        int before = failures;
        /* Each in a process of its own: the driver starts afresh. */
        pid_t pid = fork();
        if (pid == 0) {
            failures = 0;
            cases[i].run();
            fflush(NULL);
            exit(failures > 250 ? 250 : failures);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status)) {
            fprintf(stderr, "%s: signal %d\n", cases[i].name, WTERMSIG(status));
            failures++;
        } else {
            failures += WEXITSTATUS(status);
        }
        if (failures > before) fprintf(stderr, "FAIL %s\n", cases[i].name);
    }
    return failures > 0;
}
#define CASES(list) \
    int main(int argc, char **argv) { return run_cases(argc, argv, list, sizeof list / sizeof *list); }
#endif
