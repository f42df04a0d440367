/* usage: ending    While one thread ends a context, whose end waits for a host function, another goes on in its own; the host function waits
 * for that. The same natively.
 */
#include "../sim-driver/tests/c/simtest.h"

static volatile int may_end, has_ended;
static void hold(void *unused)
{
    (void)unused;
    while (!may_end) usleep(100);
}

static void *ends(void *context)
{
    OK(cuCtxDestroy_v2(context));
    has_ended = 1;
    return NULL;
}

static void beside(int device)
{
    H side, here = begin();
    P p, q, managed, results;
    size_t bytes;
    void *pinned;
    char host[64] = { 0 };
    pthread_t thread;
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemAllocManaged(&managed, 100000, 1));
    OK(cuModuleGetGlobal_v2(&results, &bytes, the_module, "g_vres"));
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuCtxCreate_v2(&side, 0, device));
    OK(cuMemAlloc_v2(&q, 5000));
    OK(cuLaunchHostFunc(NULL, hold, NULL));
    OK(cuCtxSetCurrent(here));
    pthread_create(&thread, NULL, ends, side);
    usleep(50000);
    IS(has_ended, 0);
    OK(cuMemcpyHtoD_v2(results, host, 8));
    OK(cuMemcpyHtoD_v2(managed, host, 64));
    OK(cuMemcpyHtoD_v2(p, host, 64));
    IS(cuMemFree_v2(results + 8), 1);
    IS(cuMemFree_v2(0x4000), 1);
    if (device) {
        /* A free waits for its device, the context's that ends included. */
        OK(cuMemFree_v2(managed));
        OK(cuMemFree_v2(p));
        IS(cuMemFree_v2(p), 1);
    }
    OK(cuMemAlloc_v2(&p, 5000));
    OK(fill(p, 5000, 1, NULL));
    OK(cuCtxSynchronize());
    if (device) OK(cuMemFree_v2(p));
    IS(has_ended, 0);
    may_end = 1;
    pthread_join(thread, NULL);
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuMemFree_v2(p));
}

static void a_context_of_the_same_device(void) { beside(0); }
static void a_context_of_another_device(void) { beside(1); }

static const Case cases[] = {
    { "a context of the same device", a_context_of_the_same_device },
    { "a context of another device", a_context_of_another_device },
};
CASES(cases)
