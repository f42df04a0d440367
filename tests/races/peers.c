/* usage: peers [CASE]    Work of one device waits for what another does next, which frees memory and queues work of its own first. The two
 * share memory. The same natively.
 */
#include "../sim-driver/tests/c/simtest.h"

static volatile int may_go_on;

static void hold(void *unused)
{
    (void)unused;
    while (!may_go_on) usleep(100);
}

static void a_device_that_waits_for_its_peer(void)
{
    H here = begin(), there, held, other;
    P p, word;
    int rounds = 3;
    OK(cuStreamCreate(&held, 1));
    OK(cuCtxCreate_v2(&there, 0, 1));
    OK(cuCtxEnablePeerAccess(here, 0));
    OK(cuStreamCreate(&other, 1));
    OK(cuMemAlloc_v2(&word, 4));
    OK(cuMemAlloc_v2(&p, 300000));
    OK(cuCtxSetCurrent(here));
    OK(cuCtxEnablePeerAccess(there, 0));
    OK(cuLaunchHostFunc(held, hold, NULL));
    OK(cuCtxSetCurrent(there));
    OK(cuMemFree_v2(p));
    while (rounds--) {
        OK(cuStreamWaitValue32_v2(other, word, 0, 0));
        OK(cuStreamSynchronize(other));
    }
    IS(cuStreamQuery(held), 600);
    may_go_on = 1;
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(here));
    OK(cuCtxSynchronize());
}

static const Case cases[] = {
    { "a device that waits for its peer", a_device_that_waits_for_its_peer },
};
CASES(cases)
