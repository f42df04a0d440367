/* Libraries with different runtimes in one process, opened, closed and opened again in turn. Each must reach its own. */
#include "route.h"

int cudaMalloc(void **, size_t) __attribute__((weak));

static void use(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *slash = strrchr(path, '/');
    if (!handle) { printf("%s: %s\n", slash, strrchr(dlerror(), ':')); return; }
    void (*extension)(char *, size_t);
    *(void **)&extension = dlsym(handle, "extension");
    int (*which)(void);
    *(void **)&which = dlsym(handle, "which_major");
    char text[300] = "";
    if (extension) extension(text, sizeof text);
    if (extension) extension(text, sizeof text);
    printf("%s: %s %d\n", slash, text, which ? which() : 0);
    if (dlclose(handle)) printf("dlclose: %s\n", dlerror());
    printf("still loaded: %s\n", dlopen(path, RTLD_NOW | RTLD_NOLOAD) ? "yes" : "no");
}

int main(int argc, char **argv)
{
    if (getenv("LINKED")) {
        void *p = NULL;
        printf("program: %d\n", cudaMalloc(&p, 3));
        printf("program: %d\n", (int)(long)p);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 1; i < argc; i++) use(argv[i]);
    for (int i = 1; i < argc; i++) dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    for (int i = argc - 1; i > 0; i--) use(argv[i]);
    return 0;
}
