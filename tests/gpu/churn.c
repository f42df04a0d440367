/* The churn program on the driver API, with copies in place of kernels. */
#include "churn.h"
#include "driver.h"

static unsigned words[6 << 18];

static void setup(void) { open_device(); }

static address allocate(size_t bytes)
{
    address block;
    DRIVER(cuMemAlloc_v2(&block, bytes));
    return block;
}

static void release(address block) { DRIVER(cuMemFree_v2(block)); }

static void fill(address block, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes / 4; i++) words[i] = seed + (unsigned)i;
    if (bytes >= 4) DRIVER(cuMemcpyHtoD_v2(block, words, bytes / 4 * 4));
}

static unsigned long long sum(address block, size_t bytes)
{
    unsigned long long total = 0;
    if (bytes >= 4) DRIVER(cuMemcpyDtoH_v2(words, block, bytes / 4 * 4));
    for (size_t i = 0; i < bytes / 4; i++) total += words[i];
    return total;
}

int main(int argc, char **argv) { return churn(argc, argv); }
