// Times of an allocation and its free, in nanoseconds a pair, for one allocator: which one is chosen when this is compiled.
//
//   -DDRIVER    cuMemAlloc_v2 and cuMemFree_v2, from dlopen; needs no toolkit
//   -DRUNTIME   cudaMalloc and cudaFree
//   -DASYNC     cudaMallocAsync and cudaFreeAsync on the legacy stream
//   -DTORCH     PyTorch's caching allocator
//   -DRMM       RMM's pool over cudaMalloc (RMM 26.10)
//
// usage: contest [SECONDS [PATTERN...]]     Measures, and prints `PATTERN NANOSECONDS` for each as it is done: the median of RUNS
//                                           runs after a warm one. A pattern that cannot be filled within SECONDS is left out.
//
//   pair_512B pair_1MiB pair_64MiB      the same size again and again
//   live_1000 live_100000               so many blocks of 512 B to 2 MiB, a random one replaced each time
//   threads_1 2 4 8 16                  each thread with 64 blocks of its own, of 16 sizes up to 128 KiB; wall time over all pairs
//   mixed_1 mixed_8                     the same with sizes up to 2 MiB
//   handoff                             one thread allocates, another frees, up to 1,024 later; wall time over pairs
//   handoff_alone                       one thread does both
//   streams_512B streams_1MiB streams_live   as above but for 32 streams that the program has made and used
//
// usage: contest count PATTERN PAIRS [streams]    Makes so many pairs and measures nothing, for a profiler.
// usage: contest bursts                           4,000 pairs of 512 B and a rest of 20 ms, 101 times: the median burst's nanoseconds a pair.
// usage: contest hold COUNT SECONDS               Holds so many blocks while a second thread goes on with pairs; prints the longest
//                                                 pause of that thread and its median, in nanoseconds.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#if defined(DRIVER)
#undef DRIVER // driver.h's name for a call that must succeed
#define OVER_DRIVER
#include "../gpu/driver.h"
typedef unsigned long long Block;
static void open_allocator() { open_device(); }
static void open_thread() { DRIVER(cuCtxSetCurrent(context)); }
static Block allocate(size_t bytes)
{
    Block block;
    DRIVER(cuMemAlloc_v2(&block, bytes));
    return block;
}
static void release(Block block, size_t) { DRIVER(cuMemFree_v2(block)); }
static void make_streams()
{
    for (int i = 0; i < 32; i++) {
        void *stream;
        DRIVER(cuStreamCreate(&stream, 1));
        Block block = allocate(512);
        DRIVER(cuMemsetD32Async(block, 0, 128, stream));
        DRIVER(cuStreamSynchronize(stream));
        release(block, 512);
    }
}
#else
#include <cuda_runtime_api.h>
typedef void *Block;
#define RUN(call) \
    do { \
        cudaError_t code = (call); \
        if (code) { \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code)); \
            exit(2); \
        } \
    } while (0)
