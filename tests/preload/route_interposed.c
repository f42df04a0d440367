/* Under two libraries that stand in for dlsym: both are reached, in either order, and nobody asks in a circle. */
#include "route.h"

int main(void)
{
    int *count = dlsym(RTLD_DEFAULT, "interposer_count");
    void *cuda = driver(RTLD_NOW);
    int before = count ? *count : -1;
    printf("alloc: %s\n", owner(dlsym(cuda, "cuMemAlloc_v2")));
    printf("init: %s\n", owner(dlsym(cuda, "cuInit")));
    printf("malloc: %s\n", dlsym(RTLD_NEXT, "malloc") ? "found" : "NULL");
    printf("missing: %s\n", owner(dlsym(RTLD_DEFAULT, "no_such_function")));
    printf("counted: %s\n", count && *count - before >= 3 ? "yes" : "no");
    get_proc_2 get;
    void *found = NULL;
    *(void **)&get = dlsym(cuda, "cuGetProcAddress_v2");
    get("cuMemFree", &found, 12000, 0, NULL);
    printf("free: %s\n", owner(found));
    return 0;
}
