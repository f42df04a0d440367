/* A plugin's memory and the program's, used and freed crosswise. Arguments: the plugin; words of: deep (RTLD_DEEPBIND),
 * lazy, loaded-first (before the program has met the driver), used-first (its first call, too), deep-driver (the driver
 * itself with RTLD_DEEPBIND). */
#include "route.h"

static int driver_flags = RTLD_NOW;
static int (*alloc)(unsigned long long *, size_t);
static int (*release)(unsigned long long);

static void start(void)
{
    void *cuda = driver(driver_flags), *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(cuda, "cuMemAlloc_v2");
    *(void **)&release = dlsym(cuda, "cuMemFree_v2");
    init(0);
    retain(&context, 0);
    set(context);
    unsigned long long p;
    printf("program: %s %d", owner((void *)alloc), alloc(&p, 1000));
    printf(" %d\n", release(p));
}

int main(int argc, char **argv)
{
    int flags = RTLD_NOW, loaded_first = 0, used_first = 0;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "deep-driver")) driver_flags |= RTLD_DEEPBIND;
        if (!strcmp(argv[i], "deep")) flags |= RTLD_DEEPBIND;
        if (!strcmp(argv[i], "lazy")) flags = (flags & ~RTLD_NOW) | RTLD_LAZY;
        if (!strcmp(argv[i], "loaded-first")) loaded_first = 1;
        if (!strcmp(argv[i], "used-first")) loaded_first = used_first = 1;
    }
    if (!loaded_first) start();
    void *plugin = dlopen(argv[1], flags);
    if (!plugin) { printf("%s\n", dlerror()); return 9; }
    void (*plug_start)(void);
    int (*plug_alloc)(unsigned long long *, size_t), (*plug_free)(unsigned long long);
    void *(*plug_address)(void);
    *(void **)&plug_start = dlsym(plugin, "plug_start");
    *(void **)&plug_alloc = dlsym(plugin, "plug_alloc");
    *(void **)&plug_free = dlsym(plugin, "plug_free");
    *(void **)&plug_address = dlsym(plugin, "plug_address");
    unsigned long long early = 0, ours, theirs;
    if (used_first) {
        plug_start();
        printf("early %d\n", plug_alloc(&early, 12345));
    }
    if (loaded_first) start();
    plug_start();
    printf("plugin: %s\n", owner(plug_address()));
    printf("alloc %d", plug_alloc(&theirs, 200000));
    printf(" %d\n", alloc(&ours, 6 << 20));
    printf("different %d\n", ours != theirs);
    printf("crosswise %d %d\n", release(theirs), plug_free(ours));
    printf("again %d", release(theirs));
    printf(" %d", plug_free(ours));
    printf(" %d\n", release(ours));
    for (int i = 0; i < 3; i++) {
        printf("alone %d", plug_alloc(&theirs, 4096 << i));
        printf(" %d\n", plug_free(theirs));
    }
    if (early) printf("early %d", release(early));
    if (early) printf(" %d\n", plug_free(early));
    /* A handle that leads to the driver, and what the program's own finds. */
    void *self = dlopen(NULL, RTLD_NOW);
    printf("by the plugin: %s\n", owner(dlsym(plugin, "cuMemAlloc_v2")));
    printf("by itself: %s\n", owner(dlsym(self, "cuMemAlloc_v2")));
    return 0;
}
