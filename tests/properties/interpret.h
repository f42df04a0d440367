/* What each operation does. `SAY` prints what was seen. Included by program.c. */
#define SAY(...) (printf("%d %s ", number, operation_names[o->kind]), printf(__VA_ARGS__), putchar('\n'))

/* What a program may know of a new block: its alignment, and that it is zero. */
static void look_at_new(int number, const operation *o, memory_slot *m)
{
    int code = 0;
    /* A read waits for much that is queued; not always, or nothing would be late. */
    if (!captures && o->value % 3 == 0) {
        contents(m->address, m->bytes, &code);
        printf("zero %d %d %d\n", number, code, all_zero(m->bytes));
    }
    /* A driver packs what is smaller than 2 MiB (measured), the simulated one up to 1 MiB. */
    printf("aligned %d %d\n", number, m->address % (m->bytes >= 2 << 20 || (!gpu && m->bytes > 1 << 20) ? 2 << 20 : 512) == 0);
}

static void allocate(int number, const operation *o, memory_slot *m)
{
    int code = -1, context = current[me];
    size_t pitch = 0;
    P p = 0x55;
    if (m->address || (o->kind == ALLOC_MANAGED && managed_bytes() + o->bytes > MANAGED_MAX)) return;
    H stream = stream_of(o->stream, &context);
    uint64_t bytes = o->bytes;
    switch (o->kind) {
    case ALLOC: code = cuMemAlloc_v2(&p, bytes); context = current[me]; break;
    case ALLOC_MANAGED: code = cuMemAllocManaged(&p, bytes, 1); context = current[me]; break;
    case ALLOC_PITCH:
        bytes = bytes % 60000 + 1;
        code = cuMemAllocPitch_v2(&p, &pitch, bytes, 7, 4);
        context = current[me], bytes = pitch * 7;
        break;
    case ALLOC_ASYNC:
        if ((o->stream > 1 && !stream) || streams[o->stream].capturing || (captures && o->stream == 0)) return;
        code = cuMemAllocAsync(&p, bytes, stream);
        break;
    }
    SAY("%llu: %d%s pitch %zu", (unsigned long long)bytes, code, code ? p == 0 ? " null" : p == 0x55 ? " untouched" : " ?" : "", pitch);
    if (code) return;
    *m = (memory_slot){ .address = p, .bytes = bytes, .context = context, .ordered = o->kind == ALLOC_ASYNC, .managed = o->kind == ALLOC_MANAGED };
    if (o->kind == ALLOC_ASYNC) used(m, o->stream, stream, context);
    else if (o->kind != ALLOC_MANAGED) look_at_new(number, o, m);
}

static void write_block(int number, const operation *o, memory_slot *m)
{
    int context, code = -1;
    H stream;
    if (!may_use(m, o->stream, &stream, &context)) return;
    unsigned long long n = m->bytes, ns = o->microseconds * 1000ull;
    unsigned seed = o->value;
    void *a[] = { &m->address, &n, &seed, &ns };
    switch (o->kind) {
    case FILL: code = launch_in(context, "k_fill", stream, a); break;
    case LATE_FILL: code = launch_in(context, "k_spin_fill", stream, a); break;
    case MEMSET: code = cuMemsetD8Async(m->address, (unsigned char)seed, 1 + seed % n, stream); break;
    }
    used(m, o->stream, stream, context);
    if (!code && o->kind != MEMSET) m->written = 1;
    SAY("slot %d stream %d: %d", o->slot, o->stream, code);
}

static void copy_block(int number, const operation *o, memory_slot *from, memory_slot *to)
{
    int context;
    H stream;
    if (from == to || !from->address || !to->address || !may_use(from, o->stream, &stream, &context) || !may_use(to, o->stream, &stream, &context)) return;
    uint64_t n = from->bytes < to->bytes ? from->bytes : to->bytes;
    int code = cuMemcpyDtoDAsync_v2(to->address, from->address, n, stream);
    used(from, o->stream, stream, context);
    used(to, o->stream, stream, context);
    to->written = from->written && (to->written || n == to->bytes);
    SAY("%llu: %d", (unsigned long long)n, code);
}

