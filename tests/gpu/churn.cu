// The churn program on the runtime API, with kernels.
#include "churn.h"
#include <cuda_runtime.h>

#define CHECK(call) \
    do { \
        cudaError_t e = (call); \
        if (e != cudaSuccess) { \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(e)); \
            exit(2); \
        } \
    } while (0)

static unsigned long long *total, *device_total;  // pinned, so that a free has to wait as natively

__global__ void churn_fill(unsigned *words, size_t count, unsigned seed)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step) words[i] = seed + (unsigned)i;
}

__global__ void churn_sum(const unsigned *words, size_t count, unsigned long long *total)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step) mine += words[i];
    if (mine) atomicAdd(total, mine);
}

static void setup(void)
{
    CHECK(cudaMallocHost((void **)&total, sizeof *total));
    CHECK(cudaMalloc((void **)&device_total, sizeof *total));
}

static address allocate(size_t bytes)
{
    void *block;
    CHECK(cudaMalloc(&block, bytes));
    return (address)(size_t)block;
}

static void release(address block) { CHECK(cudaFree((void *)(size_t)block)); }

static void fill(address block, size_t bytes, unsigned seed)
{
    churn_fill<<<64, 256>>>((unsigned *)(size_t)block, bytes / 4, seed);
    CHECK(cudaGetLastError());
}

static unsigned long long sum(address block, size_t bytes)
{
    CHECK(cudaMemset(device_total, 0, sizeof *total));
    churn_sum<<<64, 256>>>((const unsigned *)(size_t)block, bytes / 4, device_total);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(total, device_total, sizeof *total, cudaMemcpyDeviceToHost));
    return *total;
}

int main(int argc, char **argv)
{
    int status = churn(argc, argv);
    CHECK(cudaFree(device_total));
    CHECK(cudaFreeHost(total));
    return status;
}
