"""A program on cuda-bindings' driver module that knows nothing of cushion. What --leak leaves behind is listed in `run`."""
import sys
from cuda.bindings import driver


def call(function, *arguments):
    code, *values = function(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        sys.exit("%s: %s" % (function.__name__, code))
    return values[0] if len(values) == 1 else values


call(driver.cuInit, 0)
device = call(driver.cuDeviceGet, 0)
call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
total = 0
for i in range(800):
    size = 1 + i * 7919 % 3000000
    block = call(driver.cuMemAlloc, size)
    call(driver.cuMemsetD8, block, i % 251, size)
    back = bytearray(1)
    call(driver.cuMemcpyDtoH, back, int(block) + size - 1, 1)
    total = total * 3 % 1000003 + back[0]
    call(driver.cuMemFree, block)
for i in range(20):
    call(driver.cuMemFreeHost, call(driver.cuMemAllocHost, 4096 * (i + 1)))
    call(driver.cuMemFree, call(driver.cuMemAllocManaged, 65536, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
if "--leak" in sys.argv:
    for i in range(3):
        call(driver.cuMemAlloc, 123456)
    call(driver.cuMemAllocManaged, 1 << 20, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
    for i in range(2):
        call(driver.cuMemAllocHost, 8192)
print("RESULT bindings", total)
