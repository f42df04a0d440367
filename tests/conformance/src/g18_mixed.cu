// Group 18: the runtime and the driver API on the same blocks.
#include <cuda.h>
#include "gpu.cuh"
#include "said.h"

static CUdeviceptr address(void *p) { return (CUdeviceptr)(uintptr_t)p; }
static void *pointer(CUdeviceptr p) { return (void *)(uintptr_t)p; }

static const size_t k_sizes[] = { 1, 5000, MiB(1), MiB(3), MiB(40) };

static void freed_by_the_other()
{
    need_device();
    warm();
    for (size_t n : k_sizes) {
        void *p = nullptr;
        CUdeviceptr q = 0;
        size_t pitch = 0;
        CK(cudaMalloc(&p, n));
        say("driver-frees", cuMemFree(address(p)));
        say("runtime-again", cudaFree(p));
        say("last", cudaGetLastError());
        say("driver-again", cuMemFree(address(p)));
        say("alloc", cuMemAlloc(&q, n));
        say("runtime-frees", cudaFree(pointer(q)));
        say("driver-again", cuMemFree(q));
        say("runtime-again", cudaFree(pointer(q)));
        say("last", cudaGetLastError());
        CK(cudaMallocPitch(&p, &pitch, n < 100000 ? n : 70000, 3));
        say("driver-frees-pitched", cuMemFree(address(p)));
        say("runtime-again", cudaFree(p));
        say("last", cudaGetLastError());
        char key[32];
        snprintf(key, sizeof key, "n%zu", n);
        flush(key);
    }
}

static void asked_by_the_other()
{
    need_device();
    warm();
    for (size_t n : k_sizes) {
        CUdeviceptr q, base;
        size_t size;
        cudaPointerAttributes a;
        CUresult e = cuMemAlloc(&q, n);
        REQUIRE(e == CUDA_SUCCESS, "cuMemAlloc: %d", (int)e);
        memset(&a, 0, sizeof a);
        say("attributes", cudaPointerGetAttributes(&a, pointer(q + n - 1)));
        say("type", a.type);
        say("device", a.device);
        say("pointer", a.devicePointer == pointer(q + n - 1));
        fill(pointer(q), n, 7);
        verify(pointer(q), n, 7, "a block of the driver API");
        std::vector<char> h(n + 1);
        say("to-host", cudaMemcpy(h.data(), pointer(q), n, cudaMemcpyDeviceToHost));
        say("to-host-past", cudaMemcpy(h.data(), pointer(q), n + 1, cudaMemcpyDeviceToHost));
        say("set-past", cudaMemset(pointer(q), 1, n + 1));
        cudaGetLastError();
        CK(cudaFree(pointer(q)));
        say("freed-type", cudaPointerGetAttributes(&a, pointer(q)));
        say("type", a.type);
        say("range", cuMemGetAddressRange(&base, &size, q));
        say("to-host-freed", cudaMemcpy(h.data(), pointer(q), 1, cudaMemcpyDeviceToHost));
        say("last", cudaGetLastError());
        char key[32];
        snprintf(key, sizeof key, "n%zu", n);
        flush(key);
    }
}

static void errors_of_each()
{
    // What fails in the driver API is no error of the runtime's, and the other way round.
    need_device();
    warm();
    void *p = nullptr;
    CUdeviceptr q = 5;
    CK(cudaMalloc(&p, 5000));
    say("driver-interior", cuMemFree(address(p) + 512));
    say("peek", cudaPeekAtLastError());
    say("driver-huge", cuMemAlloc(&q, (size_t)1 << 45));
    say("peek", cudaPeekAtLastError());
    say("runtime-interior", cudaFree((char *)p + 512));
    say("peek", cudaPeekAtLastError());
    CK(cudaFree(p));
    say("still", cudaPeekAtLastError());
    say("get", cudaGetLastError());
    say("get-again", cudaGetLastError());
    void *z = (void *)5;
    say("runtime-huge", cudaMalloc(&z, (size_t)1 << 45));
    say("place", z == nullptr ? 0 : z == (void *)5 ? 5 : 1);
    say("get", cudaGetLastError());
    z = (void *)5;
    say("runtime-zero", cudaMalloc(&z, 0));
    say("place", z == nullptr ? 0 : z == (void *)5 ? 5 : 1);
    say("get", cudaGetLastError());
    say("runtime-null", cudaMalloc(nullptr, 100));
    say("get", cudaGetLastError());
    flush("errors");
}

static void under_own_context()
{
    // The runtime goes on in a context that the program made current itself.
    need_device();
    warm();
    CUcontext mine, popped;
    void *p = nullptr, *q = nullptr;
    CK(cudaMalloc(&p, 70000));
    CUresult e = cuCtxCreate_v4(&mine, nullptr, 0, 0);
    REQUIRE(e == CUDA_SUCCESS, "cuCtxCreate: %d", (int)e);
    say("malloc", cudaMalloc(&q, 70000));
    CUcontext of = nullptr;
    say("context", cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, address(q)));
    say("mine", of == mine);
    say("free-other", cudaFree(p));
    cuCtxPopCurrent(&popped);
    say("free-here", cudaFree(q));
    say("again", cudaFree(q));
    say("last", cudaGetLastError());
    CK(cudaMalloc(&p, 70000));
    cuCtxPushCurrent(mine);
    CK(cudaMalloc(&q, 70000));
    cuCtxDestroy(mine);
    say("free-destroyed", cudaFree(q));
    say("last", cudaGetLastError());
    say("free", cudaFree(p));
    flush("context");
}

static void reset_of_each()
{
    need_device();
    warm();
    void *p = nullptr;
    CUdeviceptr q = 0;
    CK(cudaMalloc(&p, 70000));
    say("alloc", cuMemAlloc(&q, MiB(3)));
    CK(cudaDeviceReset());
    warm();
    say("driver-frees-gone", cuMemFree(q));
    say("driver-frees-gone-runtime", cuMemFree(address(p)));
    say("runtime-frees-gone", cudaFree(p));
    say("last", cudaGetLastError());
    say("alloc", cuMemAlloc(&q, MiB(3)));
    unsigned char first = 9;
    say("copy", cuMemcpyDtoH(&first, q, 1));
    say("zero", first);
    say("free", cudaFree(pointer(q)));
    flush("reset");
}

static const conf_case cases[] = {
    { "freed-by-the-other", freed_by_the_other }, { "asked-by-the-other", asked_by_the_other },
    { "errors-of-each", errors_of_each }, { "under-own-context", under_own_context }, { "reset-of-each", reset_of_each },
};
CONF_MAIN(cases)
