/* The few driver functions that the C programs call, so that they build without a CUDA toolkit.
 * -DLINKED: resolved by the linker (-lcuda). Else from dlopen("libcuda.so.1").
 */
#ifndef DRIVER_H
#define DRIVER_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define DRIVER_FUNCTIONS(X) \
    X(cuInit, (unsigned)) \
    X(cuDeviceGet, (int *, int)) \
    X(cuDevicePrimaryCtxRetain, (void **, int)) \
    X(cuCtxSetCurrent, (void *)) \
    X(cuDeviceTotalMem_v2, (size_t *, int)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *)) \
    X(cuMemAlloc_v2, (unsigned long long *, size_t)) \
    X(cuMemFree_v2, (unsigned long long)) \
    X(cuMemsetD8_v2, (unsigned long long, unsigned char, size_t)) \
    X(cuMemsetD32Async, (unsigned long long, unsigned, size_t, void *)) \
    X(cuMemcpyHtoD_v2, (unsigned long long, const void *, size_t)) \
    X(cuMemcpyDtoH_v2, (void *, unsigned long long, size_t)) \
    X(cuMemcpyDtoDAsync_v2, (unsigned long long, unsigned long long, size_t, void *)) \
    X(cuMemcpyDtoHAsync_v2, (void *, unsigned long long, size_t, void *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuStreamCreate, (void **, unsigned)) \
    X(cuStreamSynchronize, (void *)) \
    X(cuStreamDestroy_v2, (void *))

#ifdef LINKED
#define DECLARE(name, arguments) extern int name arguments;
#else
#define DECLARE(name, arguments) static int (*name) arguments;
#endif
DRIVER_FUNCTIONS(DECLARE)

#define DRIVER(call) \
    do { \
        int code = (call); \
        if (code) { \
            fprintf(stderr, "%s: CUDA error %d\n", #call, code); \
            exit(2); \
        } \
    } while (0)

static void *context; /* device 0's primary context */

/* Makes it current. */
static void open_device(void)
{
    int device;
#ifndef LINKED
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define RESOLVE(name, arguments) \
    if (!(*(void **)&name = dlsym(library, #name))) { \
        fprintf(stderr, "no " #name " in the driver\n"); \
        exit(2); \
    }
    DRIVER_FUNCTIONS(RESOLVE)
#endif
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    DRIVER(cuCtxSetCurrent(context));
}
#endif
