/* What every churn program does, whichever API it asks for memory through.
 *
 * usage: churn [--leak] [BLOCKS]
 *
 * BLOCKS (3,000) blocks of mixed sizes pass through a window of 24 live ones. Each is filled with words of its own and added up
 * before it is freed, so the checksum says whether anything else wrote to it. With --leak, two functions lose blocks:
 *     lose_tables   3 blocks of 1,000,003 bytes
 *     lose_buffers  5 blocks of 70,000 bytes
 *
 * A program defines the four functions below and calls churn().
 */
#ifndef CHURN_H
#define CHURN_H
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

static void setup(void);
static address allocate(size_t bytes);
static void release(address block);
/* Fills the block's whole words with seed + index, */
static void fill(address block, size_t bytes, unsigned seed);
/* and adds them up. */
static unsigned long long sum(address block, size_t bytes);

#define SITE __attribute__((noinline))

SITE static address lose_tables(void)
{
    address block = allocate(1000003);
    fill(block, 1000003, 7);
    return block;
}

SITE static address lose_buffers(void)
{
    address block = allocate(70000);
    fill(block, 70000, 9);
    return block;
}

static unsigned next(unsigned *state)
{
    unsigned x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static int churn(int argc, char **argv)
{
    enum { WINDOW = 24 };
    static const size_t largest[] = { 4 << 10, 256 << 10, 1 << 20, 6 << 20 };
    address block[WINDOW] = { 0 };
    size_t bytes[WINDOW] = { 0 };
    unsigned state = 0x2545f491u;
    unsigned long long checksum = 0;
    int leak = argc > 1 && strcmp(argv[1], "--leak") == 0;
    unsigned blocks = argc > 1 + leak ? (unsigned)atoi(argv[1 + leak]) : 3000;
    setup();
    for (unsigned i = 0; i < blocks + WINDOW; i++) {
        unsigned slot = i % WINDOW;
        if (block[slot]) {
            checksum = checksum * 31 + sum(block[slot], bytes[slot]);
            release(block[slot]);
            block[slot] = 0;
        }
        if (i < blocks) {
            bytes[slot] = 1 + next(&state) % largest[next(&state) % 4];
            block[slot] = allocate(bytes[slot]);
            fill(block[slot], bytes[slot], i);
        }
    }
    if (leak) {
        for (int i = 0; i < 3; i++) lose_tables();
        for (int i = 0; i < 5; i++) lose_buffers();
    }
    printf("RESULT blocks=%u checksum=%llx\n", blocks, checksum);
    return 0;
}
#endif
