"""CuPy without its pool."""
import cupy
import job

cupy.cuda.set_allocator(None)
cupy.cuda.set_pinned_memory_allocator(None)
state = cupy.random.RandomState(3)
total = cupy.zeros((64, 64), dtype=cupy.float32)
for i in range(300):
    n = 64 + 41 * (i % 31)
    a = state.randint(-3, 4, (64, n)).astype(cupy.float32)
    b = state.randint(-3, 4, (n, 64)).astype(cupy.float32)
    total += cupy.maximum(a @ b, 0) - (a.sum(1, keepdims=True) + b.sum(0, keepdims=True))
    total %= 1009
del a, b
cupy.cuda.runtime.deviceSynchronize()
if job.leak:
    for _ in range(job.COUNT):
        job.lose(cupy.empty(job.BYTES, dtype=cupy.uint8))
job.result("cupy", cupy.asnumpy(total))