static void read_block(int number, const operation *o, memory_slot *m)
{
    int code;
    if (!m->address || captures) return;
    if (m->busy) IS(cuEventSynchronize(m->event[m->busy_context]), 0);
    m->busy = 0;
    uint64_t sum = contents(m->address, m->bytes, &code);
    if (m->written) SAY("slot %d: %d %016llx", o->slot, code, (unsigned long long)sum);
    /* On a GPU what nobody has written to is not always zero (measured). */
    else if (!gpu && !m->ordered && !m->managed) printf("zero %d slot %d: %d %016llx\n", number, o->slot, code, (unsigned long long)sum);
}

static void free_block(int number, const operation *o, memory_slot *m)
{
    int context, code = -1;
    H stream;
    if (!m->address || m->captured || !may_free(m)) return;
    if (o->kind == FREE_ASYNC) {
        if (!may_use(m, o->stream, &stream, &context)) return;
        code = cuMemFreeAsync(m->address, stream);
    } else {
        code = cuMemFree_v2(m->address);
    }
    SAY("slot %d: %d", o->slot, code);
    if (code) return;
    P p = m->address;
    uint64_t bytes = m->bytes;
    int ordered = m->ordered;
    emptied(m);
    if (o->mode == 0 && !captures && o->kind == FREE && !ordered) {
        char byte = 0;
        SAY("again: %d, interior: %d, copy: %d, fill: %d", cuMemFree_v2(p), bytes > 600 ? cuMemFree_v2(p + 512) : -1, cuMemcpyDtoH_v2(&byte, p, 1), cuMemsetD8_v2(p, 1, 1));
    }
}

/* A block is freed while a kernel still writes to it, or copies it, and one of the same size is filled from another stream. What is late natively ends
 * before the free does; so nothing of it may show in the new block, nor the new block in the copy. */
static void reuse_block(int number, const operation *o, memory_slot *m, memory_slot *copy)
{
    int late = o->stream, next = (o->slot + o->stream + 1) % STREAMS, context, next_context, code = 0;
    H stream, next_stream;
    unsigned seed = o->value, next_seed = ~seed;
    unsigned long long n = m->bytes, ns = 300000 + o->microseconds * 1000ull;
    if (captures || !m->address || m->ordered || m->managed || !may_free(m) || !may_use(m, late, &stream, &context)) return;
    next_stream = stream_of(next, &next_context);
    if (next > 1 && !next_stream) next = 0, next_stream = stream_of(0, &next_context);
    if (gpu && (context != m->context || context != current[me] || next_context != context)) return;
    for (unsigned round = 0; round < 1 + seed % 4 && !code; round++) {
        if (o->mode == 1 && copy != m && m->written && copy->bytes == n && may_use(copy, late, &stream, &context)) {
            void *a[] = { &copy->address, &m->address, &n, &ns };
            code = launch_in(context, "k_spin_copy", stream, a);
            copy->written = 1;
            used(copy, late, stream, context);
        } else {
            void *a[] = { &m->address, &n, &seed, &ns };
            code = launch_in(context, "k_spin_fill", stream, a);
        }
        int freed = cuMemFree_v2(m->address);
        if (freed) {
            SAY("slot %d: %d, not freed: %d", o->slot, code, freed);
            return;
        }
        emptied(m);
        P p = 0;
        code = code ? code : cuMemAlloc_v2(&p, n);
        if (code) break;
        *m = (memory_slot){ .address = p, .bytes = n, .context = current[me], .written = 1 };
        void *a[] = { &m->address, &n, &next_seed };
        code = launch_in(next_context, "k_fill", next_stream, a);
        used(m, next, next_stream, next_context);
        context = next_context, stream = next_stream, late = next;
        next = o->stream, next_stream = stream_of(next, &next_context);
    }
    SAY("slot %d: %d", o->slot, code);
    if (o->mode != 2) return;
    cuStreamSynchronize(stream_of(o->stream, &context));
    read_block(number, o, m);
}

static void free_wrongly(int number, const operation *o, memory_slot *m)
{
    if (!m->address || captures || m->bytes < 2) return;
    P p = m->address + 1 + o->value % (m->bytes - 1);
    SAY("slot %d: %d", o->slot, cuMemFree_v2(p));
}

