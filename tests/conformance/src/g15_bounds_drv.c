/* Group 15, driver API: every call that looks at device addresses, with addresses at, in, before and behind a block, live and
 * freed. What it answers is recorded: in a segment the driver sees no end of a block. */
#include "drv.h"

/* Not in every driver, and not in the simulated one: what is missing is not recorded. */
#pragma weak cuMemcpyBatchAsync_v2
#pragma weak cuMemcpy3DBatchAsync_v2
#pragma weak cuMemPrefetchAsync_v2
#pragma weak cuMemAdvise_v2
#pragma weak cuMemRangeGetAttribute
#pragma weak cuMemGetAccess
#pragma weak cuMemSetAccess
#pragma weak cuMemUnmap
#pragma weak cuMemAddressFree
#pragma weak cuMemPoolExportPointer
#pragma weak cuMemGetHandleForAddressRange
#pragma weak cuStreamAttachMemAsync
#pragma weak cuStreamWriteValue32_v2
#pragma weak cuStreamWaitValue32_v2
#pragma weak cuStreamBatchMemOp_v2
#pragma weak cuTexObjectCreate
#pragma weak cuTexObjectDestroy
#pragma weak cuGraphCreate
#pragma weak cuGraphDestroy
#pragma weak cuGraphAddMemcpyNode
#pragma weak cuGraphAddMemsetNode
#pragma weak cuGraphInstantiateWithFlags
#pragma weak cuGraphExecDestroy
#pragma weak cuGraphAddMemFreeNode
#pragma weak cuMemRetainAllocationHandle
#pragma weak cuMemRelease
#pragma weak cuMemcpyPeer

enum { SIZES = 3, PLACES = 8 };
static const size_t sizes[SIZES] = { 1000, 70000, MiB(3) + 5 };
static CUdeviceptr live[SIZES], gone[SIZES], other;
static CUcontext context;
static CUdevice device;
static CUstream stream;
static char *host;
static const size_t other_bytes = MiB(8);

typedef struct { const char *name; CUdeviceptr at; size_t bytes; } place;

