/* A stand-in for libcudart.so.12 and .13: says which one it is, and checks that arguments arrive as they were sent. */
#include <stddef.h>
#include <stdint.h>

#ifndef MAJOR
#define MAJOR 0
#endif

struct extent { size_t width, height, depth; };

static int last_error;

int cudaMalloc(void **p, size_t size)
{
    if (!p) return last_error = MAJOR * 10 + 1;
    *p = (void *)(uintptr_t)(MAJOR * 1000 + size);
    return 0;
}

int cudaGetLastError(void)
{
    int error = last_error;
    last_error = 0;
    return error;
}

int cudaMallocMipmappedArray(void **array, const void *desc, struct extent e, unsigned levels, unsigned flags)
{
    *array = (void *)(uintptr_t)(MAJOR * 1000000 + e.width * 10000 + e.height * 1000 + e.depth * 100 + levels * 10 + flags);
    return desc == (void *)0x77 ? 0 : 1;
}

int cudaMallocFromPoolAsync(void **p, size_t size, void *pool, void *stream)
{
    *p = (void *)(uintptr_t)(MAJOR * 1000 + size);
    return pool == (void *)0x5 && stream == (void *)0x6 ? 0 : 1;
}

/* For a library that has a runtime of its own and exports it: which one answers here. */
int which_major(void)
{
    void *p = NULL;
    return cudaMalloc(&p, 7) == 0 ? (int)(uintptr_t)p : -1;
}
