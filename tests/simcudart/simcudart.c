/* A libcudart.so.13 for tests, over the public driver API: stands in for NVIDIA's, which runs on a genuine driver only, so that the
 * conformance programs with a shared cudart can run on the simulated driver.
 *
 * It holds the functions that those programs use, and no more, and does what they document: finds the driver's functions by
 * cuGetProcAddress alone, makes the primary context current at the first use in a thread, loads a program's kernels when one is
 * needed, and keeps the last error of each thread. It tests our idea of cudart, not cudart.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, IMAGES = 16, ENTRIES = 256 };

/* symbol (for its type), base name, version */
#define DRIVER(X) \
    X(cuInit, "cuInit", 13000) X(cuDeviceGetCount, "cuDeviceGetCount", 13000) \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 13000) X(cuCtxGetCurrent, "cuCtxGetCurrent", 13000) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", 13000) X(cuCtxSynchronize, "cuCtxSynchronize", 12000) \
    X(cuCtxGetLimit, "cuCtxGetLimit", 13000) X(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", 13000) \
    X(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 13000) X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 13000) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 13000) X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 13000) \
    X(cuModuleLoadData, "cuModuleLoadData", 13000) X(cuModuleGetFunction, "cuModuleGetFunction", 13000) \
    X(cuModuleGetGlobal_v2, "cuModuleGetGlobal", 13000) X(cuLaunchKernel, "cuLaunchKernel", 13000) \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 13000) X(cuMemAlloc_v2, "cuMemAlloc", 13000) X(cuMemFree_v2, "cuMemFree", 13000) \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 13000) X(cuMemHostAlloc, "cuMemHostAlloc", 13000) X(cuMemFreeHost, "cuMemFreeHost", 13000) \
    X(cuMemHostRegister_v2, "cuMemHostRegister", 13000) X(cuMemHostUnregister, "cuMemHostUnregister", 13000) \
    X(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 13000) X(cuMemHostGetFlags, "cuMemHostGetFlags", 13000) \
    X(cuMemAllocManaged, "cuMemAllocManaged", 13000) X(cuMemPrefetchAsync_v2, "cuMemPrefetchAsync", 13000) \
    X(cuMemAllocAsync, "cuMemAllocAsync", 13000) X(cuMemFreeAsync, "cuMemFreeAsync", 13000) \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 13000) X(cuMemPoolCreate, "cuMemPoolCreate", 13000) \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 13000) X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 13000) \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 13000) X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 13000) \
    X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 13000) X(cuDeviceGetMemPool, "cuDeviceGetMemPool", 13000) \
    X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 13000) X(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 13000) \
    X(cuMemcpy, "cuMemcpy", 13000) X(cuMemcpyAsync, "cuMemcpyAsync", 13000) X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 13000) \
    X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 13000) X(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 13000) \
    X(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 13000) X(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 13000) \
    X(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 13000) X(cuMemcpyPeer, "cuMemcpyPeer", 13000) \
    X(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 13000) X(cuMemcpy3D_v2, "cuMemcpy3D", 13000) \
    X(cuMemsetD8_v2, "cuMemsetD8", 13000) X(cuMemsetD8Async, "cuMemsetD8Async", 13000) X(cuMemsetD2D8_v2, "cuMemsetD2D8", 13000) \
    X(cuArray3DCreate_v2, "cuArray3DCreate", 13000) X(cuArrayDestroy, "cuArrayDestroy", 13000) \
    X(cuArray3DGetDescriptor_v2, "cuArray3DGetDescriptor", 13000) \
    X(cuTexObjectCreate, "cuTexObjectCreate", 13000) X(cuTexObjectDestroy, "cuTexObjectDestroy", 13000) \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 13000) \
    X(cuStreamCreate, "cuStreamCreate", 13000) X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 13000) \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 13000) X(cuStreamSynchronize, "cuStreamSynchronize", 13000) \
    X(cuStreamQuery, "cuStreamQuery", 13000) X(cuStreamWaitEvent, "cuStreamWaitEvent", 13000) \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", 13000) X(cuEventCreate, "cuEventCreate", 13000) \
    X(cuEventRecord, "cuEventRecord", 13000) X(cuEventDestroy_v2, "cuEventDestroy", 13000) \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 13000) X(cuStreamEndCapture, "cuStreamEndCapture", 13000) \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 13000) \
    X(cuGraphCreate, "cuGraphCreate", 13000) X(cuGraphDestroy, "cuGraphDestroy", 13000) \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 13000) X(cuGraphLaunch, "cuGraphLaunch", 13000) \
    X(cuGraphUpload, "cuGraphUpload", 13000) X(cuGraphExecDestroy, "cuGraphExecDestroy", 13000) \
    X(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 13000) X(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 13000) \
    X(cuGraphAddMemsetNode, "cuGraphAddMemsetNode", 13000) X(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode", 13000) \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 13000) X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 13000) \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 13000)

