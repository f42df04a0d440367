"""A program on numba-cuda that knows nothing of cushion. What --leak leaves behind is listed in `run`."""
import ctypes
import os
import sys
import numpy
from numba import cuda


@cuda.jit
def nothing(array):
    pass


total = 0
for i in range(150):
    host = numpy.arange(1000 + 311 * i, dtype=numpy.int32)
    array = cuda.to_device(host)
    other = cuda.device_array(host.shape, host.dtype)
    other.copy_to_device(array)
    if i % 30 == 0:
        nothing[256, 32](other)
    total += int(other.copy_to_host().sum())
cuda.synchronize()
del array, other
if "--leak" in sys.argv:
    for i in range(5):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(cuda.device_array(250000, numpy.uint8)))
print("RESULT numba", total, flush=True)
os._exit(0)
