"""Runs a Python script, but holds it before its first line. usage: held.py MODULE,... SCRIPT [ARGUMENT...]

Loads the modules (seconds, for frameworks), says "ready", and waits for a line; at the end of the input it leaves. So several can load
side by side before one has the GPU: a module that is loaded does not use it.
"""
import importlib
import os
import runpy
import sys

if __name__ == "__main__":
    for module in filter(None, sys.argv[1].split(",")):
        importlib.import_module(module)
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("held.py: no one wants it any more")
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
