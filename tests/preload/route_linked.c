/* Linked with -lcuda: the program's own references, and its children. */
#include "route.h"

int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);

int main(void)
{
    int device;
    void *context;
    unsigned long long p = 0;
    printf("owner %s\n", owner((void *)cuMemAlloc_v2));
    printf("uninitialised %d\n", cuMemAlloc_v2(&p, 100));
    printf("init %d %d %d %d\n", cuInit(0), cuDeviceGet(&device, 0), cuDevicePrimaryCtxRetain(&context, device),
           cuCtxSetCurrent(context));
    printf("alloc %d\n", cuMemAlloc_v2(&p, 100));
    printf("free %d\n", cuMemFree_v2(p));
    printf("free again %d\n", cuMemFree_v2(p));
    printf("nothing %d\n", cuMemAlloc_v2(NULL, 100));
    return 0;
}
