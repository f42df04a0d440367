/* A second library that stands in for dlsym, as profilers and other limiters do. Built twice: with and without the tail
 * call that gives the next one the program's own return address. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int interposer_count;
static void *(*next)(void *, const char *);

void *dlsym(void *handle, const char *name)
{
    if (!next) {
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!next) return NULL;
    }
    interposer_count++;
#ifdef TAIL_CALL
    return next(handle, name);
#else
    void *found = next(handle, name);
    __asm__ volatile("" : : : "memory");
    return found;
#endif
}