/* Blocks with neighbours, and freed ones among live ones. */
static void set_up(void)
{
    context = drv_primary(NULL);
    CKD(D.cuCtxGetDevice(&device));
    host = malloc(other_bytes);
    REQUIRE(host, "no memory");
    memset(host, 0, other_bytes);
    for (int i = 0; i < SIZES; i++) {
        CUdeviceptr block[5];
        for (int k = 0; k < 5; k++) CKD(D.cuMemAlloc_v2(&block[k], sizes[i]));
        live[i] = block[1];
        gone[i] = block[3];
        CKD(D.cuMemFree_v2(block[3]));
    }
    CKD(D.cuMemAlloc_v2(&other, other_bytes));
    CKD(D.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static int places(int i, place *found)
{
    CUdeviceptr p = live[i], f = gone[i];
    size_t n = sizes[i];
    place all[PLACES] = {
        { "whole", p, n }, { "past", p, n + 1 }, { "behind", p + n, 1 }, { "last", p + n - 1, 1 },
        { "before", p - 1, 2 }, { "far-past", p, n + MiB(2) }, { "freed", f, n }, { "in-freed", f + 4, 4 },
    };
    memcpy(found, all, sizeof all);
    return PLACES;
}

typedef CUresult call(CUdeviceptr at, size_t bytes);

static void record(const char *name, call *called)
{
    char line[1400];
    for (int i = 0; i < SIZES; i++) {
        place found[PLACES];
        int count = places(i, found), used = 0;
        for (int k = 0; k < count; k++) {
            CUresult code = called(found[k].at, found[k].bytes);
            used += snprintf(line + used, sizeof line - (size_t)used, " %s:%d", found[k].name, (int)code);
        }
        RECORD("%s.%zu=%s", name, sizes[i], line + 1);
    }
    CKD(D.cuCtxSynchronize());
}
#define REC(f) record(#f, f)

/* ---------------------------------------------------------------------------------------- copies and memsets */

static CUresult to_host(CUdeviceptr p, size_t n) { return cuMemcpyDtoH_v2(host, p, n); }
static CUresult from_host(CUdeviceptr p, size_t n) { return cuMemcpyHtoD_v2(p, host, n); }
static CUresult from_other(CUdeviceptr p, size_t n) { return cuMemcpyDtoD_v2(p, other, n); }
static CUresult to_other(CUdeviceptr p, size_t n) { return cuMemcpyDtoD_v2(other, p, n); }
static CUresult to_host_async(CUdeviceptr p, size_t n) { return cuMemcpyDtoHAsync_v2(host, p, n, stream); }
static CUresult from_host_async(CUdeviceptr p, size_t n) { return cuMemcpyHtoDAsync_v2(p, host, n, stream); }
static CUresult to_other_async(CUdeviceptr p, size_t n) { return cuMemcpyDtoDAsync_v2(other, p, n, stream); }
/* What is no device address may be one of the host: the driver reads it, and crashes. So these have blocks alone. */
static int is_block(CUdeviceptr p, size_t n)
{
    for (int i = 0; i < SIZES; i++)
        if (p >= live[i] && p + n <= live[i] + sizes[i]) return 1;
    return 0;
}
static CUresult unified(CUdeviceptr p, size_t n) { return !is_block(p, n) ? 999 : cuMemcpy((CUdeviceptr)(uintptr_t)host, p, n); }
static CUresult unified_async(CUdeviceptr p, size_t n) { return !is_block(p, n) ? 999 : cuMemcpyAsync(p, (CUdeviceptr)(uintptr_t)host, n, stream); }
static CUresult set8(CUdeviceptr p, size_t n) { return cuMemsetD8_v2(p, 1, n); }
static CUresult set8_async(CUdeviceptr p, size_t n) { return cuMemsetD8Async(p, 1, n, stream); }
static CUresult set2d(CUdeviceptr p, size_t n) { return cuMemsetD2D8_v2(p, n, 1, n, 1); }
static CUresult set2d_rows(CUdeviceptr p, size_t n) { return n < 64 ? 999 : cuMemsetD2D8_v2(p, n / 4, 1, n - 3 * (n / 4), 4); }

static void copies(void)
{
    set_up();
    REC(to_host); REC(from_host); REC(from_other); REC(to_other);
    REC(to_host_async); REC(from_host_async); REC(to_other_async);
    REC(unified); REC(unified_async); REC(set8); REC(set8_async); REC(set2d); REC(set2d_rows);
}

static CUresult peer(CUdeviceptr p, size_t n) { return cuMemcpyPeer(other, context, p, context, n); }

static void peers(void)
{
    if (!cuMemcpyPeer) SKIP_CASE("not in this driver");
    set_up();
    REC(peer);
}

static CUresult rows_2d(CUdeviceptr p, size_t n)
{
    if (n < 64) return 999;
    CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = n / 4, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p, .dstPitch = n / 4, .WidthInBytes = n / 4, .Height = 4 };
    return cuMemcpy2DUnaligned_v2(&c);
}
static CUresult offset_2d(CUdeviceptr p, size_t n)
{
    CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcXInBytes = n - 1, .srcPitch = n,
                        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .dstPitch = n, .WidthInBytes = 1, .Height = 1 };
    return cuMemcpy2DUnaligned_v2(&c);
}
static CUDA_MEMCPY3D box(CUdeviceptr p, size_t n)
{
    CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = n, .srcHeight = 1,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = other, .dstPitch = n, .dstHeight = 1,
                        .WidthInBytes = n, .Height = 1, .Depth = 1 };
    return c;
}
static CUresult box_3d(CUdeviceptr p, size_t n) { CUDA_MEMCPY3D c = box(p, n); return cuMemcpy3D_v2(&c); }
static CUresult box_3d_async(CUdeviceptr p, size_t n) { CUDA_MEMCPY3D c = box(p, n); return cuMemcpy3DAsync_v2(&c, stream); }

static void rectangles(void)
{
    set_up();
    REC(rows_2d); REC(offset_2d); REC(box_3d); REC(box_3d_async);
}

