/* The operations of a random program, and how one is made from a seed. Every operation makes sense after any others (on an empty place it does
 * nothing), so that a program can be shortened by leaving operations out.
 *
 * A program for a GPU differs in two things. Making and resetting contexts takes up to a second there, so only one seed of RICH has any of that;
 * and some blocks are large, since a GPU fills and copies them in no time. */
#ifndef OPERATIONS_H
#define OPERATIONS_H
#include <stdint.h>

enum { THREADS = 3, CONTEXTS = 3, STREAMS = 8, SLOTS = 16, HOSTS = 3, OPERATIONS_MAX = 4096, RICH = 24 };

/* name, weight */
#define OPERATIONS(X) \
    X(ALLOC, 26) X(ALLOC_PITCH, 2) X(ALLOC_MANAGED, 1) X(ALLOC_ASYNC, 3) X(FREE, 16) X(FREE_ASYNC, 4) X(FREE_WRONGLY, 2) \
    X(HOST_ALLOC, 1) X(HOST_FREE, 1) X(FILL, 10) X(LATE_FILL, 12) X(MEMSET, 4) X(COPY, 4) X(READ, 10) X(OVERRUN, 2) X(QUERY, 4) \
    X(INFO, 1) X(FLAG_AND_FREE, 2) X(STREAM_CREATE, 4) X(STREAM_DESTROY, 2) X(STREAM_SYNC, 3) X(CONTEXT_SYNC, 2) X(CONTEXT_CREATE, 1) \
    X(CONTEXT_USE, 2) X(CONTEXT_DESTROY, 1) X(PRIMARY_RESET, 1) X(CAPTURE_BEGIN, 2) X(CAPTURE_FILL, 4) X(CAPTURE_END, 4) X(EVENT_QUERY, 1) \
    X(REUSE, 0)

#define NAME_OF(name, weight) name,
enum { OPERATIONS(NAME_OF) OPERATION_KINDS };
#define TEXT_OF(name, weight) #name,
static const char *const operation_names[] = { OPERATIONS(TEXT_OF) };
#define WEIGHT_OF(name, weight) weight,
static const int weights[] = { OPERATIONS(WEIGHT_OF) };

typedef struct {
    int kind, thread, slot, other, stream, context, mode;
    uint64_t bytes;
    unsigned value, microseconds;
} operation;

static uint64_t random_state;
static uint64_t next_random(void)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static int below(int n) { return (int)(next_random() % (uint64_t)n); }

/* Mostly small, some of the large pool, few that get a segment of their own. */
static uint64_t random_bytes(void)
{
    switch (below(8)) {
    case 0: return 1 + (uint64_t)below(64);
    case 1: case 2: return 1 + (uint64_t)below(4096);
    case 3: case 4: return 1 + (uint64_t)below(1 << 20);
    case 5: case 6: return (1 << 20) + (uint64_t)below(3 << 20);
    default: return (uint64_t)(1 + below(12)) << 20;
    }
}

static void generate(uint64_t seed, operation *operations, int count, int gpu)
{
    int sum = 0;
    for (int i = 0; i < OPERATION_KINDS; i++) sum += weights[i];
    random_state = seed * 0x2545F4914F6CDD1Du + 1;
    /* Some programs have one thread, one context or no captures: what is simple must be tested too. */
    int threads = 1 + below(THREADS), contexts = 1 + below(CONTEXTS), captures = below(2);
    int poor = gpu && seed % RICH;
    if (poor) contexts = 1;
    for (int i = 0; i < count; i++) {
        operation *o = &operations[i];
        int at = below(sum), kind = 0;
        while (at >= weights[kind]) at -= weights[kind++];
        *o = (operation){ .kind = kind, .thread = below(threads), .slot = below(SLOTS), .other = below(SLOTS), .stream = below(STREAMS),
                          .context = below(contexts), .mode = below(3), .bytes = random_bytes(), .value = (unsigned)next_random(),
                          .microseconds = (unsigned)below(3) * (unsigned)below(1500) };
        if (!captures && kind >= CAPTURE_BEGIN && kind <= CAPTURE_END) o->kind = LATE_FILL;
        /* No weight of its own, so that the other operations of a seed stay what they were when it was kept. */
        if ((kind == FREE || kind == LATE_FILL) && o->value % 3 == 0) o->kind = REUSE;
        if (poor && kind == PRIMARY_RESET) o->kind = CONTEXT_SYNC;
        if (gpu && o->value % 64 == 0) o->bytes = (32ull << 20) + o->bytes % (16 << 20);
    }
}
#endif
