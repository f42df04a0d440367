/* Work happens later and in the order that streams and events promise. */
#include "simtest.h"

static void late_write(void)
{
    begin();
    P p;
    unsigned char b = 9;
    void *pinned;
    H s, t;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    double t0 = ms();
    OK(late_fill(p, 4096, 7, 250, s));
    YES(ms() - t0 < 200);
    /* Another stream sees the memory as it was. */
    OK(cuMemcpyDtoHAsync_v2(&b, p, 1, t));
    IS(b, 0);
    IS(cuStreamQuery(s), 600);
    OK(cuStreamQuery(t));
    /* A copy to pinned memory is late, too. */
    OK(cuMemcpyDtoHAsync_v2(pinned, p, 4096, s));
    IS(((unsigned *)pinned)[5], 0);
    OK(cuStreamSynchronize(s));
    YES(ms() - t0 >= 250);
    YES(((unsigned *)pinned)[5] != 0);
    IS(wrong(p, 4096, 7, t), 0);
    IS(wrong(p, 4096, 8, t), 1024);
    OK(cuMemFreeHost(pinned));
}

static void pageable_source(void)
{
    begin();
    P p;
    H s;
    unsigned v = 1234, w = 0;
    OK(cuStreamCreate(&s, 1));
    OK(cuMemAlloc_v2(&p, 4));
    OK(spin(30, s));
    OK(cuMemcpyHtoDAsync_v2(p, &v, 4, s));
    v = 99;
    OK(cuMemcpyDtoHAsync_v2(&w, p, 4, s));
    IS(w, 1234);
}

static void free_waits(void)
{
    begin();
    for (unsigned sort = 0; sort < 3; sort++) {
        P p, q;
        H s = NULL;
        if (sort) OK(cuStreamCreate(&s, sort - 1));
        OK(cuMemAlloc_v2(&p, 1000));
        OK(spin(200, s));
        double t0 = ms();
        OK(cuMemAlloc_v2(&q, 1 << 20));
        OK(cuMemFree_v2(0));
        YES(ms() - t0 < 150);
        OK(cuMemFree_v2(p));
        YES(ms() - t0 > 150);
        OK(cuMemFree_v2(q));
    }
}

static void legacy_stream(void)
{
    begin();
    H blocking, free_, e;
    float x;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamCreate(&free_, 1));
    OK(spin(150, NULL));
    OK(spin(0, blocking));
    OK(spin(0, free_));
    OK(cuStreamSynchronize(free_));
    IS(cuStreamQuery(blocking), 600);
    OK(cuStreamSynchronize(blocking));
    OK(cuStreamQuery(NULL));
    OK(spin(100, blocking));
    OK(spin(0, NULL));
    IS(cuStreamQuery(NULL), 600);
    OK(spin(400, free_));
    OK(cuStreamSynchronize(NULL));
    IS(cuStreamQuery(free_), 600);
    /* 2 is the per-thread stream: it blocks, like one made with flags 0. */
    OK(spin(100, (H)2));
    OK(spin(0, NULL));
    IS(cuStreamQuery((H)1), 600);
    OK(cuCtxSynchronize());
    OK(cuEventCreate(&e, 0));
    IS(cuEventElapsedTime(&x, e, e), 400);
}

static void events(void)
{
    begin();
    H a, b, e, f;
    float x = 0;
    P p;
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&f, 0));
    OK(cuMemAlloc_v2(&p, 1 << 20));
    OK(cuEventQuery(e));
    OK(cuEventRecord(e, a));
    OK(late_fill(p, 1 << 20, 1, 100, a));
    OK(cuEventRecord(f, a));
    IS(cuEventQuery(f), 600);
    OK(cuStreamWaitEvent(b, f, 0));
    OK(fill(p, 1 << 20, 2, b));
    IS(cuStreamQuery(b), 600);
    OK(cuEventSynchronize(f));
    OK(cuEventElapsedTime(&x, e, f));
    YES(x >= 99 && x < 2000);
    IS(wrong(p, 1 << 20, 2, b), 0);
    OK(cuEventDestroy_v2(e));
    IS(cuEventDestroy_v2(e), 400);
}

static void context_events(void)
{
    H c = begin(), s[4], e, late;
    P p;
    OK(cuEventCreate(&e, 2));
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuStreamCreate(&s[0], 1));
    OK(cuStreamCreate(&s[1], 0));
    s[2] = NULL;
    s[3] = (H)2;
    for (int i = 0; i < 4; i++) {
        OK(late_fill(p, 4096, 1, 150, s[i]));
        double t0 = ms();
        OK(cuCtxRecordEvent(c, e));
        OK(cuCtxWaitEvent(c, e));
        IS(cuEventQuery(e), 600);
        OK(cuStreamCreate(&late, 1));
        OK(fill(p, 4096, 2, late));
        YES(ms() - t0 < 120);
        IS(cuStreamQuery(late), 600);
        for (int k = 0; k < 4; k++) IS(cuStreamQuery(s[k]), 600);
        OK(cuStreamSynchronize(late));
        OK(cuEventQuery(e));
        IS(wrong(p, 4096, 2, late), 0);
        OK(cuStreamDestroy_v2(late));
        OK(cuCtxSynchronize());
    }
}

