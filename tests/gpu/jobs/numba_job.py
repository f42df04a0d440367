"""numba-cuda: its own allocations, and kernels compiled at run time."""
import numpy
from numba import cuda
import job


@cuda.jit
def add(total, a, b):
    i = cuda.grid(1)
    if i < total.size:
        total[i] = (total[i] + a[i % a.size] * b[i % b.size]) % 1009


rng = numpy.random.default_rng(7)
total = cuda.to_device(numpy.zeros(100000, numpy.int64))
for i in range(400):
    n = 1000 + 997 * (i % 53)
    a = cuda.to_device(rng.integers(0, 1000, n))
    b = cuda.to_device(rng.integers(0, 1000, n + 7))
    add[(total.size + 255) // 256, 256](total, a, b)
cuda.synchronize()
host = total.copy_to_host()
del a, b
if job.leak:
    for _ in range(job.COUNT):
        job.lose(cuda.device_array(job.BYTES, numpy.uint8))
job.result("numba", host)
