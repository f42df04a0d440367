// What waits for the device, and what does not: nvcc -O2 waits.cu -lcuda. Its output on an H200 is waits.txt.
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <atomic>
#include <chrono>
#include <algorithm>
#include <unistd.h>
using Clock = std::chrono::steady_clock;
static double now() { return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count(); }
#define OK(x) do { CUresult r_ = (x); if (r_) { printf("%s: %d\n", #x, r_); fflush(stdout); } } while (0)
__global__ void spin(long long ns) { long long t0, t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0)); do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); } while (t - t0 < ns); }
__global__ void tiny() {}
static size_t freemem() { size_t f, t; OK(cuMemGetInfo(&f, &t)); return f >> 20; }
int main() {
  OK(cuInit(0)); CUdevice d; OK(cuDeviceGet(&d, 0)); CUcontext c; OK(cuDevicePrimaryCtxRetain(&c, d)); OK(cuCtxSetCurrent(c));
  cudaStream_t s1, s2; cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking); cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking);
  tiny<<<1,1,0,s1>>>(); spin<<<1,1,0,s2>>>(1000); OK(cuCtxSynchronize());
  for (size_t mib : {2, 64, 1024}) {
    CUdeviceptr p, q; OK(cuMemAlloc(&p, mib << 20)); OK(cuMemAlloc(&q, 64 << 20)); OK(cuCtxSynchronize());
    spin<<<1,1,0,s1>>>(200000000LL);
    usleep(5000);
    double start = now(); std::atomic<double> freed{0};
    std::thread t([&] { OK(cuCtxSetCurrent(c)); double a = now(); OK(cuMemFree(p)); freed = now() - a; });
    usleep(5000);
    double worst[5] = {0}; double first[5] = {0}; int n = 0;
    while (now() - start < 150000 && n < 2000) {
      auto timed = [&](int k, auto f) { double a = now(); f(); double b = now() - a; if (!n) first[k] = b; worst[k] = std::max(worst[k], b); };
      timed(0, [&] { tiny<<<1,1,0,s2>>>(); });
      timed(1, [&] { OK(cuMemsetD8Async(q, 0, 1 << 20, s2)); });
      if (n % 100 == 0) timed(2, [&] { CUdeviceptr r; OK(cuMemAlloc(&r, 8 << 20)); (void)r; });
      timed(3, [&] { CUevent e; static CUevent ev; if (!n) OK(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING)); e = ev; OK(cuCtxRecordEvent(c, e)); });
      if (n % 100 == 0) timed(4, [&] { (void)freemem(); });
      n++; usleep(50);
    }
    bool still = freed.load() == 0; t.join();
    printf("free %zu MiB in a thread behind 200 ms: took %.0f us (running while we launched: %d); us first/worst: launch %.0f/%.0f memset %.0f/%.0f alloc %.0f/%.0f ctxrecord %.0f/%.0f meminfo %.0f/%.0f, n=%d\n",
      mib, freed.load(), still, first[0], worst[0], first[1], worst[1], first[2], worst[2], first[3], worst[3], first[4], worst[4], n);
    OK(cuCtxSynchronize()); OK(cuMemFree(q));
  }
  for (size_t mib : {2, 64, 1024}) {
    CUdeviceptr p; OK(cuMemAlloc(&p, mib << 20)); OK(cuCtxSynchronize()); size_t f0 = freemem();
    spin<<<1,1,0,s1>>>(100000000LL);
    double a = now(); OK(cuMemFreeAsync(p, (CUstream)s2)); double b = now() - a; size_t f1 = freemem();
    OK(cuStreamSynchronize((CUstream)s2)); double b2 = now() - a; size_t f2 = freemem(); OK(cuStreamSynchronize((CUstream)s1)); double b3 = now() - a; size_t f3 = freemem();
    OK(cuCtxSynchronize()); size_t f4 = freemem();
    CUdeviceptr r; double a2 = now(); CUresult rr = cuMemAlloc(&r, mib << 20); double b4 = now() - a2; size_t f5 = freemem();
    printf("freeAsync of cuMemAlloc'd %zu MiB: host %.0f us; free MiB before %zu after %zu; s2 sync %.0f us %zu; s1 sync %.0f us %zu; ctx sync %zu; alloc %d same=%d %.0f us %zu\n", mib, b, f0, f1, b2, f2, b3, f3, f4, rr, r == p, b4, f5);
    OK(cuMemFree(r)); printf("   after free %zu\n", freemem());
  }
  { // freeAsync ordered behind ctx event, stream busy
    CUdeviceptr p; OK(cuMemAlloc(&p, 256 << 20)); size_t f0 = freemem(); CUevent e; OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    spin<<<1,1,0,s1>>>(100000000LL); OK(cuCtxRecordEvent(c, e)); OK(cuStreamWaitEvent((CUstream)s2, e, 0));
    double a = now(); OK(cuMemFreeAsync(p, (CUstream)s2)); double b = now() - a; size_t f1 = freemem(); CUdeviceptr r; OK(cuMemAlloc(&r, 256 << 20)); size_t f2 = freemem();
    double b1 = now() - a; usleep(150000); size_t f3 = freemem(); OK(cuStreamQuery((CUstream)s2)); size_t f4 = freemem(); OK(cuStreamSynchronize((CUstream)s2)); size_t f5 = freemem();
    printf("freeAsync behind spin: host %.0f us, alloc by %.0f us (same address %d), free %zu %zu %zu | after 150 ms %zu query %zu sync %zu\n", b, b1, r == p, f0, f1, f2, f3, f4, f5); OK(cuMemFree(r));
  }
  { // VMM under a spin
    CUmemAllocationProp prop = {}; prop.type = CU_MEM_ALLOCATION_TYPE_PINNED; prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}; CUmemAccessDesc acc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (size_t mib : {2, 64, 1024}) {
      size_t n = mib << 20; CUdeviceptr v; double t[7]; spin<<<1,1,0,s1>>>(100000000LL); CUmemGenericAllocationHandle h;
      double a = now(); OK(cuMemAddressReserve(&v, n, 0, 0, 0)); t[0] = now() - a; a = now(); OK(cuMemCreate(&h, n, &prop, 0)); t[1] = now() - a; a = now(); OK(cuMemMap(v, n, 0, h, 0)); t[2] = now() - a;
      a = now(); OK(cuMemSetAccess(v, n, &acc, 1)); t[3] = now() - a; OK(cuMemsetD8Async(v, 7, n, (CUstream)s2)); OK(cuStreamSynchronize((CUstream)s2)); a = now(); OK(cuMemUnmap(v, n)); t[4] = now() - a; a = now(); OK(cuMemRelease(h)); t[5] = now() - a; a = now(); OK(cuMemAddressFree(v, n)); t[6] = now() - a;
      CUresult q = cuStreamQuery((CUstream)s1);
      printf("vmm %zu MiB under spin (still running %d): reserve %.0f create %.0f map %.0f access %.0f unmap %.0f release %.0f addrfree %.0f us\n", mib, q == CUDA_ERROR_NOT_READY, t[0], t[1], t[2], t[3], t[4], t[5], t[6]); OK(cuCtxSynchronize());
      // fresh contents after a dirty release
      OK(cuMemCreate(&h, n, &prop, 0)); OK(cuMemAddressReserve(&v, n, 0, 0, 0)); OK(cuMemMap(v, n, 0, h, 0)); OK(cuMemSetAccess(v, n, &acc, 1)); unsigned char x[4]; OK(cuMemcpyDtoH(x, v + n / 2, 4)); printf("   fresh handle holds %d %d\n", x[0], x[3]); OK(cuMemUnmap(v, n)); OK(cuMemRelease(h)); OK(cuMemAddressFree(v, n));
    }
  }
  { // destroyed while busy
    cudaStream_t s3; cudaStreamCreateWithFlags(&s3, cudaStreamNonBlocking); spin<<<1,1,0,s3>>>(100000000LL); double a = now(); OK(cuStreamDestroy((CUstream)s3)); double b = now() - a; CUevent e; OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING)); OK(cuCtxRecordEvent(c, e)); CUresult q = cuEventQuery(e); OK(cuEventSynchronize(e)); printf("stream destroyed while busy: destroy %.0f us, ctx event query %d, done after %.0f us (100000 = covered)\n", b, q, now() - a);
  }
}
