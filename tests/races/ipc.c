/* usage: ipc    Memory of one process in another. The importer is this program again, with the preloaded library that IMPORTER names (none if
 * it is empty), so that all four pairs of shimmed and unshimmed can be had. PIECES says what opening a piece of a segment must answer. With
 * CUSHION_BACKING=vmm every block of a shimmed exporter is such a piece.
 */
#include "../sim-driver/tests/c/simtest.h"

enum { BLOCKS = 5 };
typedef struct { Ipc handle; unsigned long long bytes; unsigned seed; int whole; } message;
static const unsigned long long sizes[BLOCKS] = { 700, 5000, 700000, 3 << 20, 100 << 20 };

static void put_to(int fd, const void *p, size_t n) { IS(write(fd, p, n), n); }
static void get_from(int fd, void *p, size_t n) { IS(read(fd, p, n), n); }

/* Copies and memsets that leave the block are refused and touch nothing, on either side of it, though the segment goes on. */
static void bounds(P p, unsigned long long bytes, unsigned seed, H stream)
{
    static char host[8192];
    size_t part = bytes < sizeof host ? bytes : sizeof host;
    P end = p + bytes, own;
    OK(cuMemAlloc_v2(&own, sizeof host));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(host, end - part, part));
    OK(cuMemcpyDtoD_v2(own, end - part, part));
    IS(cuMemcpyDtoH_v2(host, end - part + 1, part), 1);
    IS(cuMemcpyHtoD_v2(end - part + 1, host, part), 1);
    IS(cuMemcpyHtoDAsync_v2(end - 1, host, 2, stream), 1);
    IS(cuMemcpyDtoD_v2(own, end - part + 1, part), 1);
    IS(cuMemcpyDtoD_v2(end - part + 1, own, part), 1);
    IS(cuMemcpyDtoDAsync_v2(end - part + 1, own, part, stream), 1);
    IS(cuMemsetD8_v2(end - 1, 0, 2), 1);
    IS(cuMemsetD8Async(p, 0, bytes + 1, stream), 1);
    IS(cuMemsetD32_v2(p, 0, bytes / 4 + 1), 1);
    IS(cuMemsetD8_v2(end, 0, 1), 1);
    IS(cuMemsetD8_v2(p, 0, bytes + 512), 1);
    OK(cuMemsetD8_v2(end, 0, 0));
    OK(cuMemFree_v2(own));
    IS(wrong(p, bytes, seed, stream), 0);
}

static int importer(int in, int out)
{
    int pieces = atoi(getenv("PIECES"));
    message m[BLOCKS];
    P p[BLOCKS] = { 0 }, again, base;
    size_t n;
    H stream, context;
    begin();
    OK(cuStreamCreate(&stream, 1));
    get_from(in, m, sizeof m);
    for (int i = 0; i < BLOCKS; i++) {
        IS(cuIpcOpenMemHandle_v2(&p[i], m[i].handle, 1), m[i].whole ? 0 : pieces);
        if (!m[i].whole && pieces) p[i] = 0;
        if (!p[i]) continue;
        /* As that block: its start, its size, its contents, and no more. */
        OK(cuMemGetAddressRange_v2(&base, &n, p[i] + 5));
        IS(base, p[i]);
        /* Without the shim the importer can know the segment only. */
        if (pieces) YES(n >= m[i].bytes);
        else IS(n, m[i].bytes);
        IS(wrong(p[i], m[i].bytes, m[i].seed, stream), 0);
        IS(cuMemFree_v2(p[i]), 1);
        /* Open twice, close twice. */
        OK(cuIpcOpenMemHandle_v2(&again, m[i].handle, 1));
        IS(again, p[i]);
        OK(cuIpcCloseMemHandle(again));
        OK(cuMemcpyDtoH_v2(&n, p[i], 8));
        OK(fill(p[i], m[i].bytes, m[i].seed + 100, stream));
        if (!pieces) bounds(p[i], m[i].bytes, m[i].seed + 100, stream);
    }
    OK(cuStreamSynchronize(stream));
    put_to(out, "w", 1);
    get_from(in, &n, 1); /* the exporter has freed all of it, and allocated as much */
    for (int i = 0; i < BLOCKS; i++)
        if (p[i] && !m[i].whole) OK(fill(p[i], m[i].bytes, 9999, stream));
    OK(cuStreamSynchronize(stream));
    put_to(out, "W", 1);
    get_from(in, &n, 1);
    for (int i = 0; i < BLOCKS; i++)
        if (p[i]) {
            /* What works on it still is waited for. */
            OK(late_fill(p[i], m[i].bytes, 5555, 30, stream));
            OK(cuIpcCloseMemHandle(p[i]));
            OK(cuCtxSynchronize());
            IS(cuIpcCloseMemHandle(p[i]), 1);
        }
    put_to(out, "c", 1);
    get_from(in, &n, 1);
    OK(cuCtxGetCurrent(&context));
    /* The last: the exporter has gone, or is going. */
    get_from(in, m, sizeof *m);
    int opened = cuIpcOpenMemHandle_v2(&again, m->handle, 1);
    IS(opened, m->whole ? 0 : pieces);
    put_to(out, "l", 1);
    char none;
    IS(read(in, &none, 1), 0);
    if (!opened) OK(cuIpcCloseMemHandle(again));
    return failures != 0;
}

