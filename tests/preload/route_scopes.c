/* Names of the table looked up in every scope, with no driver, with a local one, with a global one. */
#include "route.h"

static const char *names[] = { "cuMemAlloc_v2", "cuGetProcAddress_v2", "cudaMalloc", "cuInit", "_exit" };

static void ask(const char *when)
{
    void *self = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct { const char *how; void *handle; } ways[] = {
            { "RTLD_DEFAULT", RTLD_DEFAULT }, { "RTLD_NEXT", RTLD_NEXT }, { "self", self } };
        for (int k = 0; k < 3; k++) {
            dlerror();
            void *found = dlsym(ways[k].handle, names[i]);
            const char *error = dlerror();
            /* The object named in the text is not compared: see the head of route/scope.rs. */
            const char *text = error ? strstr(error, ": ") : NULL;
            printf("%s %s %s: %s%s\n", when, ways[k].how, names[i], owner(found), text ? text : "");
        }
    }
    dlerror();
    void *versioned = dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "GLIBC_2.2.5");
    const char *error = dlerror();
    printf("%s dlvsym: %s %s\n", when, owner(versioned), error ? "error" : "no error");
    versioned = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    printf("%s dlvsym dlsym: %s\n", when, versioned ? "found" : "NULL");
    dlclose(self);
}

int main(int argc, char **argv)
{
    ask("none");
    if (argc > 1) {
        /* A library of the same function names which is no driver. */
        void *other = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        printf("other: %s\n", owner(other ? dlsym(other, "cuMemAlloc_v2") : NULL));
        printf("other: %s\n", owner(other ? dlsym(other, "cudaMalloc") : NULL));
    }
    void *cuda = driver(RTLD_NOW | RTLD_DEEPBIND);
    printf("handle: %s\n", owner(dlsym(cuda, "cuMemAlloc_v2")));
    printf("handle: %s\n", owner(dlsym(cuda, "cudaMalloc")));
    ask("local");
    driver(RTLD_NOW | RTLD_GLOBAL);
    ask("global");
    if (argc > 1) {
        dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
        ask("both global");
    }
    return 0;
}