#define FIELD(symbol, base, version) __typeof__(&symbol) symbol;
static struct { DRIVER(FIELD) __typeof__(&cuGetProcAddress_v2) get; } D;

static cudaError_t load_error = cudaSuccess;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[DEVICES];
static int unloading, resets;
static _Thread_local cudaError_t last;
static _Thread_local int device, resets_seen;

struct image { const void *data; CUmodule module[DEVICES]; };
struct entry { struct image *image; const void *host; const char *name; };
static struct image images[IMAGES];
static struct entry entries[ENTRIES]; /* functions and variables alike */
static int image_count, entry_count;

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library) *(void **)&D.get = dlsym(library, "cuGetProcAddress_v2");
    if (!D.get) {
        load_error = cudaErrorInsufficientDriver;
        return;
    }
#define RESOLVE(symbol, base, version) \
    if (D.get(base, (void **)&D.symbol, version, 0, NULL) || !D.symbol) load_error = cudaErrorSymbolNotFound;
    DRIVER(RESOLVE)
    if (!load_error) load_error = (cudaError_t)D.cuInit(0);
}

/* Like the real one, it is gone once its own destructors have run. */
__attribute__((destructor)) static void unload(void) { unloading = 1; }

static cudaError_t keep(cudaError_t code)
{
    if (code) last = code;
    return code;
}

static cudaError_t loaded(void)
{
    if (unloading) return cudaErrorCudartUnloading;
    pthread_once(&load_once, load);
    return load_error;
}

/* The device's primary context is current in this thread, unless the program has made another one so. After a reset, by whichever thread,
 * it is made current anew. */
static cudaError_t ready(void)
{
    CUcontext current = NULL;
    cudaError_t code = loaded();
    if (code) return code;
    if ((code = (cudaError_t)D.cuCtxGetCurrent(&current))) return code;
    if (current && resets_seen == __atomic_load_n(&resets, __ATOMIC_ACQUIRE)) return cudaSuccess;
    resets_seen = __atomic_load_n(&resets, __ATOMIC_ACQUIRE);
    pthread_mutex_lock(&lock);
    if (!primary[device]) code = (cudaError_t)D.cuDevicePrimaryCtxRetain(&primary[device], device);
    pthread_mutex_unlock(&lock);
    return code ? code : (cudaError_t)D.cuCtxSetCurrent(primary[device]);
}

#define BEGIN \
    do { \
        cudaError_t code_ = ready(); \
        if (code_) return keep(code_); \
    } while (0)
#define CALL(expression) return keep((cudaError_t)(expression))
#define INVALID(condition) \
    do { \
        if (condition) return keep(cudaErrorInvalidValue); \
    } while (0)
#define P(pointer) ((CUdeviceptr)(size_t)(pointer))

/* ---------------------------------------------------------------- errors */

const char *cudaGetErrorName(cudaError_t error)
{
    switch ((int)error) {
#define NAME(name) case name: return #name;
#include "errors.inc"
    }
    return "unrecognized error code";
}
cudaError_t cudaPeekAtLastError(void) { return last; }
cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last;
    last = cudaSuccess;
    return code;
}