static volatile int called;
static void host(void *x)
{
    size_t a, b;
    IS(cuMemGetInfo_v2(&a, &b), 800);
    usleep(150000);
    called += *(int *)x;
}
static void callback(H s, R status, void *x)
{
    (void)s;
    called += status == 0 ? *(int *)x : 1000;
}

static void host_functions(void)
{
    begin();
    H s, t;
    int one = 1;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuLaunchHostFunc(s, host, &one));
    OK(cuStreamAddCallback(s, callback, &one, 0));
    IS(called, 0);
    /* Other streams go on meanwhile. */
    OK(spin(1, t));
    OK(cuStreamSynchronize(t));
    IS(cuStreamQuery(s), 600);
    OK(cuStreamSynchronize(s));
    IS(called, 2);
}

static void destroyed_stream(void)
{
    begin();
    H s, t;
    P p;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuMemAlloc_v2(&p, 4096));
    OK(late_fill(p, 4096, 3, 150, s));
    OK(cuStreamDestroy_v2(s));
    IS(cuStreamQuery(s), 400);
    IS(wrong(p, 4096, 3, t), 1024);
    OK(cuCtxSynchronize());
    IS(wrong(p, 4096, 3, t), 0);
}

static void values(void)
{
    begin();
    P p;
    H s, t;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuMemAlloc_v2(&p, 64));
    OK(cuStreamWaitValue32_v2(s, p, 5, 1));
    OK(spin(0, s));
    usleep(20000);
    IS(cuStreamQuery(s), 600);
    OK(cuStreamWriteValue32_v2(t, p, 5, 0));
    OK(cuStreamSynchronize(s));
    IS(cuStreamWriteValue32_v2(t, p + 64, 5, 0), 1);
}

/* Eight threads, each with a stream, a block after another, and its own results. */
static void *worker(void *x)
{
    H c = NULL, s;
    unsigned me = (unsigned)(uintptr_t)x, bad = 0;
    P results;
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuCtxSetCurrent(c));
    OK(cuStreamCreate(&s, me & 1));
    OK(cuModuleGetGlobal_v2(&results, NULL, the_module, "g_vres"));
    for (unsigned i = 0; i < 60; i++) {
        P p;
        unsigned long long n = (i * 7919 + me * 104729) % 300000 + 4, r[3];
        unsigned seed = me * 1000 + i;
        void *a[] = { &me }, *b[] = { &p, &n, &seed, &me };
        OK(i % 3 ? cuMemAlloc_v2(&p, n) : cuMemAllocAsync(&p, n, s));
        OK(fill(p, n, seed, s));
        OK(launch("k_vreset", s, a));
        OK(launch("k_verify", s, b));
        OK(cuMemcpyDtoHAsync_v2(r, results + me * 24, sizeof r, s));
        OK(cuStreamSynchronize(s));
        bad += r[0] != 0;
        if (i % 2) OK(fill(p, n, 1, s));
        OK(i % 5 ? cuMemFree_v2(p) : cuMemFreeAsync(p, s));
    }
    IS(bad, 0);
    OK(cuStreamDestroy_v2(s));
    return NULL;
}

static void threads(void)
{
    pthread_t t[8];
    begin();
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&t[i], NULL, worker, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    OK(cuCtxSynchronize());
    IS(simcuda_live_bytes(0), 0);
}

static void sticky_error(void)
{
    begin();
    P p, q;
    size_t a, b;
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemAlloc_v2(&q, 4096));
    OK(cuMemFree_v2(q));
    OK(fill(q, 64, 1, NULL));
    IS(cuCtxSynchronize(), 700);
    IS(cuMemAlloc_v2(&q, 1), 700);
    IS(cuMemFree_v2(p), 700);
    IS(cuMemGetInfo_v2(&a, &b), 700);
    IS(cuMemcpyDtoH_v2(&a, p, 8), 700);
    IS(cuStreamSynchronize(NULL), 700);
    IS(cuStreamCreate((H *)&q, 0), 700);
}

static const Case cases[] = {
    { "late-write", late_write }, { "pageable-source", pageable_source }, { "free-waits", free_waits },
    { "legacy-stream", legacy_stream }, { "events", events }, { "context-events", context_events },
    { "host-functions", host_functions }, { "destroyed-stream", destroyed_stream },
    { "values", values }, { "threads", threads }, { "sticky-error", sticky_error },
};
CASES(cases)
