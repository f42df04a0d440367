/* The ways into and out of a process: route_life MODE. The driver is opened by hand, so that nothing of it is here before. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "route.h"

static int (*alloc)(unsigned long long *, size_t);
static int (*release)(unsigned long long);

static void open_driver(void)
{
    void *cuda = driver(RTLD_NOW);
    *(void **)&alloc = dlsym(cuda, "cuMemAlloc_v2");
    *(void **)&release = dlsym(cuda, "cuMemFree_v2");
}

static int begin(void)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *);
    void *cuda = driver(RTLD_NOW), *context;
    int device;
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&get = dlsym(cuda, "cuDeviceGet");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
    open_driver();
    if (init(0) || get(&device, 0) || retain(&context, device) || set(context)) return 1;
    unsigned long long kept, gone;
    return alloc(&kept, 4096) || alloc(&gone, 4096) || release(gone);
}

static void reap(pid_t child, const char *what)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) { }
    printf("%s: exit %d signal %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    fflush(stdout);
}

static unsigned long long p;
static int in_child(void)
{
    int code = alloc(&p, 4096);
    printf("child alloc %d\n", code);
    fflush(stdout);
    return code;
}

static void at_exit(void)
{
    unsigned long long q = 0;
    printf("atexit alloc %d free %d\n", alloc(&q, 100), release(q));
    fflush(stdout);
}
static void *leave(void *status) { exit((int)(long)status); }
static void on_signal(int number) { (void)number; _exit(42); }

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "return";
    if (strcmp(mode, "none") == 0) return 42;
    if (strcmp(mode, "fork-before") == 0) {
        open_driver();
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) return begin() ? 5 : 42;
        reap(child, "child");
        return begin() ? 5 : 42;
    }
    if (begin()) { printf("no context\n"); return 9; }
    printf("ready\n");
    fflush(stdout);
    if (strcmp(mode, "return") == 0) return 42;
    if (strcmp(mode, "exit") == 0) exit(42);
    if (strcmp(mode, "_exit") == 0) _exit(42);
    if (strcmp(mode, "_Exit") == 0) _Exit(42);
    if (strcmp(mode, "quick_exit") == 0) quick_exit(42);
    if (strcmp(mode, "abort") == 0) abort();
    if (strcmp(mode, "kill") == 0) raise(SIGKILL);
    if (strcmp(mode, "atexit") == 0) { atexit(at_exit); return 42; }
    if (strcmp(mode, "signal") == 0) { signal(SIGUSR1, on_signal); raise(SIGUSR1); }
    if (strcmp(mode, "chdir") == 0) return chdir("/") ? 5 : 42;
    if (strcmp(mode, "thread-exit") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, leave, (void *)42L);
        pthread_join(thread, NULL);
    }
    pid_t child = -1;
    if (strcmp(mode, "fork-exit") == 0) { child = fork(); if (child == 0) exit(in_child() ? 7 : 8); }
    if (strcmp(mode, "fork-_exit") == 0) { child = fork(); if (child == 0) _exit(in_child() ? 7 : 8); }
    if (strcmp(mode, "clone") == 0) {
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) _exit(in_child() ? 7 : 8);
    }
    if (strcmp(mode, "vfork") == 0) { child = vfork(); if (child == 0) _exit(7); }
    if (strcmp(mode, "vfork-exec") == 0) {
        child = vfork();
        if (child == 0) { execl("/bin/sh", "sh", "-c", "exit 7", (char *)0); _exit(126); }
    }
    if (strcmp(mode, "system") == 0) { printf("system %d\n", system("exit 7") >> 8); return 42; }
    if (child < 0) { printf("no such mode\n"); return 3; }
    reap(child, "child");
    unsigned long long q;
    printf("parent alloc %d\n", alloc(&q, 4096));
    return 42;
}
