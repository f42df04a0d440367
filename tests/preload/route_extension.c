/* A library that uses the shared runtime: linked against this one or that, or counting on its surroundings. */
#include <stdint.h>
#include <stdio.h>

struct extent { size_t width, height, depth; };
int cudaMalloc(void **, size_t);
int cudaGetLastError(void);
int cudaMallocMipmappedArray(void **, const void *, struct extent, unsigned, unsigned);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *);

void extension(char *out, size_t size)
{
    void *p = NULL, *q = NULL, *a = NULL;
    int first = cudaMalloc(&p, 7), bad = cudaMalloc(NULL, 7), error = cudaGetLastError();
    int pool = cudaMallocFromPoolAsync(&q, 8, (void *)0x5, (void *)0x6);
    int array = cudaMallocMipmappedArray(&a, (void *)0x77, (struct extent){ 1, 2, 3 }, 4, 5);
    snprintf(out, size, "malloc %d %d, refused %d %d, pool %d %d, array %d %d", first, (int)(uintptr_t)p, bad, error, pool,
             (int)(uintptr_t)q, array, (int)(uintptr_t)a);
}
