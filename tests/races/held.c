/* usage: held    An allocation for which memory might go back waits for work that waits for the host. Once that has ended, memory goes back again
 * as soon as the work of the moment ends.
 */
#include "../sim-driver/tests/c/simtest.h"

enum { MIB = 1 << 20, ROUNDS = 10 };
static volatile int may_go_on;

static void hold(void *unused)
{
    (void)unused;
    while (!may_go_on) usleep(100);
}

static void takes_a_while(void *unused)
{
    (void)unused;
    usleep(10000);
}

int main(void)
{
    H stream;
    P p;
    int round;
    begin();
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&p, 4 * MIB));
    OK(cuMemFree_v2(p));
    OK(cuLaunchHostFunc(stream, hold, NULL));
    OK(cuMemAlloc_v2(&p, 8 * MIB));
    may_go_on = 1;
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
    for (round = 0; round < ROUNDS; round++) {
        OK(cuLaunchHostFunc(stream, takes_a_while, NULL));
        OK(cuMemAlloc_v2(&p, (12 + 4 * round) * MIB));
        OK(cuMemFree_v2(p));
    }
    return 0;
}