static CUresult batch_from(CUdeviceptr p, size_t n)
{
    if (!is_block(p, n)) return 999;
    CUdeviceptr to[2] = { other, other + MiB(6) }, from[2] = { p, other + MiB(7) };
    size_t bytes[2] = { n, 16 }, first = 0;
    CUmemcpyAttributes how = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
    return cuMemcpyBatchAsync_v2(to, from, bytes, 2, &how, &first, 1, stream);
}
static CUresult batch_to(CUdeviceptr p, size_t n)
{
    if (!is_block(p, n)) return 999;
    CUdeviceptr from[2] = { other + MiB(7), other }, to[2] = { other + MiB(6), p };
    size_t bytes[2] = { 16, n }, first = 0;
    CUmemcpyAttributes how = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
    return cuMemcpyBatchAsync_v2(to, from, bytes, 2, &how, &first, 1, stream);
}
static CUresult batch_3d(CUdeviceptr p, size_t n, int from)
{
    if (!is_block(p, n)) return 999;
    CUDA_MEMCPY3D_BATCH_OP c = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, .extent = { n, 1, 1 } };
    c.src.type = c.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    c.src.op.ptr.ptr = from ? p : other;
    c.dst.op.ptr.ptr = from ? other : p;
    c.src.op.ptr.locHint.type = c.dst.op.ptr.locHint.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return cuMemcpy3DBatchAsync_v2(1, &c, 0, stream);
}
static CUresult batch_3d_from(CUdeviceptr p, size_t n) { return batch_3d(p, n, 1); }
static CUresult batch_3d_to(CUdeviceptr p, size_t n) { return batch_3d(p, n, 0); }

static void batches(void)
{
    if (!cuMemcpyBatchAsync_v2) SKIP_CASE("not in this driver");
    set_up();
    REC(batch_from); REC(batch_to);
}

static void batches_3d(void)
{
    if (!cuMemcpy3DBatchAsync_v2) SKIP_CASE("not in this driver");
    set_up();
    REC(batch_3d_from); REC(batch_3d_to);
}

/* ---------------------------------------------------------------------------------------------------- graphs */

static CUgraph graph;
static CUresult made(CUresult code)
{
    CUgraphExec executable = NULL;
    if (code == CUDA_SUCCESS) code = (CUresult)(1000 * (int)cuGraphInstantiateWithFlags(&executable, graph, 0));
    if (executable) cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    return code;
}
static CUresult node_copy_from(CUdeviceptr p, size_t n)
{
    CUgraphNode node;
    CUDA_MEMCPY3D c = box(p, n);
    cuGraphCreate(&graph, 0);
    return made(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &c, context));
}
static CUresult node_copy_to(CUdeviceptr p, size_t n)
{
    CUgraphNode node;
    CUDA_MEMCPY3D c = box(other, n);
    c.dstDevice = p;
    cuGraphCreate(&graph, 0);
    return made(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &c, context));
}
static CUresult node_set(CUdeviceptr p, size_t n)
{
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS c = { .dst = p, .pitch = 0, .value = 1, .elementSize = 1, .width = n, .height = 1 };
    cuGraphCreate(&graph, 0);
    return made(cuGraphAddMemsetNode(&node, graph, NULL, 0, &c, context));
}
static CUresult node_free(CUdeviceptr p, size_t n)
{
    CUgraphNode node;
    (void)n;
    cuGraphCreate(&graph, 0);
    return made(cuGraphAddMemFreeNode(&node, graph, NULL, 0, p));
}

static void graph_nodes(void)
{
    if (!cuGraphAddMemcpyNode || !cuGraphAddMemsetNode || !cuGraphInstantiateWithFlags) SKIP_CASE("not in this driver");
    set_up();
    REC(node_copy_from); REC(node_copy_to); REC(node_set);
}

static void graph_free(void)
{
    if (!cuGraphAddMemFreeNode) SKIP_CASE("not in this driver");
    set_up();
    REC(node_free);
}

/* ---------------------------------------------------------------------------------------------- values in streams */

