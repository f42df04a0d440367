/* usage: errors [CASE]    An error is told where it belongs: the same natively. */
#include "../sim-driver/tests/c/simtest.h"

/* What cannot be compiled is no end of a context (SIMCUDA_FAIL). */
static void a_module_without_a_compiler(void)
{
    H module;
    P p, q;
    begin();
    if (!getenv("SIMCUDA_FAIL")) return;
    OK(cuMemAlloc_v2(&p, 5000));
    IS(cuModuleLoadData(&module, "any image"), 221);
    OK(cuMemcpyDtoH_v2(&module, p, 8));
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&q, 5000));
    OK(cuMemFree_v2(q));
    IS(cuMemFree_v2(q), 1);
}

/* Work of one context has failed; the other one is told of it, and lives on. */
static void an_error_of_another_context(int on_another_device)
{
    H there, stream, module, here = begin();
    P p, q;
    OK(cuMemAlloc_v2(&p, 5000));
    module = the_module;
    if (on_another_device) {
        OK(cuDevicePrimaryCtxRetain(&there, 1));
        OK(cuCtxSetCurrent(there));
    } else {
        OK(cuCtxCreate_v2(&there, 0, 0));
    }
    OK(cuModuleLoadData(&the_module, "any image"));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&q, 5000));
    OK(fill(0x10, 64, 1, stream));
    OK(cuCtxSetCurrent(here));
    IS(cuStreamSynchronize(stream), 700);
    OK(cuMemFree_v2(p));
    OK(cuMemAlloc_v2(&p, 5000));
    the_module = module;
    OK(fill(p, 5000, 1, NULL));
    IS(wrong(p, 5000, 1, NULL), 0);
    IS(cuMemFree_v2(p + 8), 1);
    OK(cuMemFree_v2(p));
    OK(cuCtxSetCurrent(there));
    IS(cuMemFree_v2(q), 700);
    IS(cuMemAlloc_v2(&q, 5000), 700);
}

static void an_error_of_another_device(void) { an_error_of_another_context(1); }
static void an_error_of_the_same_device(void) { an_error_of_another_context(0); }

static const Case cases[] = {
    { "a module without a compiler", a_module_without_a_compiler },
    { "an error of another device", an_error_of_another_device },
    { "an error of the same device", an_error_of_the_same_device },
};
CASES(cases)