/* --------------------------------------------------------------- devices */

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t code = loaded();
    *count = 0;
    CALL(code ? code : (cudaError_t)D.cuDeviceGetCount(count));
}
cudaError_t cudaSetDevice(int ordinal)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code) return code;
    if (ordinal < 0 || ordinal >= count || ordinal >= DEVICES) return keep(cudaErrorInvalidDevice);
    device = ordinal;
    CALL(loaded() ? load_error : (cudaError_t)D.cuCtxSetCurrent(primary[device]) ? cudaSuccess : ready());
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
    cudaError_t code = loaded();
    CALL(code ? code : (cudaError_t)D.cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, ordinal));
}
cudaError_t cudaDeviceSynchronize(void) { BEGIN; CALL(D.cuCtxSynchronize()); }
cudaError_t cudaDeviceReset(void)
{
    cudaError_t code = loaded();
    if (code) return keep(code);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < image_count; i++) images[i].module[device] = NULL;
    primary[device] = NULL;
    code = (cudaError_t)D.cuDevicePrimaryCtxReset_v2(device);
    pthread_mutex_unlock(&lock);
    __atomic_add_fetch(&resets, 1, __ATOMIC_RELEASE);
    return keep(code);
}
cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) { BEGIN; CALL(D.cuCtxGetLimit(value, (CUlimit)limit)); }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { BEGIN; CALL(D.cuCtxGetStreamPriorityRange(least, greatest)); }
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { BEGIN; CALL(D.cuDeviceCanAccessPeer(can, one, other)); }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CUcontext context = NULL;
    BEGIN;
    INVALID(peer < 0 || peer >= DEVICES);
    cudaError_t code = (cudaError_t)D.cuDevicePrimaryCtxRetain(&context, peer);
    CALL(code ? code : (cudaError_t)D.cuCtxEnablePeerAccess(context, flags));
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) { BEGIN; CALL(D.cuMemGetInfo_v2(free_bytes, total)); }

static cudaError_t entry_point(const char *name, void **function, int version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    BEGIN;
    CUresult code = D.get(name, function, version, flags, &found);
    if (status) *status = (enum cudaDriverEntryPointQueryResult)found;
    CALL(code);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    return entry_point(name, function, (int)version, flags, status);
}
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
    return entry_point(name, function, CUDART_VERSION, flags, status);
}

/* ---------------------------------------------------------------- memory */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    CUdeviceptr block = 0;
    INVALID(!pointer);
    BEGIN;
    *pointer = NULL;
    if (!bytes) return cudaSuccess;
    cudaError_t code = (cudaError_t)D.cuMemAlloc_v2(&block, bytes);
    if (!code) *pointer = (void *)(size_t)block;
    return keep(code);
}
cudaError_t cudaFree(void *pointer)
{
    BEGIN;
    if (!pointer) return cudaSuccess;
    CALL(D.cuMemFree_v2(P(pointer)));
}
cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr block = 0;
    INVALID(!pointer || !pitch);
    BEGIN;
    if (!width || !height) {
        *pointer = NULL;
        *pitch = 0;
        return cudaSuccess;
    }
    INVALID(width > INT32_MAX);
    cudaError_t code = (cudaError_t)D.cuMemAllocPitch_v2(&block, pitch, width, height, 4);
    if (!code) *pointer = (void *)(size_t)block;
    return keep(code);
}
cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width, extent.height * extent.depth);
}
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) { BEGIN; CALL(D.cuMemHostAlloc(pointer, bytes, flags)); }
cudaError_t cudaMallocHost(void **pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void *pointer)
{
    BEGIN;
    if (!pointer) return cudaSuccess;
    CALL(D.cuMemFreeHost(pointer));
}
cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) { BEGIN; CALL(D.cuMemHostRegister_v2(pointer, bytes, flags)); }
cudaError_t cudaHostUnregister(void *pointer) { BEGIN; CALL(D.cuMemHostUnregister(pointer)); }
cudaError_t cudaHostGetFlags(unsigned *flags, void *pointer) { BEGIN; CALL(D.cuMemHostGetFlags(flags, pointer)); }
cudaError_t cudaHostGetDevicePointer(void **pointer, void *host, unsigned flags)
{
    CUdeviceptr address = 0;
    BEGIN;
    cudaError_t code = (cudaError_t)D.cuMemHostGetDevicePointer_v2(&address, host, flags);
    if (!code) *pointer = (void *)(size_t)address;
    return keep(code);
}
cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) 
{
    BEGIN;
    *pointer = NULL;
    if (!bytes) return cudaSuccess;
    CALL(D.cuMemAllocManaged((CUdeviceptr *)pointer, bytes, flags));
}
cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t bytes, struct cudaMemLocation location, unsigned flags, cudaStream_t stream)
{
    CUmemLocation where = { .type = (CUmemLocationType)location.type, .id = location.id };
    BEGIN;
    CALL(D.cuMemPrefetchAsync_v2(P(pointer), bytes, where, flags, stream));
}
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) 
{
    BEGIN;
    *pointer = NULL;
    if (!bytes) return cudaSuccess;
    CALL(D.cuMemAllocAsync((CUdeviceptr *)pointer, bytes, stream));
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) { BEGIN; CALL(D.cuMemFreeAsync(P(pointer), stream)); }
cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    BEGIN;
    CALL(D.cuMemAllocFromPoolAsync((CUdeviceptr *)pointer, bytes, (CUmemoryPool)pool, stream));
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    BEGIN;
    CALL(D.cuMemPoolCreate((CUmemoryPool *)pool, (const CUmemPoolProps *)properties));
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { BEGIN; CALL(D.cuMemPoolDestroy((CUmemoryPool)pool)); }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) { BEGIN; CALL(D.cuMemPoolTrimTo((CUmemoryPool)pool, bytes)); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    BEGIN;
    CALL(D.cuMemPoolGetAttribute((CUmemoryPool)pool, (CUmemPool_attribute)attribute, value));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    BEGIN;
    CALL(D.cuMemPoolSetAttribute((CUmemoryPool)pool, (CUmemPool_attribute)attribute, value));
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal) { BEGIN; CALL(D.cuDeviceGetDefaultMemPool((CUmemoryPool *)pool, ordinal)); }
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal) { BEGIN; CALL(D.cuDeviceGetMemPool((CUmemoryPool *)pool, ordinal)); }
cudaError_t cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool) { BEGIN; CALL(D.cuDeviceSetMemPool(ordinal, (CUmemoryPool)pool)); }
cudaError_t cudaDeviceGraphMemTrim(int ordinal) { BEGIN; CALL(D.cuDeviceGraphMemTrim(ordinal)); }

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    unsigned type = 0, managed = 0;
    int ordinal = -2;
    CUdeviceptr address = 0;
    void *host = NULL;
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER };
    void *values[] = { &type, &managed, &ordinal, &address, &host };
    BEGIN;
    cudaError_t code = (cudaError_t)D.cuPointerGetAttributes(5, which, values, P(pointer));
    if (code) return keep(code);
    memset(attributes, 0, sizeof *attributes);
    if (managed) attributes->type = cudaMemoryTypeManaged;
    else if (type == CU_MEMORYTYPE_DEVICE) attributes->type = cudaMemoryTypeDevice;
    else if (type == CU_MEMORYTYPE_HOST) attributes->type = cudaMemoryTypeHost;
    attributes->device = ordinal;
    attributes->devicePointer = (void *)(size_t)address;
    attributes->hostPointer = attributes->type == cudaMemoryTypeUnregistered ? (void *)(size_t)pointer : host;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer) { BEGIN; CALL(D.cuIpcGetMemHandle((CUipcMemHandle *)handle, P(pointer))); }
cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags)
{
    CUipcMemHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof driver_handle);
    BEGIN;
    CALL(D.cuIpcOpenMemHandle_v2((CUdeviceptr *)pointer, driver_handle, flags));
}
cudaError_t cudaIpcCloseMemHandle(void *pointer) { BEGIN; CALL(D.cuIpcCloseMemHandle(P(pointer))); }

/* ---------------------------------------------------------------- copies */

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    BEGIN;
    if (!bytes) return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToHost: memcpy(to, from, bytes); return cudaSuccess;
    case cudaMemcpyHostToDevice: CALL(D.cuMemcpyHtoD_v2(P(to), from, bytes));
    case cudaMemcpyDeviceToHost: CALL(D.cuMemcpyDtoH_v2(to, P(from), bytes));
    case cudaMemcpyDeviceToDevice: CALL(D.cuMemcpyDtoD_v2(P(to), P(from), bytes));
    case cudaMemcpyDefault: CALL(D.cuMemcpy(P(to), P(from), bytes));
    default: return keep(cudaErrorInvalidMemcpyDirection);
    }
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    BEGIN;
    if (!bytes) return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice: CALL(D.cuMemcpyHtoDAsync_v2(P(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost: CALL(D.cuMemcpyDtoHAsync_v2(to, P(from), bytes, stream));
    case cudaMemcpyDeviceToDevice: CALL(D.cuMemcpyDtoDAsync_v2(P(to), P(from), bytes, stream));
    default: CALL(D.cuMemcpyAsync(P(to), P(from), bytes, stream));
    }
}
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    CUcontext one = NULL, other = NULL;
    BEGIN;
    cudaError_t code = (cudaError_t)D.cuDevicePrimaryCtxRetain(&one, to_device);
    if (!code) code = (cudaError_t)D.cuDevicePrimaryCtxRetain(&other, from_device);
    CALL(code ? code : (cudaError_t)D.cuMemcpyPeer(P(to), one, P(from), other, bytes));
}
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    BEGIN;
    if (!bytes) return cudaSuccess;
    CALL(D.cuMemsetD8_v2(P(to), (unsigned char)value, bytes));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    BEGIN;
    if (!bytes) return cudaSuccess;
    CALL(D.cuMemsetD8Async(P(to), (unsigned char)value, bytes, stream));
}
cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
    BEGIN;
    CALL(D.cuMemsetD2D8_v2(P(to), pitch, (unsigned char)value, width, height));
}
cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent extent)
{
    cudaError_t code = cudaSuccess;
    for (size_t z = 0; z < extent.depth && !code; z++)
        code = cudaMemset2D((char *)to.ptr + z * to.pitch * to.ysize, to.pitch, value, extent.width, extent.height);
    return code;
}

