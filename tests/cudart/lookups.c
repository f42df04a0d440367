/* The real runtime library on the simulated driver: it makes all its look-ups, then fails, since the simulated driver cannot and does
 * not prove itself genuine. Prints cudaMalloc's answer, then allocates once through the driver, so that there is a report to read the
 * look-ups from.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

int cudaMalloc(void **pointer, size_t bytes);
int cudaGetLastError(void);
int cudaRuntimeGetVersion(int *version);
const char *cudaGetErrorName(int error);

int main(void)
{
    void *pointer = NULL, *context = NULL, *library;
    int version = 0, device = 0, code, again, last;
    unsigned long long block = 0;
    cudaRuntimeGetVersion(&version);
    code = cudaMalloc(&pointer, 1000);
    last = cudaGetLastError();
    again = cudaMalloc(&pointer, 1000);
    printf("cudart %d: %s, %s, %s\n", version, cudaGetErrorName(code), cudaGetErrorName(last), cudaGetErrorName(again));

    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 2;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*allocate)(unsigned long long *, size_t);
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(library, "cuCtxSetCurrent");
    *(void **)&allocate = dlsym(library, "cuMemAlloc_v2");
    code = init(0);
    if (!code) code = retain(&context, device);
    if (!code) code = set(context);
    if (!code) code = allocate(&block, 1000);
    printf("driver: %d\n", code);
    return code;
}
