/* What the programs of this folder share: who owns an address, by the loader's own word. */
#ifndef ROUTE_H
#define ROUTE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*get_proc_2)(const char *, void **, int, unsigned long long, int *);
typedef int (*get_proc_1)(const char *, void **, int, unsigned long long);

/* "libcuda.so.1 cuMemAlloc_v2", "NULL", "?" */
__attribute__((unused)) static const char *owner(void *address)
{
    static char text[4][300];
    static int turn;
    char *out = text[turn++ & 3];
    Dl_info info;
    if (!address) return "NULL";
    if (!dladdr(address, &info) || !info.dli_fname) return "?";
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(out, 300, "%s %s", slash ? slash + 1 : info.dli_fname,
             info.dli_sname && info.dli_saddr == address ? info.dli_sname : "?");
    return out;
}

__attribute__((unused)) static void *driver(int flags)
{
    void *handle = dlopen("libcuda.so.1", flags);
    if (!handle) { printf("no driver: %s\n", dlerror()); exit(9); }
    return handle;
}
#endif