static CUmemorytype source_type(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
        : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}
static CUmemorytype target_type(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
        : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static cudaError_t copy_2d(const void *from, size_t from_pitch, CUarray from_array, void *to, size_t to_pitch, CUarray to_array,
                           size_t x, size_t y, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy = { 0 };
    copy.srcMemoryType = from_array ? CU_MEMORYTYPE_ARRAY : source_type(kind);
    copy.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : target_type(kind);
    copy.srcArray = from_array;
    copy.dstArray = to_array;
    copy.srcHost = from;
    copy.dstHost = to;
    copy.srcDevice = P(from);
    copy.dstDevice = P(to);
    copy.srcPitch = from_pitch;
    copy.dstPitch = to_pitch;
    if (from_array) copy.srcXInBytes = x, copy.srcY = y;
    if (to_array) copy.dstXInBytes = x, copy.dstY = y;
    copy.WidthInBytes = width;
    copy.Height = height;
    BEGIN;
    CALL(D.cuMemcpy2DUnaligned_v2(&copy));
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return copy_2d(from, from_pitch, NULL, to, to_pitch, NULL, 0, 0, width, height, kind);
}
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return copy_2d(from, pitch, NULL, NULL, 0, (CUarray)to, x, y, width, height, kind);
}
cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return copy_2d(NULL, 0, (CUarray)(size_t)from, to, pitch, NULL, x, y, width, height, kind);
}
/* Bytes of an element of an array; 1 without one, since widths are bytes then. */
static size_t element_bytes(cudaArray_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR what = { 0 };
    if (!array || D.cuArray3DGetDescriptor_v2(&what, (CUarray)array)) return 1;
    size_t each = what.Format == CU_AD_FORMAT_UNSIGNED_INT8 || what.Format == CU_AD_FORMAT_SIGNED_INT8 ? 1
        : what.Format == CU_AD_FORMAT_UNSIGNED_INT32 || what.Format == CU_AD_FORMAT_SIGNED_INT32 || what.Format == CU_AD_FORMAT_FLOAT ? 4 : 2;
    return each * what.NumChannels;
}
cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D copy = { 0 };
    size_t scale;
    BEGIN;
    scale = element_bytes(p->srcArray ? p->srcArray : p->dstArray);
    copy.srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : source_type(p->kind);
    copy.dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : target_type(p->kind);
    copy.srcArray = (CUarray)p->srcArray;
    copy.dstArray = (CUarray)p->dstArray;
    copy.srcHost = p->srcPtr.ptr;
    copy.dstHost = p->dstPtr.ptr;
    copy.srcDevice = P(p->srcPtr.ptr);
    copy.dstDevice = P(p->dstPtr.ptr);
    copy.srcPitch = p->srcPtr.pitch;
    copy.dstPitch = p->dstPtr.pitch;
    copy.srcHeight = p->srcPtr.ysize;
    copy.dstHeight = p->dstPtr.ysize;
    copy.srcXInBytes = p->srcPos.x * (p->srcArray ? scale : 1), copy.srcY = p->srcPos.y, copy.srcZ = p->srcPos.z;
    copy.dstXInBytes = p->dstPos.x * (p->dstArray ? scale : 1), copy.dstY = p->dstPos.y, copy.dstZ = p->dstPos.z;
    copy.WidthInBytes = p->extent.width * scale;
    copy.Height = p->extent.height;
    copy.Depth = p->extent.depth;
    CALL(D.cuMemcpy3D_v2(&copy));
}

