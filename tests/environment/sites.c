/* Leaks from call sites that look alike: the same depth, the same callee, other callers; and two lines of one function. */
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);

static unsigned long long block;
#define SITE __attribute__((noinline, noclone))
static SITE int take(unsigned long size) { int code = cuMemAlloc_v2(&block, size); __asm__ volatile(""); return code; }
static SITE int one(unsigned long size) { int code = take(size); __asm__ volatile(""); return code; }
static SITE int two(unsigned long size) { int code = take(size); __asm__ volatile(""); return code; }
static SITE int both(void)
{
    int code = take(3000);
    __asm__ volatile("");
    code |= take(4000);
    __asm__ volatile("");
    return code;
}

int main(void)
{
    void *context;
    int code = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    for (int i = 0; i < 50; i++) code |= one(1000) | two(2000) | both();
    for (int i = 0; i < 10; i++) code |= one(1000);
    return code;
}
