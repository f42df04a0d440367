/* usage: soak SECONDS THREADS LIMIT_BYTES    Random allocations, writes, copies and frees by many threads, each checked.
 *
 * Each thread has streams of its own and uses the default one, too, and now and then hands a block to another thread, which checks and frees
 * it. A word written to a block must be there when it is read. Blocks are freed while work on them is queued, as programs do. An allocation
 * may be refused only with code 2. Resident memory of the process at the end must be about what it was after a tenth of the time.
 */
#include "../gpu/driver.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 64, SLOTS = 48, MAILBOX = 256, OUT_OF_MEMORY = 2, STREAMS = 3 };
typedef unsigned long long address;
typedef struct {
    address block;
    size_t words;
    unsigned value;
} item;

static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static item mailbox[MAILBOX];
static int mailed;
static volatile int stop;
static size_t limit;
static unsigned long long operations, refusals, wrong_words;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned next(unsigned *state)
{
    unsigned x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* The first, the last and one other word of a block are as they were written, once the stream has come so far. */
static void verify(const item *it, void *stream, unsigned *state)
{
    size_t at[] = { 0, it->words - 1, next(state) % it->words };
    unsigned word[3] = { 0 };
    for (int i = 0; i < 3; i++) DRIVER(cuMemcpyDtoHAsync_v2(&word[i], it->block + 4 * at[i], 4, stream));
    DRIVER(cuStreamSynchronize(stream));
    for (int i = 0; i < 3; i++)
        if (word[i] != it->value) {
            __atomic_add_fetch(&wrong_words, 1, __ATOMIC_RELAXED);
            fprintf(stderr, "word %zu of a block of %zu: wanted %08x, got %08x\n", at[i], it->words, it->value, word[i]);
        }
}

static int acquire(item *it, void *stream, unsigned *state)
{
    unsigned shift = 2 + next(state) % 21;
    it->words = ((size_t)1 << shift >> 2) + next(state) % ((1u << shift >> 2) + 1);
    if (!it->words) it->words = 1;
    it->value = next(state);
    int code = cuMemAlloc_v2(&it->block, it->words * 4);
    if (code == OUT_OF_MEMORY) {
        __atomic_add_fetch(&refusals, 1, __ATOMIC_RELAXED);
        it->block = 0;
        return 0;
    }
    DRIVER(code);
    DRIVER(cuMemsetD32Async(it->block, it->value, it->words, stream));
    return 1;
}

/* Puts a block into the mailbox, and gets another that a thread has left there; the block itself if the mailbox is not full yet. */
static void exchange(item *it, void *stream, unsigned *state)
{
    DRIVER(cuStreamSynchronize(stream));
    pthread_mutex_lock(&mailbox_lock);
    if (mailed < MAILBOX) {
        mailbox[mailed++] = *it;
        it->block = 0;
    } else {
        unsigned slot = next(state) % MAILBOX;
        item other = mailbox[slot];
        mailbox[slot] = *it;
        *it = other;
    }
    pthread_mutex_unlock(&mailbox_lock);
}

static void *thread(void *number)
{
    item slot[SLOTS] = { { 0 } };
    void *slot_stream[SLOTS] = { 0 }, *stream[STREAMS] = { 0 };
    unsigned state = 0x9e3779b9u * (1u + (unsigned)(size_t)number);
    unsigned long long mine = 0;
    DRIVER(cuCtxSetCurrent(context));
    DRIVER(cuStreamCreate(&stream[0], 0));
    DRIVER(cuStreamCreate(&stream[1], 1)); /* non-blocking; stream[2] is the default one */
    while (!stop) {
        unsigned i = next(&state) % SLOTS;
        item *it = &slot[i];
        mine++;
        if (!it->block) {
            slot_stream[i] = stream[next(&state) % STREAMS];
            acquire(it, slot_stream[i], &state);
            continue;
        }
        switch (next(&state) % 16) {
        case 0:
            verify(it, slot_stream[i], &state);
            exchange(it, slot_stream[i], &state);
            if (it->block) verify(it, slot_stream[i], &state);
            break;
        case 1: { /* a copy into a new block, whose source is freed at once */
            item copy = { 0, it->words, it->value };
            int code = cuMemAlloc_v2(&copy.block, copy.words * 4);
            if (code == OUT_OF_MEMORY) break;
            DRIVER(code);
            DRIVER(cuMemcpyDtoDAsync_v2(copy.block, it->block, it->words * 4, slot_stream[i]));
            DRIVER(cuMemFree_v2(it->block));
            *it = copy;
            break;
        }
        case 2: case 3: case 4:
            it->value = next(&state);
            DRIVER(cuMemsetD32Async(it->block, it->value, it->words, slot_stream[i]));
            break;
        case 5: case 6: case 7: case 8: case 9:
            verify(it, slot_stream[i], &state);
            break;
        case 10: /* a thread that looks at free memory, as frameworks do */
        {
            size_t free_bytes, total;
            DRIVER(cuMemGetInfo_v2(&free_bytes, &total));
            if (free_bytes > total || (limit && total > limit)) {
                fprintf(stderr, "free %zu, total %zu, limit %zu\n", free_bytes, total, limit);
                __atomic_add_fetch(&wrong_words, 1, __ATOMIC_RELAXED);
            }
            break;
        }
        default: /* with a write still queued, half of the time */
            if (next(&state) % 2) DRIVER(cuMemsetD32Async(it->block, 0xdeadbeef, it->words, slot_stream[i]));
            DRIVER(cuMemFree_v2(it->block));
            it->block = 0;
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].block) DRIVER(cuMemFree_v2(slot[i].block));
    DRIVER(cuStreamDestroy_v2(stream[0]));
    DRIVER(cuStreamDestroy_v2(stream[1]));
    __atomic_add_fetch(&operations, mine, __ATOMIC_RELAXED);
    return NULL;
}

static size_t resident_kib(void)
{
    char line[128];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %zu", &kib) == 1) break;
    if (file) fclose(file);
    return kib;
}

int main(int argc, char **argv)
{
    static pthread_t id[MOST_THREADS];
    double seconds = argc > 1 ? atof(argv[1]) : 10, start;
    int threads = argc > 2 ? atoi(argv[2]) : 8;
    size_t early = 0, late;
    limit = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (threads < 1 || threads > MOST_THREADS || seconds <= 0) return 2;
    open_device();
    start = now();
    for (int i = 0; i < threads; i++) pthread_create(&id[i], NULL, thread, (void *)(size_t)i);
    while (now() - start < seconds) {
        struct timespec tick = { 0, 50000000 };
        nanosleep(&tick, NULL);
        if (!early && now() - start > seconds / 10) early = resident_kib();
    }
    late = resident_kib();
    stop = 1;
    for (int i = 0; i < threads; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < mailed; i++) DRIVER(cuMemFree_v2(mailbox[i].block));
    DRIVER(cuCtxSynchronize());
    printf("SOAK operations=%llu refusals=%llu wrong=%llu early_kib=%zu late_kib=%zu\n", operations, refusals, wrong_words, early, late);
    return wrong_words ? 1 : 0;
}