/* ---------------------------------------------------------------- arrays */

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){ x, y, z, w, kind };
}
cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channel, struct cudaExtent extent, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR what = { .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags };
    what.NumChannels = channel->w ? 4 : channel->y ? 2 : 1;
    if (channel->f == cudaChannelFormatKindFloat) what.Format = channel->x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    else what.Format = (CUarray_format)((channel->f == cudaChannelFormatKindSigned ? 8 : 0) | (channel->x == 8 ? 1 : channel->x == 16 ? 2 : 3));
    BEGIN;
    CALL(D.cuArray3DCreate_v2((CUarray *)array, &what));
}
cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channel, size_t width, size_t height, unsigned flags)
{
    return cudaMalloc3DArray(array, channel, (struct cudaExtent){ width, height, 0 }, flags);
}
cudaError_t cudaFreeArray(cudaArray_t array)
{
    BEGIN;
    if (!array) return cudaSuccess;
    CALL(D.cuArrayDestroy((CUarray)array));
}
/* Textures are read by kernels that the simulated driver does not have. */
cudaError_t cudaCreateTextureObject(cudaTextureObject_t *texture, const struct cudaResourceDesc *resource, const struct cudaTextureDesc *how, const struct cudaResourceViewDesc *view)
{
    (void)texture, (void)resource, (void)how, (void)view;
    return keep(cudaErrorNotSupported);
}
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture) { BEGIN; CALL(D.cuTexObjectDestroy(texture)); }

/* ----------------------------------------------------- streams and events */

