/* A libcuda.so.1 which only leads to another libcuda.so.1 (INNER_DRIVER), as WSL's does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#define NAMES(X) \
    X(cuInit) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice) \
    X(cuCtxSynchronize) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem_v2) X(cuDriverGetVersion) \
    X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) \
    X(cuMemsetD8Async) X(cuPointerGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) \
    X(cuDevicePrimaryCtxGetState) X(cuStreamCreate) X(cuStreamWaitEvent)

#define FUNCTION(name) \
    __attribute__((visibility("hidden"))) void *inner_##name; \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n\tjmp *inner_" #name "(%rip)\n.size " #name ", . - " #name);
NAMES(FUNCTION)

__attribute__((constructor)) static void start(void)
{
    void *inner = dlopen(getenv("INNER_DRIVER"), RTLD_NOW);
    if (!inner) abort();
#define FIND(name) inner_##name = dlsym(inner, #name);
    NAMES(FIND)
}

/* Room between the symbols and the code. */
#ifdef PADDED
#define TEN(x) X(x##0) X(x##1) X(x##2) X(x##3) X(x##4) X(x##5) X(x##6) X(x##7) X(x##8) X(x##9)
#define X(x) int a_name_that_takes_more_room_than_any_of_the_functions_above_##x;
TEN(0) TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)
TEN(10) TEN(11) TEN(12) TEN(13) TEN(14) TEN(15) TEN(16) TEN(17) TEN(18) TEN(19)
#endif
