/* usage: resolve FILE    Repeats recorded look-ups of driver functions, one a line: `dlsym NAME 0 0` or `gpa NAME VERSION FLAGS`.
 * Prints for each what came back: code, status, and the symbol and file that hold the address.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    char line[256];
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*get)(const char *, void **, int, unsigned long long, int *);
    if (!file || !library) return 2;
    *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    if (!get) return 3;
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *route = strsep(&rest, " "), *name = strsep(&rest, " ");
        int version = 0, status = -1, code = 0;
        unsigned long long flags = 0;
        void *address = NULL;
        Dl_info info = { 0 };
        sscanf(rest, "%d %llu", &version, &flags);
        if (strcmp(route, "dlsym") == 0) address = dlsym(library, name);
        else code = get(name, &address, version, flags, &status);
        if (address) dladdr(address, &info);
        const char *path = info.dli_fname ? info.dli_fname : "-";
        printf("%s %s %d %llu code=%d status=%d symbol=%s file=%s\n", route, name, version, flags, code, status,
               info.dli_sname ? info.dli_sname : "-", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    }
    return 0;
}