static CUdeviceptr word(CUdeviceptr p, size_t n) { return n > 8 ? (p + n) & ~(CUdeviceptr)3 : p & ~(CUdeviceptr)3; }
static CUresult write_value(CUdeviceptr p, size_t n) { return cuStreamWriteValue32_v2(stream, word(p, n), 7, 0); }
static CUresult write_first(CUdeviceptr p, size_t n) { (void)n; return cuStreamWriteValue32_v2(stream, p & ~(CUdeviceptr)3, 7, 0); }
static CUresult wait_value(CUdeviceptr p, size_t n) { (void)n; return cuStreamWaitValue32_v2(stream, p & ~(CUdeviceptr)3, 0, CU_STREAM_WAIT_VALUE_GEQ); }
static CUresult batch_value(CUdeviceptr p, size_t n)
{
    CUstreamBatchMemOpParams c[1] = { 0 };
    c[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    c[0].writeValue.address = word(p, n);
    c[0].writeValue.value = 7;
    return cuStreamBatchMemOp_v2(stream, 1, c, 0);
}

static void stream_values(void)
{
    if (!cuStreamWriteValue32_v2 || !cuStreamWaitValue32_v2 || !cuStreamBatchMemOp_v2) SKIP_CASE("not in this driver");
    set_up();
    REC(write_first); REC(write_value); REC(wait_value); REC(batch_value);
}

/* ---------------------------------------------------------------------------------------------------- questions */

static void attributes(void)
{
    set_up();
    for (int i = 0; i < SIZES; i++) {
        place found[PLACES];
        int count = places(i, found);
        for (int k = 0; k < count; k++) {
            char line[1000];
            int used = 0;
            for (int a = 1; a <= 21; a++) {
                unsigned long long value[2] = { 0, 0 };
                if (a == CU_POINTER_ATTRIBUTE_P2P_TOKENS) continue;
                CUresult code = D.cuPointerGetAttribute(value, (CUpointer_attribute)a, found[k].at);
                if (a == CU_POINTER_ATTRIBUTE_CONTEXT) value[0] = value[0] == (uintptr_t)context;
                if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) value[0] -= code ? 0 : found[k].at;
                if (a == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && !code) value[0] = live[i] - value[0];
                if (a == CU_POINTER_ATTRIBUTE_BUFFER_ID || a == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) value[0] = value[0] != 0;
                if (a == CU_POINTER_ATTRIBUTE_MAPPING_SIZE || a == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) value[0] = 0;
                used += snprintf(line + used, sizeof line - (size_t)used, " %d:%d/%llx", a, (int)code, value[0]);
            }
            RECORD("attributes.%s.%zu=%s", found[k].name, sizes[i], line + 1);
        }
    }
}

static CUresult range(CUdeviceptr p, size_t n)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    (void)n;
    CUresult code = D.cuMemGetAddressRange_v2(&base, &bytes, p);
    return code ? code : (CUresult)(10000000 + bytes + (p - base) * 16);
}
static CUresult ipc(CUdeviceptr p, size_t n) { CUipcMemHandle h; (void)n; return D.cuIpcGetMemHandle(&h, p); }
static CUresult sync_memops(CUdeviceptr p, size_t n) { int on = 0; (void)n; return D.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p); }

static void questions(void)
{
    set_up();
    REC(range); REC(ipc); REC(sync_memops);
}

static CUresult retained(CUdeviceptr p, size_t n)
{
    CUmemGenericAllocationHandle h;
    (void)n;
    CUresult code = cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p);
    if (!code) cuMemRelease(h);
    return code;
}
static CUresult exported(CUdeviceptr p, size_t n) { CUmemPoolPtrExportData d; (void)n; return cuMemPoolExportPointer(&d, p); }
static CUresult access_of(CUdeviceptr p, size_t n)
{
    unsigned long long flags;
    CUmemLocation where = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
    (void)n;
    return cuMemGetAccess(&flags, &where, p);
}
/* Of pages that no block is in the driver says what its own neighbours are. */
static CUresult dma_buf(CUdeviceptr p, size_t n)
{
    if (!is_block(p, n)) return 999;
    int fd = -1;
    CUresult code = cuMemGetHandleForAddressRange(&fd, p & ~(CUdeviceptr)0xfff, (n + 0xfff) & ~(size_t)0xfff, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (fd >= 0) close(fd);
    return code;
}

static void handles(void)
{
    if (!cuMemRetainAllocationHandle || !cuMemGetAccess || !cuMemPoolExportPointer) SKIP_CASE("not in this driver");
    set_up();
    REC(retained); REC(exported); REC(access_of);
}

static void shared_range(void)
{
    if (!cuMemGetHandleForAddressRange) SKIP_CASE("not in this driver");
    set_up();
    REC(dma_buf);
}

static CUmemLocation here(void) { CUmemLocation where = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device }; return where; }
static CUresult prefetch(CUdeviceptr p, size_t n) { return cuMemPrefetchAsync_v2(p, n, here(), 0, stream); }
static CUresult advise(CUdeviceptr p, size_t n) { return cuMemAdvise_v2(p, n, CU_MEM_ADVISE_SET_READ_MOSTLY, here()); }
static CUresult range_attribute(CUdeviceptr p, size_t n) { int v; return cuMemRangeGetAttribute(&v, sizeof v, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, n); }
static CUresult attach(CUdeviceptr p, size_t n) { (void)n; return cuStreamAttachMemAsync(stream, p, 0, CU_MEM_ATTACH_SINGLE); }

