/* Two processes, one memory. The child is started before the parent calls the driver. */
#include "simtest.h"

static int to_child[2], to_parent[2];

static void send_to(int fd, const void *p, size_t n) { IS(write(fd, p, n), n); }
static void get(int fd, void *p, size_t n) { IS(read(fd, p, n), n); }

static void child(void)
{
    Ipc h, changed, event_handle;
    P p, q, base;
    H s, e;
    size_t n;
    uint64_t word;
    begin();
    OK(cuStreamCreate(&s, 1));
    get(to_child[0], &h, sizeof h);
    get(to_child[0], &event_handle, sizeof event_handle);
    OK(cuIpcOpenMemHandle_v2(&p, h, 1));
    OK(cuMemGetAddressRange_v2(&base, &n, p));
    IS(base, p);
    IS(wrong(p, 5000, 3, s), 0);
    IS(cuMemFree_v2(p), 1);
    /* The last bytes of a handle are not looked at; its first are. */
    changed = h;
    changed.w[7] = 0x1234;
    OK(cuIpcOpenMemHandle_v2(&q, changed, 1));
    IS(q, p);
    OK(cuIpcCloseMemHandle(q));
    changed.w[0] ^= 1;
    IS(cuIpcOpenMemHandle_v2(&q, changed, 1), 1);
    /* An event of the other process. */
    OK(cuIpcOpenEventHandle(&e, event_handle));
    IS(cuEventQuery(e), 600);
    OK(cuStreamWaitEvent(s, e, 0));
    OK(fill(p, 5000, 8, s));
    IS(cuStreamQuery(s), 600);
    OK(cuStreamSynchronize(s));
    OK(cuEventSynchronize(e));
    OK(cuIpcCloseMemHandle(p));
    IS(cuIpcCloseMemHandle(p), 1);
    IS(cuMemcpyDtoH_v2(&word, p, 8), 1);
    /* What has been freed cannot be opened. */
    get(to_child[0], &h, sizeof h);
    IS(cuIpcOpenMemHandle_v2(&q, h, 1), 1);
    word = failures;
    send_to(to_parent[1], &word, sizeof word);
}

static void parent(pid_t pid)
{
    P p, pad;
    H s, e;
    Ipc h, again, other, event_handle;
    uint64_t word = 1;
    begin();
    OK(cuMemAlloc_v2(&pad, 700));
    OK(cuMemAlloc_v2(&p, 5000));
    OK(cuIpcGetMemHandle(&h, p));
    OK(cuIpcGetMemHandle(&again, p + 1024));
    OK(cuIpcGetMemHandle(&other, pad));
    IS(memcmp(&h, &again, sizeof h), 0);
    YES(memcmp(&h, &other, sizeof h) != 0);
    IS(h.w[7], 0);
    P own;
    IS(cuIpcOpenMemHandle_v2(&own, h, 1), 201);
    IS(cuIpcGetMemHandle(&other, (P)(uintptr_t)&h), 1);
    OK(fill(p, 5000, 3, NULL));
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&s, 1));
    OK(cuEventCreate(&e, 6));
    OK(spin(400, s));
    OK(cuEventRecord(e, s));
    OK(cuIpcGetEventHandle(&event_handle, e));
    send_to(to_child[1], &h, sizeof h);
    send_to(to_child[1], &event_handle, sizeof event_handle);
    OK(cuIpcGetMemHandle(&other, pad));
    OK(cuMemFree_v2(pad));
    send_to(to_child[1], &other, sizeof other);
    get(to_parent[0], &word, sizeof word);
    IS(word, 0);
    OK(cuEventQuery(e));
    IS(wrong(p, 5000, 8, s), 0);
    waitpid(pid, NULL, 0);
    OK(cuMemFree_v2(p));
}

int main(void)
{
    if (pipe(to_child) || pipe(to_parent)) return 2;
    pid_t pid = fork();
    if (pid == 0) {
        child();
        return failures > 0;
    }
    close(to_parent[1]);
    parent(pid);
    return failures > 0;
}