#if defined(RUNTIME)
static void open_allocator() { RUN(cudaFree(nullptr)); }
static Block allocate(size_t bytes)
{
    Block block;
    RUN(cudaMalloc(&block, bytes));
    return block;
}
static void release(Block block, size_t) { RUN(cudaFree(block)); }
#elif defined(ASYNC)
static void open_allocator()
{
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull;
    RUN(cudaDeviceGetDefaultMemPool(&pool, 0));
    RUN(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}
static Block allocate(size_t bytes)
{
    Block block;
    RUN(cudaMallocAsync(&block, bytes, 0));
    return block;
}
static void release(Block block, size_t) { RUN(cudaFreeAsync(block, 0)); }
#elif defined(TORCH)
#include <c10/cuda/CUDACachingAllocator.h>
static void open_allocator()
{
    RUN(cudaFree(nullptr));
    c10::cuda::CUDACachingAllocator::init(1);
}
static Block allocate(size_t bytes) { return c10::cuda::CUDACachingAllocator::raw_alloc(bytes); }
static void release(Block block, size_t) { c10::cuda::CUDACachingAllocator::raw_delete(block); }
#elif defined(RMM) // 26.10
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
static rmm::mr::pool_memory_resource *pool;
static void open_allocator()
{
    RUN(cudaFree(nullptr));
    pool = new rmm::mr::pool_memory_resource(rmm::mr::cuda_memory_resource{}, 1ull << 30);
}
static Block allocate(size_t bytes) { return pool->allocate(cuda::stream_ref{cudaStream_t{}}, bytes, 256); }
static void release(Block block, size_t bytes) { pool->deallocate(cuda::stream_ref{cudaStream_t{}}, block, bytes, 256); }
#else
#error "which allocator?"
#endif
static void open_thread() { RUN(cudaSetDevice(0)); }
static void make_streams()
{
    for (int i = 0; i < 32; i++) {
        cudaStream_t stream;
        RUN(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        Block block = allocate(512);
        RUN(cudaMemsetAsync(block, 0, 512, stream));
        RUN(cudaStreamSynchronize(stream));
        release(block, 512);
    }
}
#endif

typedef std::chrono::steady_clock Clock;
static double ns_since(Clock::time_point start) { return std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }

struct Random {
    unsigned state;
    unsigned below(unsigned count)
    {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        return state % count;
    }
    // 512 B to 2 MiB, each octave as likely as the next.
    size_t size(unsigned octaves = 12)
    {
        unsigned octave = below(octaves);
        return ((size_t)512 << octave) + below(512u << octave);
    }
};

static const int RUNS = 5;
static const double RUN_NS = 20e6;
static double deadline_ns = 4e9;

// Runs `work(pairs)`, which does so many pairs, warm and for long enough.
template <class Work> static double measure(Work work)
{
    long pairs = 8;
    Clock::time_point began = Clock::now();
    for (;;) {
        Clock::time_point start = Clock::now();
        work(pairs);
        double took = ns_since(start);
        if (took >= RUN_NS || ns_since(began) > deadline_ns) break;
        pairs = took < RUN_NS / 16 ? pairs * 8 : pairs * 2;
    }
    std::vector<double> runs;
    for (int i = 0; i < RUNS && (i < 1 || ns_since(began) < deadline_ns); i++) {
        Clock::time_point start = Clock::now();
        work(pairs);
        runs.push_back(ns_since(start) / (double)pairs);
    }
    std::sort(runs.begin(), runs.end());
    return runs[runs.size() / 2];
}

static void pairs_of(size_t bytes, long pairs)
{
    while (pairs--) release(allocate(bytes), bytes);
}

struct Held {
    Block block;
    size_t bytes;
};

// `count` live blocks; sizes below `most` bytes if that is not 0.
struct Window {
    Random random{12345};
    std::vector<Held> live;
    unsigned most;
    explicit Window(unsigned most = 0) : most(most) {}
    size_t size() { return most ? random.below(most) + 1 : random.size(); }
    bool fill(size_t count)
    {
        Clock::time_point start = Clock::now();
        while (live.size() < count) {
            size_t bytes = size();
            live.push_back({allocate(bytes), bytes});
            if (live.size() % 64 == 0 && ns_since(start) > deadline_ns) return false;
        }
        return true;
    }
    void replace(long pairs)
    {
        while (pairs--) {
            Held &held = live[random.below((unsigned)live.size())];
            release(held.block, held.bytes);
            held.bytes = size();
            held.block = allocate(held.bytes);
        }
    }
    ~Window()
    {
        for (Held &held : live) release(held.block, held.bytes);
    }
};

static double window_of(size_t count)
{
    Window window;
    if (!window.fill(count)) return -1;
    return measure([&](long pairs) { window.replace(pairs); });
}

// Each thread replaces its own blocks, of sizes that come again as those of an iterating program do. All begin together and go on
// for a while: nanoseconds of wall time over all pairs.
static double threads_once(int count, double seconds, unsigned octaves, long most_pairs = 0)
{
    std::atomic<int> ready{0};
    std::atomic<bool> go{false}, stop{false};
    std::atomic<long> pairs{0};
    auto work = [&](unsigned seed) {
        open_thread();
        Random random{seed};
        size_t sizes[16];
        for (size_t &size : sizes) size = random.size(octaves);
        std::vector<Held> live;
        for (int i = 0; i < 64; i++) {
            size_t bytes = sizes[random.below(16)];
            live.push_back({allocate(bytes), bytes});
        }
        ready++;
        while (!go) std::this_thread::yield();
        long own = 0;
        for (; most_pairs ? own < most_pairs : !stop.load(std::memory_order_relaxed); own++) {
            Held &held = live[random.below(64)];
            release(held.block, held.bytes);
            held.bytes = sizes[random.below(16)];
            held.block = allocate(held.bytes);
        }
        pairs += own;
        for (Held &held : live) release(held.block, held.bytes);
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++) threads.emplace_back(work, 77 + i);
    while (ready < count) std::this_thread::yield();
    Clock::time_point start = Clock::now();
    go = true;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop = true;
    double took = ns_since(start);
    for (std::thread &thread : threads) thread.join();
    return took / (double)std::max(pairs.load(), 1l);
}

static double threads_of(int count, unsigned octaves = 8)
{
    std::vector<double> runs;
    threads_once(count, 0.02, octaves);
    for (int i = 0; i < RUNS; i++) runs.push_back(threads_once(count, 0.05, octaves));
    std::sort(runs.begin(), runs.end());
    return runs[RUNS / 2];
}

// A ring from the thread that allocates to the one that frees.
static void handoff_of(long pairs)
{
    static const long RING = 1024;
    static const size_t sizes[8] = {512, 4096, 1 << 16, 3000, 1 << 20, 1 << 14, 700, 1 << 18};
    std::vector<std::atomic<Block>> ring(RING);
    for (auto &place : ring) place.store(Block{});
    std::thread consumer([&] {
        open_thread();
        for (long i = 0; i < pairs; i++) {
            Block block;
            while ((block = ring[i % RING].load(std::memory_order_acquire)) == Block{}) std::this_thread::yield();
            ring[i % RING].store(Block{}, std::memory_order_release);
            release(block, sizes[i % 8]);
        }
    });
    for (long i = 0; i < pairs; i++) {
        Block block = allocate(sizes[i % 8]);
        while (ring[i % RING].load(std::memory_order_acquire) != Block{}) std::this_thread::yield();
        ring[i % RING].store(block, std::memory_order_release);
    }
    consumer.join();
}

static double handoff() { return measure(handoff_of); }

// The same by one thread, which is half a ring ahead of itself.
static double handoff_alone()
{
    static const size_t sizes[8] = {512, 4096, 1 << 16, 3000, 1 << 20, 1 << 14, 700, 1 << 18};
    static const long RING = 1024;
    return measure([&](long pairs) {
        std::vector<Block> ring(RING, Block{});
        for (long i = 0; i < pairs; i++) {
            Block &place = ring[i % RING];
            if (i >= RING) release(place, sizes[i % 8]);
            place = allocate(sizes[i % 8]);
        }
        for (long i = std::max(0l, pairs - RING); i < pairs; i++) release(ring[i % RING], sizes[i % 8]);
    });
}

static int hold(size_t count, double seconds)
{
    Window window(8192);
    deadline_ns = 1e12;
    window.fill(count);
    std::atomic<bool> stop{false};
    double longest = 0;
    std::vector<double> some;
    std::thread other([&] {
        open_thread();
        while (!stop.load(std::memory_order_relaxed)) {
            Clock::time_point start = Clock::now();
            for (int i = 0; i < 8; i++) release(allocate(512 + 512 * i), 512 + 512 * i);
            double took = ns_since(start);
            longest = std::max(longest, took);
            if (some.size() < 100000) some.push_back(took / 8);
        }
    });
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stop = true;
    other.join();
    std::sort(some.begin(), some.end());
    printf("longest_pause %.0f\nmedian_pair %.1f\n", longest, some[some.size() / 2]);
    return 0;
}

// What another thread does with what a burst has left behind (a trace, a scrub) falls into the rest.
static int bursts()
{
    const int BURSTS = 101, PAIRS = 4000;
    std::vector<double> runs;
    pairs_of(512, PAIRS);
    for (int i = 0; i < BURSTS; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        Clock::time_point start = Clock::now();
        pairs_of(512, PAIRS);
        runs.push_back(ns_since(start) / PAIRS);
    }
    std::sort(runs.begin(), runs.end());
    printf("bursts %.1f\n", runs[BURSTS / 2]);
    return 0;
}

static int count_only(const std::string &name, long pairs, bool streams)
{
    if (streams) make_streams();
    if (name == "pair_512B") pairs_of(512, pairs);
    else if (name == "pair_1MiB") pairs_of(1 << 20, pairs);
    else if (name == "pair_64MiB") pairs_of(64 << 20, pairs);
    else if (name == "live_1000" || name == "live_100000") {
        // Whoever takes the cost of one count from that of another is rid of the filling.
        Window window(8192);
        window.fill((size_t)atol(name.c_str() + 5));
        window.replace(pairs);
    } else if (name == "mixed_1000" || name == "mixed_100000") {
        Window window;
        window.fill((size_t)atol(name.c_str() + 6));
        window.replace(pairs);
    } else if (name == "threads") {
        threads_once(2, 0, 8, pairs / 2);
    } else if (name == "handoff") handoff_of(pairs);
    else return 3;
    fflush(nullptr);
    _Exit(0);
}

int main(int argc, char **argv)
{
    open_allocator();
    if (argc > 3 && !strcmp(argv[1], "count")) return count_only(argv[2], atol(argv[3]), argc > 4);
    if (argc > 1 && !strcmp(argv[1], "bursts")) return bursts();
    if (argc > 3 && !strcmp(argv[1], "hold")) return hold((size_t)atol(argv[2]), atof(argv[3]));
    if (argc > 1) deadline_ns = atof(argv[1]) * 1e9;
    auto row = [&](const char *name, auto pattern) {
        bool wanted = argc <= 2;
        for (int i = 2; i < argc; i++) wanted |= !strcmp(argv[i], name);
        if (!wanted) return;
        double ns = pattern();
        if (ns >= 0) printf("%s %.1f\n", name, ns);
        else printf("%s -\n", name);
        fflush(stdout);
    };
    auto same = [](size_t bytes) { return [=] { return measure([=](long pairs) { pairs_of(bytes, pairs); }); }; };
    row("pair_512B", same(512));
    row("pair_1MiB", same(1 << 20));
    row("pair_64MiB", same(64 << 20));
    row("live_1000", [] { return window_of(1000); });
    row("live_100000", [] { return window_of(100000); });
    for (int threads : {1, 2, 4, 8, 16}) row(("threads_" + std::to_string(threads)).c_str(), [=] { return threads_of(threads); });
    row("mixed_1", [] { return threads_of(1, 12); });
    row("mixed_8", [] { return threads_of(8, 12); });
    row("handoff", handoff);
    row("handoff_alone", handoff_alone);
    bool streams = argc <= 2;
    for (int i = 2; i < argc; i++) streams |= !strncmp(argv[i], "streams", 7);
    if (streams) make_streams();
    row("streams_512B", same(512));
    row("streams_1MiB", same(1 << 20));
    row("streams_live", [] { return window_of(1000); });
    fflush(nullptr);
    _Exit(0); // What an allocator does at exit is not of interest.
}