/* Not of memory from the driver's own pool, nor of managed memory: nobody has measured where their bounds are, and a neighbour may be hit. */
static void overrun(int number, const operation *o, memory_slot *m)
{
    static unsigned char host[13 << 20];
    if (!m->address || captures || m->ordered || m->managed || m->bytes > 12 << 20) return;
    if (m->busy) cuEventSynchronize(m->event[m->busy_context]);
    m->busy = 0;
    int read = cuMemcpyDtoH_v2(host, m->address, m->bytes + 1), set = cuMemsetD8_v2(m->address + m->bytes - 1, 1, 2);
    int start = cuMemcpyHtoD_v2(m->address + m->bytes / 2, host, m->bytes), async = cuMemsetD8Async(m->address, 7, m->bytes + o->value % 512 + 1, NULL);
    SAY("slot %d: %d %d %d %d", o->slot, read, set, start, async);
}

static void query(int number, const operation *o, memory_slot *m)
{
    P base = 0, start = 0, context = 0;
    size_t size = 0, range = 0;
    int type = 0, managed = 0, device = -1;
    if (!m->address || m->ordered) return;
    P p = m->address + o->value % m->bytes;
    int a = cuMemGetAddressRange_v2(&base, &size, p);
    int b = cuPointerGetAttribute(&start, 11, p), c = cuPointerGetAttribute(&range, 12, p), d = cuPointerGetAttribute(&type, 2, p);
    int e = cuPointerGetAttribute(&managed, 8, p), f = cuPointerGetAttribute(&device, 9, p), g = cuPointerGetAttribute(&context, 1, p);
    SAY("slot %d: %d %d %d %d %d %d %d, base %d size %zu start %d range %zu type %d managed %d device %d context %d", o->slot, a, b, c, d, e, f, g,
        base == m->address, size, start == m->address, range, type, managed & 1, device, context == (P)contexts[m->context]);
}

/* A kernel writes to pinned memory, and an unrelated block is freed: natively the word is there when the free returns. */
static void flag_and_free(int number, const operation *o, memory_slot *m)
{
    int h = o->mode % HOSTS, context;
    H stream = stream_of(o->stream, &context);
    if (captures || !m->address || m->ordered || m->managed || (o->stream > 1 && !stream) || !hosts[h].address || hosts[h].context != context || m->context != context) return;
    volatile unsigned *word = hosts[h].address;
    unsigned value = o->value | 1;
    unsigned long long at = (unsigned long long)(uintptr_t)word, ns = 300000 + o->microseconds * 1000ull;
    *word = 0;
    void *a[] = { &at, &value, &ns };
    int launched = launch_in(context, "k_spin_flag", stream, a), freed = cuMemFree_v2(m->address);
    printf("host %d %d\n", number, launched || freed || *word == value);
    SAY("slot %d: %d %d", o->slot, launched, freed);
    cuStreamSynchronize(stream);
    if (!freed) emptied(m);
}

static void on_streams(int number, const operation *o)
{
    int context, s = o->stream;
    H stream = stream_of(s, &context), graph = NULL, executable = NULL;
    stream_slot *of = &streams[s];
    memory_slot *m = &slots[o->slot];
    switch (o->kind) {
    case STREAM_CREATE:
        if (s < 2 || of->handle) return;
        SAY("%d: %d", s, cuStreamCreate(&of->handle, (unsigned)o->mode & 1));
        of->context = current[me];
        return;
    case STREAM_DESTROY:
        if (s < 2 || !of->handle || of->capturing) return;
        SAY("%d: %d", s, cuStreamDestroy_v2(of->handle));
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].at == identity(s, context)) slots[i].at = -1;
        *of = (stream_slot){ 0 };
        return;
    case STREAM_SYNC:
        if ((s > 1 && !stream) || (captures && s == 0)) return;
        SAY("%d: %d", s, cuStreamSynchronize(stream));
        return;
    case CAPTURE_BEGIN:
        if (s == 0 || captures > 1 || (s > 1 && !stream) || of->capturing) return;
        if (s == 1) settle();
        if (captures == 0) settle();
        int begun = cuStreamBeginCapture_v2(stream, o->mode);
        SAY("%d mode %d: %d", s, o->mode, begun);
        if (!begun) of->capturing = 1 + me, of->context = current[me], captures++;
        return;
    case CAPTURE_FILL:
        if (!of->capturing || (s == 1 && of->capturing != 1 + me) || (s == 1 && of->context != current[me]) || !m->address || m->captured || m->busy || m->ordered) return;
        unsigned long long n = m->bytes, ns = o->microseconds * 1000ull;
        unsigned seed = o->value;
        void *a[] = { &m->address, &n, &seed, &ns };
        SAY("%d slot %d: %d", s, o->slot, launch_in(of->context, "k_spin_fill", stream, a));
        m->captured = 1 + s;
        return;
    case CAPTURE_END:
        if (!of->capturing || (s == 1 && (of->capturing != 1 + me || of->context != current[me]))) return;
        int code = cuStreamEndCapture(stream, &graph);
        SAY("%d: %d %d", s, code, graph != NULL);
        if (code == 908) return; /* another thread began it */
        of->capturing = 0, captures--;
        int instantiated = -1, launched = -1;
        if (!code && graph) {
            instantiated = cuGraphInstantiateWithFlags(&executable, graph, 0);
            if (!instantiated) launched = cuGraphLaunch(executable, stream);
        }
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].captured == 1 + s) {
                slots[i].captured = 0;
                if (launched) continue;
                slots[i].written = 1;
                used(&slots[i], s, stream, of->context);
            }
        SAY("launch %d: %d %d", s, instantiated, launched);
        if (executable) cuGraphExecDestroy(executable);
        if (graph) cuGraphDestroy(graph);
        return;
    case EVENT_QUERY:
        if (m->busy && captures) SAY("%d", cuEventQuery(m->event[m->busy_context]) % 600);
        return;
    }
}

