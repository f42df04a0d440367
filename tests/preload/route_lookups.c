/* Makes the look-ups of a recorded process ("dlsym NAME 0 0", "gpa NAME VERSION FLAGS") and says who owns each answer. */
#include "route.h"

int main(int argc, char **argv)
{
    FILE *list = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!list) return 2;
    void *cuda = driver(RTLD_NOW);
    get_proc_2 second;
    get_proc_1 first;
    *(void **)&second = dlsym(cuda, "cuGetProcAddress_v2");
    *(void **)&first = dlsym(cuda, "cuGetProcAddress");
    char line[300];
    while (fgets(line, sizeof line, list)) {
        char how[20], name[200] = "";
        int version = 0;
        unsigned long long flags = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%19s %199s %d %llu", how, name, &version, &flags) != 4) {
            /* The empty name, which cudart asks for first. */
            name[0] = 0;
            sscanf(line, "%19s %d %llu", how, &version, &flags);
        }
        void *found = NULL;
        if (strcmp(how, "dlsym") == 0) {
            found = dlsym(cuda, name);
            printf("%s: %s\n", line, owner(found));
            continue;
        }
        int status = -1, code = second(name, &found, version, flags, &status);
        printf("%s: %d %d %s\n", line, code, status, owner(found));
        void *again = (void *)1;
        code = first(name, &again, version, flags);
        printf("%s: first %d %s\n", line, code, again == (void *)1 ? "unchanged" : owner(again));
    }
    return 0;
}
