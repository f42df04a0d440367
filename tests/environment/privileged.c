/* usage: privileged LIBCUDA    Linked with the library instead of preloaded; made set-user-ID. Allocates, and says whether the kernel
 * calls it privileged. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>

static void *driver;
#define CALL(name, ...) ((int (*)()) dlsym(driver, name))(__VA_ARGS__)

int main(int argc, char **argv)
{
    void *context;
    uint64_t memory, more;
    driver = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!driver) return 2;
    int failed = CALL("cuInit", 0) || CALL("cuDevicePrimaryCtxRetain", &context, 0) || CALL("cuCtxSetCurrent", context) ||
                 CALL("cuMemAlloc_v2", &memory, (size_t)5000) || CALL("cuMemAlloc_v2", &more, (size_t)5000) || CALL("cuMemFree_v2", memory);
    printf("secure %d\n", getauxval(AT_SECURE) != 0);
    return failed;
}