cudaError_t cudaStreamCreate(cudaStream_t *stream) { BEGIN; CALL(D.cuStreamCreate(stream, 0)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { BEGIN; CALL(D.cuStreamCreate(stream, flags)); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) { BEGIN; CALL(D.cuStreamCreateWithPriority(stream, flags, priority)); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { BEGIN; CALL(D.cuStreamDestroy_v2(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { BEGIN; CALL(D.cuStreamSynchronize(stream)); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { BEGIN; CALL(D.cuStreamQuery(stream)); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { BEGIN; CALL(D.cuStreamWaitEvent(stream, event, flags)); }
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) { BEGIN; CALL(D.cuLaunchHostFunc(stream, function, argument)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { BEGIN; CALL(D.cuEventCreate(event, flags)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { BEGIN; CALL(D.cuEventRecord(event, stream)); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { BEGIN; CALL(D.cuEventDestroy_v2(event)); }

/* ------------------------------------------------------ capture and graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) { BEGIN; CALL(D.cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode)); }
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) { BEGIN; CALL(D.cuStreamEndCapture(stream, graph)); }
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { BEGIN; CALL(D.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode)); }
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) { BEGIN; CALL(D.cuGraphCreate(graph, flags)); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { BEGIN; CALL(D.cuGraphDestroy(graph)); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph, unsigned long long flags) { BEGIN; CALL(D.cuGraphInstantiateWithFlags(instance, graph, flags)); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) { BEGIN; CALL(D.cuGraphLaunch(instance, stream)); }
cudaError_t cudaGraphUpload(cudaGraphExec_t instance, cudaStream_t stream) { BEGIN; CALL(D.cuGraphUpload(instance, stream)); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) { BEGIN; CALL(D.cuGraphExecDestroy(instance)); }
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, struct cudaMemAllocNodeParams *p)
{
    BEGIN;
    CALL(D.cuGraphAddMemAllocNode(node, graph, needs, count, (CUDA_MEM_ALLOC_NODE_PARAMS *)p));
}
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, void *pointer)
{
    BEGIN;
    CALL(D.cuGraphAddMemFreeNode(node, graph, needs, count, P(pointer)));
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, const struct cudaMemsetParams *p)
{
    CUcontext context = NULL;
    CUDA_MEMSET_NODE_PARAMS params = { .dst = P(p->dst), .pitch = p->pitch, .value = p->value, .elementSize = p->elementSize, .width = p->width, .height = p->height };
    BEGIN;
    D.cuCtxGetCurrent(&context);
    CALL(D.cuGraphAddMemsetNode(node, graph, needs, count, &params, context));
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *needs, size_t count, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUcontext context = NULL;
    CUDA_MEMCPY3D copy = { .srcMemoryType = source_type(kind), .dstMemoryType = target_type(kind), .srcHost = from, .dstHost = to, .srcDevice = P(from),
                           .dstDevice = P(to), .srcPitch = bytes, .dstPitch = bytes, .srcHeight = 1, .dstHeight = 1, .WidthInBytes = bytes, .Height = 1, .Depth = 1 };
    BEGIN;
    D.cuCtxGetCurrent(&context);
    CALL(D.cuGraphAddMemcpyNode(node, graph, needs, count, &copy, context));
}

/* ------------------------------------------------- the program's own code */

void **__cudaRegisterFatBinary(void *wrapper)
{
    if (image_count == IMAGES) abort();
    images[image_count].data = wrapper;
    return (void **)&images[image_count++];
}
void __cudaRegisterFatBinaryEnd(void **image) { (void)image; }
void __cudaUnregisterFatBinary(void **image)
{
    for (int i = 0; i < entry_count; i++)
        if (entries[i].image == (struct image *)image) entries[i].host = NULL;
}
static void add_entry(void **image, const void *host, const char *name)
{
    if (entry_count == ENTRIES) abort();
    entries[entry_count++] = (struct entry){ (struct image *)image, host, name };
}
void __cudaRegisterFunction(void **image, const char *host, char *function, const char *name, int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
    (void)function, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
    add_entry(image, host, name);
}
void __cudaRegisterVar(void **image, char *host, char *address, const char *name, int external, size_t size, int constant, int global)
{
    (void)address, (void)external, (void)size, (void)constant, (void)global;
    add_entry(image, host, name);
}

static struct entry *find(const void *host)
{
    for (int i = 0; i < entry_count; i++)
        if (entries[i].host == host) return &entries[i];
    return NULL;
}

static cudaError_t module_of(struct entry *entry, CUmodule *module)
{
    cudaError_t code = cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!entry->image->module[device]) code = (cudaError_t)D.cuModuleLoadData(&entry->image->module[device], entry->image->data);
    *module = entry->image->module[device];
    pthread_mutex_unlock(&lock);
    return code;
}

static _Thread_local struct { dim3 grid, block; size_t shared; void *stream; } pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *(void **)stream = pushed.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)find(host);
    return *kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream)
{
    struct entry *entry = (struct entry *)kernel;
    CUmodule module;
    CUfunction function;
    if (!entry) return keep(cudaErrorInvalidDeviceFunction);
    BEGIN;
    cudaError_t code = module_of(entry, &module);
    if (!code) code = (cudaError_t)D.cuModuleGetFunction(&function, module, entry->name);
    if (code) return keep(code);
    CALL(D.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, arguments, NULL));
}

static cudaError_t symbol(const void *host, CUdeviceptr *address, size_t *bytes)
{
    struct entry *entry = find(host);
    CUmodule module;
    if (!entry) return cudaErrorInvalidSymbol;
    cudaError_t code = ready();
    if (!code) code = module_of(entry, &module);
    return code ? code : (cudaError_t)D.cuModuleGetGlobal_v2(address, bytes, module, entry->name);
}
cudaError_t cudaGetSymbolAddress(void **pointer, const void *host)
{
    CUdeviceptr address = 0;
    size_t bytes;
    cudaError_t code = symbol(host, &address, &bytes);
    if (!code) *pointer = (void *)(size_t)address;
    return keep(code);
}
cudaError_t cudaGetSymbolSize(size_t *bytes, const void *host)
{
    CUdeviceptr address;
    return keep(symbol(host, &address, bytes));
}
static cudaError_t symbol_part(const void *host, size_t bytes, size_t offset, char **at)
{
    CUdeviceptr address = 0;
    size_t size = 0;
    cudaError_t code = symbol(host, &address, &size);
    if (!code && (offset > size || bytes > size - offset)) code = cudaErrorInvalidValue;
    *at = (char *)(size_t)address + offset;
    return code;
}
cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    char *at;
    cudaError_t code = symbol_part(host, bytes, offset, &at);
    return code ? keep(code) : cudaMemcpy(at, from, bytes, kind);
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *host, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    char *at;
    cudaError_t code = symbol_part(host, bytes, offset, &at);
    return code ? keep(code) : cudaMemcpy(to, at, bytes, kind);
}
cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *host, size_t bytes, size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    char *at;
    cudaError_t code = symbol_part(host, bytes, offset, &at);
    return code ? keep(code) : cudaMemcpyAsync(to, at, bytes, kind, stream);
}
