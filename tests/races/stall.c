/* usage: BYTES=... ROUNDS=... [GROWS=1] stall [CASE]    An allocation waits for nothing, nor does work on another stream: not for a stream that
 * waits for what the host does last, for a word or in a host function. Memory was used and freed before. The same natively.
 */
#include "../sim-driver/tests/c/simtest.h"

enum { MOST = 8 << 20, GEQ = 0 };
enum { WORD, HOST_FUNCTION, GRAPH };
static unsigned char host[MOST];
static volatile int may_go_on;

static void hold(void *unused)
{
    (void)unused;
    while (!may_go_on) usleep(100);
}

static unsigned long long number(const char *name) { return getenv(name) ? strtoull(getenv(name), NULL, 10) : 1; }

static void memory_beside_a_stream_that_is_held(int holds_pinned, int by)
{
    unsigned long long bytes = number("BYTES"), rounds = number("ROUNDS");
    void *pinned;
    H held, other, writing, graph, executable;
    P p, word;
    begin();
    OK(cuStreamCreate(&held, 1));
    OK(cuStreamCreate(&other, 1));
    OK(cuStreamCreate(&writing, 1));
    if (holds_pinned) OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuMemAlloc_v2(&word, 4));
    if (by == GRAPH) {
        OK(cuStreamBeginCapture_v2(held, 2));
        OK(cuLaunchHostFunc(held, hold, NULL));
        OK(cuStreamEndCapture(held, &graph));
        OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    }
    while (rounds--) {
        OK(cuMemAlloc_v2(&p, bytes));
        OK(fill(p, bytes, 2, other));
        OK(cuMemFree_v2(p));
    }
    if (by == WORD) OK(cuStreamWaitValue32_v2(held, word, 1, GEQ));
    if (by == HOST_FUNCTION) OK(cuLaunchHostFunc(held, hold, NULL));
    if (by == GRAPH) OK(cuGraphLaunch(executable, held));
    if (getenv("GROWS")) bytes = bytes * 3 / 2;
    OK(cuMemAlloc_v2(&p, bytes));
    OK(cuMemcpyDtoHAsync_v2(host, p, bytes, other));
    OK(cuStreamSynchronize(other));
    unsigned long long zeros = 0;
    while (zeros < bytes && !host[zeros]) zeros++;
    if (!getenv("ANY_BYTES")) IS(zeros, bytes);
    IS(cuStreamQuery(held), 600);
    OK(cuStreamWriteValue32_v2(writing, word, 1, 0));
    may_go_on = 1;
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
}

static void a_word_and_pinned_memory(void) { memory_beside_a_stream_that_is_held(1, WORD); }
static void a_host_function_and_pinned_memory(void) { memory_beside_a_stream_that_is_held(1, HOST_FUNCTION); }

static void a_word(void) { memory_beside_a_stream_that_is_held(0, WORD); }
static void a_host_function(void) { memory_beside_a_stream_that_is_held(0, HOST_FUNCTION); }
static void a_graph(void) { memory_beside_a_stream_that_is_held(0, GRAPH); }

static const Case cases[] = {
    { "a word, and pinned memory", a_word_and_pinned_memory },
    { "a host function, and pinned memory", a_host_function_and_pinned_memory },
    { "a word", a_word },
    { "a host function", a_host_function },
    { "a graph", a_graph },
};
CASES(cases)
