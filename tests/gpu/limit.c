/* usage: limit BYTES    Lives under a limit of BYTES, as a program that watches its memory does.
 *
 * The device must look as large as the limit; an allocation past it must be refused with the driver's out-of-memory code
 * (2); the program must be able to go on after that, and freeing must give all of it back.
 */
#include "driver.h"

enum { PIECE = 64 << 20, MOST = 4096, OUT_OF_MEMORY = 2 };

static int failures;

static void expect(int holds, const char *what)
{
    if (!holds) {
        failures++;
        printf("FAIL %s\n", what);
    }
}

int main(int argc, char **argv)
{
    static unsigned long long block[MOST];
    size_t limit, total, visible, before, after, held = 0;
    int blocks = 0, code;
    unsigned char byte = 0;
    if (argc != 2) return 2;
    limit = strtoull(argv[1], NULL, 10);
    open_device();

    DRIVER(cuMemGetInfo_v2(&before, &total));
    DRIVER(cuDeviceTotalMem_v2(&visible, 0));
    printf("total %zu, free %zu, device %zu\n", total, before, visible);
    expect(total == limit, "cuMemGetInfo's total is the limit");
    expect(visible == limit, "cuDeviceTotalMem is the limit");
    expect(before <= total, "free is within total");

    while ((code = cuMemAlloc_v2(&block[blocks], PIECE)) == 0 && ++blocks < MOST) held += PIECE;
    printf("%d pieces of %d bytes, then code %d\n", blocks, PIECE, code);
    expect(code == OUT_OF_MEMORY, "an allocation past the limit is refused with code 2");
    expect(held <= limit, "no more than the limit was handed out");
    expect(held + 2ul * PIECE > before, "all that was free was handed out");
    DRIVER(cuMemGetInfo_v2(&after, &total));
    expect(after < PIECE, "nothing that would fit is called free");

    /* The program goes on: what it holds is sound, and what it frees it can have again. */
    DRIVER(cuMemsetD8_v2(block[0], 0x5a, PIECE));
    DRIVER(cuMemcpyDtoH_v2(&byte, block[0] + PIECE - 1, 1));
    expect(byte == 0x5a, "memory is usable after a refusal");
    for (int i = 0; i < 100; i++) {
        DRIVER(cuMemFree_v2(block[0]));
        DRIVER(cuMemAlloc_v2(&block[0], PIECE));
    }
    expect(cuMemAlloc_v2(&block[blocks], (size_t)1 << 62) == OUT_OF_MEMORY, "an absurd size is refused with code 2");

    for (int i = 0; i < blocks; i++) DRIVER(cuMemFree_v2(block[i]));
    DRIVER(cuMemGetInfo_v2(&after, &total));
    expect(after == before, "freeing gives all of it back");
    expect(total == limit, "the total is still the limit");
    /* And it is really to be had: as one block, too. */
    DRIVER(cuMemAlloc_v2(&block[0], before - before % PIECE - PIECE));
    DRIVER(cuMemFree_v2(block[0]));
    printf("%s\n", failures ? "FAILED" : "RESULT limit kept");
    return failures ? 1 : 0;
}
