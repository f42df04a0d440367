/* A library that uses the driver by itself: linked with it (-DLINKED), or asking for each function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#ifdef LINKED
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
#define ASK(name) name
#else
typedef int (*function)();
static function ask(const char *name)
{
    function found;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&found = cuda ? dlsym(cuda, name) : NULL;
    return found;
}
#define ASK(name) ask(#name)
#endif

static int (*alloc)(unsigned long long *, size_t);
static int (*release)(unsigned long long);

/* Asks once and keeps the answers, as a runtime does. */
void plug_start(void)
{
    void *context = NULL;
    if (alloc) return;
    ASK(cuInit)(0);
    ASK(cuDevicePrimaryCtxRetain)(&context, 0);
    ASK(cuCtxSetCurrent)(context);
    alloc = ASK(cuMemAlloc_v2);
    release = ASK(cuMemFree_v2);
}

int plug_alloc(unsigned long long *p, size_t size) { return alloc(p, size); }
int plug_free(unsigned long long p) { return release(p); }
void *plug_address(void) { return (void *)alloc; }
