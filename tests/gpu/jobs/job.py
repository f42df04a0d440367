"""What the Python jobs share: planted leaks and the one line they are compared by.

A job computes with whole numbers small enough to be exact in any order of summation, so that its result is the same on every
run, and prints it as `RESULT ...`. With --leak it plants COUNT arrays of BYTES bytes that nobody ever frees.
"""
import ctypes
import hashlib
import os
import sys

COUNT, BYTES = 6, 3 * 1000 * 1000 + 512
leak = "--leak" in sys.argv[1:]


def lose(thing):
    """Keeps a Python object from ever being collected, interpreter exit included."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def result(name, *arrays):
    """Ends the job: prints a digest of numpy arrays, and leaves without tearing the libraries down."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    print("RESULT %s %s" % (name, digest.hexdigest()[:32]), flush=True)
    sys.stderr.flush()
    os._exit(0)
