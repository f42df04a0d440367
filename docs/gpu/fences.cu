// What a barrier of the whole context costs beside so many streams: nvcc -O2 fences.cu -lcuda. Its output on an H200 is fences.txt.
#include <cuda.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>
using Clock = std::chrono::steady_clock;
static double now() { return std::chrono::duration<double, std::nano>(Clock::now().time_since_epoch()).count(); }
#define OK(x) do { CUresult r_ = (x); if (r_) { printf("%s: %d\n", #x, r_); return 1; } } while (0)
__global__ void tiny() {}
template <class F> static double median(F one) {
  std::vector<double> times;
  for (int round = 0; round < 15; round++) {
    double start = now();
    for (int i = 0; i < 100; i++) one();
    times.push_back((now() - start) / 100);
    cuCtxSynchronize();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}
int main() {
  CUdevice device; CUcontext context; CUevent event;
  OK(cuInit(0)); OK(cuDeviceGet(&device, 0)); OK(cuDevicePrimaryCtxRetain(&context, device)); OK(cuCtxSetCurrent(context));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  std::vector<cudaStream_t> streams;
  printf("%8s %18s %22s %22s %22s\n", "streams", "barrier, ns", "3 launches, ns", "barrier + 3, ns", "more than both, ns");
  for (size_t count : {2, 8, 32, 64, 128, 256}) {
    while (streams.size() < count) {
      cudaStream_t stream;
      if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return 1;
      tiny<<<1, 1, 0, stream>>>();
      streams.push_back(stream);
    }
    tiny<<<1, 1>>>();
    OK(cuCtxSynchronize());
    auto barrier = [&] { cuCtxRecordEvent(context, event); cuCtxWaitEvent(context, event); };
    auto launches = [&] { tiny<<<1, 1, 0, streams[0]>>>(); tiny<<<1, 1, 0, streams[1]>>>(); tiny<<<1, 1>>>(); };
    median(launches);
    double alone = median(barrier), work = median(launches), both = median([&] { barrier(); launches(); });
    printf("%8zu %18.0f %22.0f %22.0f %22.0f\n", count, alone, work, both, both - alone - work);
  }
  return 0;
}
