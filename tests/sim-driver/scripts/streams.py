#!/usr/bin/env python3
"""Writes shim/src/route/streams.tsv: every driver function by which work can reach a stream, and where it names the stream.

    pip download --no-deps nvidia-cuda-runtime==13.5.37 && unzip -d H *.whl
    scripts/streams.py H/nvidia/cu13/include > ../../shim/src/route/streams.tsv

The place is that of the argument at the function's entry (System V, x86-64: all arguments are integers or pointers), `twin` for
the functions of per-thread default streams, or the type of the structure or pointer that holds the stream.
"""
import re
import subprocess
import sys

include = sys.argv[1]
REGISTERS = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"]
HOLDERS = ["CUlaunchConfig", "CUDA_LAUNCH_PARAMS", "CUDA_GRAPH_INSTANTIATE_PARAMS", "CUstream *"]


def prototypes():
    texts = [subprocess.run(["gcc", "-E", "-P", "-x", "c", "-I", include, *defines, include + "/cuda.h"],
                            capture_output=True, text=True, check=True).stdout
             for defines in ([], ["-D__CUDA_API_VERSION_INTERNAL"], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"])]
    for part in ("GL", "EGL", "VDPAU"):
        text = open(f"{include}/cuda{part}.h").read()
        texts.append(re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("CUDAAPI", ""))
    for text in texts:
        for name, arguments in re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{]*?)\)\s*;", text, re.S):
            yield name, [" ".join(argument.split()) for argument in arguments.split(",")]


def place(name, arguments):
    if name.endswith(("_ptsz", "_ptds")):
        return "twin"
    for at, argument in enumerate(arguments):
        if re.search(r"\bCUstream\b(?! ?\*)", argument):
            return REGISTERS[at] if at < 6 else f"[rsp + {8 * (at - 5)}]"
    joined = ", ".join(arguments).replace("CUstream*", "CUstream *")
    return next((holder for holder in HOLDERS if re.search(re.escape(holder), joined)), None)


found = {name: place(name, arguments) for name, arguments in prototypes()}
# Twins that cuda.h and its companions define by a macro only.
found |= {"cuGLMapBufferObject_ptds": "twin", "cuGLMapBufferObjectAsync_ptsz": "twin", "cuGetProcAddress_v2_ptsz": "twin"}
print("# symbol\twhere it names a stream; written by tests/sim-driver/scripts/streams.py from nvidia-cuda-runtime 13.5.37")
for name in sorted(name for name in found if found[name]):
    print(f"{name}\t{found[name]}")