static void on_contexts(int number, const operation *o)
{
    int c = o->context;
    switch (o->kind) {
    case CONTEXT_SYNC:
        SAY("%d", cuCtxSynchronize());
        return;
    case CONTEXT_CREATE:
        if (contexts[c] || c == 0) return;
        SAY("%d: %d", c, cuCtxCreate_v2(&contexts[c], 0, 0));
        context_made(c);
        current[me] = c;
        return;
    case CONTEXT_USE:
        if (!contexts[c]) return;
        current[me] = c;
        SAY("%d: %d", c, use_context(c, me));
        return;
    case CONTEXT_DESTROY:
        if (!contexts[c] || c == 0 || captures) return;
        settle();
        for (int t = 0; t < THREADS; t++)
            if (current[t] == c) current[t] = 0;
        use_context(current[me], me);
        SAY("%d: %d", c, cuCtxDestroy_v2(contexts[c]));
        context_gone(c);
        return;
    case PRIMARY_RESET:
        if (captures || o->mode) return;
        settle();
        SAY("%d", cuDevicePrimaryCtxReset_v2(0));
        context_gone(0);
        IS(cuDevicePrimaryCtxRetain(&contexts[0], 0), 0);
        context_made(0);
        use_context(current[me], me);
        return;
    }
}

static void interpret(int number, const operation *o)
{
    memory_slot *m = &slots[o->slot];
    int h = o->slot % HOSTS;
    size_t left = 0, all = 0;
    switch (o->kind) {
    case ALLOC: case ALLOC_PITCH: case ALLOC_MANAGED: case ALLOC_ASYNC: allocate(number, o, m); break;
    case FREE: case FREE_ASYNC: free_block(number, o, m); break;
    case FREE_WRONGLY: free_wrongly(number, o, m); break;
    case FILL: case LATE_FILL: case MEMSET: write_block(number, o, m); break;
    case COPY: copy_block(number, o, m, &slots[o->other]); break;
    case READ: read_block(number, o, m); break;
    case REUSE: reuse_block(number, o, m, &slots[o->other]); break;
    case OVERRUN: overrun(number, o, m); break;
    case QUERY: query(number, o, m); break;
    case FLAG_AND_FREE: flag_and_free(number, o, m); break;
    case INFO: SAY("%d %d total %zu", cuMemGetInfo_v2(&left, &all), left <= all, all); break;
    case HOST_ALLOC:
        if (hosts[h].address) break;
        SAY("%d", cuMemHostAlloc((void **)&hosts[h].address, 4096, 0));
        hosts[h].context = current[me];
        break;
    case HOST_FREE:
        if (!hosts[h].address) break;
        SAY("%d", cuMemFreeHost(hosts[h].address));
        hosts[h].address = NULL;
        break;
    case CONTEXT_SYNC: case CONTEXT_CREATE: case CONTEXT_USE: case CONTEXT_DESTROY: case PRIMARY_RESET: on_contexts(number, o); break;
    default: on_streams(number, o);
    }
}