static void managed_calls(void)
{
    if (!cuMemPrefetchAsync_v2 || !cuMemAdvise_v2 || !cuMemRangeGetAttribute || !cuStreamAttachMemAsync) SKIP_CASE("not in this driver");
    set_up();
    REC(prefetch); REC(advise); REC(range_attribute); REC(attach);
}

static CUresult texture(CUdeviceptr p, size_t n)
{
    CUDA_RESOURCE_DESC from = { .resType = CU_RESOURCE_TYPE_LINEAR };
    CUDA_TEXTURE_DESC how = { 0 };
    CUtexObject made_texture = 0;
    from.res.linear.devPtr = p;
    from.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
    from.res.linear.numChannels = 1;
    from.res.linear.sizeInBytes = n;
    CUresult code = cuTexObjectCreate(&made_texture, &from, &how, NULL);
    if (!code) cuTexObjectDestroy(made_texture);
    return code;
}

static void textures(void)
{
    if (!cuTexObjectCreate) SKIP_CASE("not in this driver");
    set_up();
    REC(texture);
}

/* ------------------------------------------------------------------------------- calls that must leave the block alone */

static CUresult set_access(CUdeviceptr p, size_t n)
{
    CUmemAccessDesc c = { .location = here(), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    return cuMemSetAccess(p, n, &c, 1);
}
static CUresult unmap(CUdeviceptr p, size_t n) { return cuMemUnmap(p, n); }
static CUresult unmap_pages(CUdeviceptr p, size_t n) { return cuMemUnmap(p & ~(CUdeviceptr)(MiB(2) - 1), (n + MiB(2) - 1) & ~(MiB(2) - 1)); }
static CUresult address_free(CUdeviceptr p, size_t n) { return cuMemAddressFree(p & ~(CUdeviceptr)(MiB(2) - 1), (n + MiB(2) - 1) & ~(MiB(2) - 1)); }

static void foreign_calls(void)
{
    if (!cuMemSetAccess || !cuMemUnmap || !cuMemAddressFree) SKIP_CASE("not in this driver");
    set_up();
    CKD(D.cuMemsetD8_v2(live[2], 5, sizes[2]));
    REC(set_access); REC(unmap); REC(unmap_pages); REC(address_free);
    CKD(D.cuMemcpyDtoH_v2(host, live[2], sizes[2]));
    EXPECT(host[0] == 5 && host[sizes[2] - 1] == 5, "the block was changed");
}

static CUresult bad_free(CUdeviceptr p, size_t n) { (void)n; for (int i = 0; i < SIZES; i++) if (p == live[i]) return 999; return D.cuMemFree_v2(p); }
static CUresult bad_free_async(CUdeviceptr p, size_t n) { (void)n; for (int i = 0; i < SIZES; i++) if (p == live[i]) return 999; return D.cuMemFreeAsync(p, stream); }

static void frees(void)
{
    set_up();
    REC(bad_free); REC(bad_free_async);
    for (int i = 0; i < SIZES; i++) CKD(D.cuMemFree_v2(live[i]));
}

static const conf_case cases[] = {
    { "drv-copies", copies }, { "drv-peers", peers }, { "drv-rectangles", rectangles }, { "drv-batches", batches }, { "drv-batches-3d", batches_3d },
    { "drv-graph-nodes", graph_nodes }, { "drv-graph-free", graph_free }, { "drv-stream-values", stream_values },
    { "drv-attributes", attributes }, { "drv-questions", questions }, { "drv-handles", handles },
    { "drv-shared-range", shared_range }, { "drv-managed-calls", managed_calls }, { "drv-textures", textures },
    { "drv-foreign-calls", foreign_calls }, { "drv-frees", frees },
};
CONF_MAIN(cases)