static void exporter(int in, int out, int shimmed)
{
    message m[BLOCKS];
    P p[BLOCKS], pads[BLOCKS], more[BLOCKS][16];
    Ipc twice;
    char answer;
    const char *backing = getenv("CUSHION_BACKING");
    int mapped = shimmed && backing && !strcmp(backing, "vmm");
    begin();
    for (int i = 0; i < BLOCKS; i++) {
        OK(cuMemAlloc_v2(&pads[i], sizes[i] > 1 << 20 ? 1 : sizes[i])); /* keeps the segment */
        OK(cuMemAlloc_v2(&p[i], sizes[i]));
        m[i] = (message){ .bytes = sizes[i], .seed = 10 + (unsigned)i, .whole = !shimmed || (!mapped && sizes[i] > 1 << 20) };
        OK(fill(p[i], sizes[i], m[i].seed, NULL));
        OK(cuIpcGetMemHandle(&m[i].handle, p[i] + 1));
        OK(cuIpcGetMemHandle(&twice, p[i]));
        IS(memcmp(&twice, &m[i].handle, sizeof twice), 0);
        for (int k = 0; k < i; k++) YES(memcmp(&m[k].handle, &m[i].handle, sizeof twice));
    }
    OK(cuCtxSynchronize());
    put_to(out, m, sizeof m);
    get_from(in, &answer, 1);
    int opened = !shimmed || !atoi(getenv("PIECES"));
    for (int i = 0; i < BLOCKS; i++) {
        IS(wrong(p[i], sizes[i], m[i].seed + (m[i].whole || opened ? 100 : 0), NULL), 0);
        IS(wrong(pads[i], 1, 0, NULL) <= 1, 1);
        OK(cuMemFree_v2(p[i]));
        IS(cuIpcGetMemHandle(&twice, p[i]), 1);
    }
    for (int i = 0; i < BLOCKS - 2; i++)
        for (int k = 0; k < 16; k++) {
            OK(cuMemAlloc_v2(&more[i][k], sizes[i]));
            OK(fill(more[i][k], sizes[i], 77, NULL));
        }
    OK(cuCtxSynchronize());
    put_to(out, "f", 1);
    get_from(in, &answer, 1);
    for (int i = 0; i < BLOCKS - 2; i++)
        for (int k = 0; k < 16; k++) {
            /* Natively the driver may hand the memory out again. */
            if (shimmed) IS(wrong(more[i][k], sizes[i], 77, NULL), 0);
            OK(cuMemFree_v2(more[i][k]));
        }
    put_to(out, "k", 1);
    get_from(in, &answer, 1);
    put_to(out, "n", 1);
    OK(cuMemAlloc_v2(&p[0], 700));
    OK(cuIpcGetMemHandle(&m[0].handle, p[0]));
    put_to(out, m, sizeof *m);
    get_from(in, &answer, 1);
    for (int i = 0; i < BLOCKS; i++) OK(cuMemFree_v2(pads[i]));
    OK(cuMemFree_v2(p[0]));
    /* More than there is: what nobody uses goes back, exported pieces with their segments. */
    IS(cuMemAlloc_v2(&p[0], 200ull << 30), 2);
    IS(simcuda_live_bytes(0), 0);
}

int main(int argc, char **argv)
{
    int down[2], up[2], status = 0;
    if (argc == 3) return importer(atoi(argv[1]), atoi(argv[2]));
    const char *preload = getenv("IMPORTER"), *own = getenv("LD_PRELOAD");
    OK(pipe(down) | pipe(up));
    pid_t pid = fork();
    if (pid == 0) {
        char in[12], out[12];
        sprintf(in, "%d", down[0]), sprintf(out, "%d", up[1]);
        close(down[1]), close(up[0]);
        if (preload && *preload) setenv("LD_PRELOAD", preload, 1);
        else unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", argv[0], in, out, NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    exporter(up[0], down[1], own && *own);
    close(down[1]);
    waitpid(pid, &status, 0);
    IS(status, 0);
    printf("exporter and importer agree\n");
    return failures != 0;
}
