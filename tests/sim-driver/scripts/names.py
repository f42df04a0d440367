#!/usr/bin/env python3
"""Writes src/names.tsv: every driver symbol, its base name, version and variant.

    pip download --no-deps nvidia-cuda-runtime==13.5.37 && unzip -d H *.whl
    scripts/names.py H/nvidia/cu13/include > src/names.tsv

Versions come from the PFN_cu<Name>_v<version>[_ptds|_ptsz] typedefs. Symbols are what cuda.h
declares when it is preprocessed plainly, for the library's own build, and for per-thread
default streams; the n-th version of a name belongs to its n-th symbol.
"""
import re
import subprocess
import sys

include = sys.argv[1]


def symbols(*defines):
    text = subprocess.run(
        ["gcc", "-E", "-P", "-x", "c", "-I", include, *defines, include + "/cuda.h"],
        capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


declared = (symbols() | symbols("-D__CUDA_API_VERSION_INTERNAL")
            | symbols("-DCUDA_API_PER_THREAD_DEFAULT_STREAM"))
versions = {}
for part in ("", "Profiler", "GL", "EGL", "VDPAU"):
    text = open(f"{include}/cuda{part}Typedefs.h").read()
    for name, version, variant in re.findall(
            r"\bPFN_(cu[A-Z]\w*?)_v(\d+)((?:_ptds|_ptsz)?)\)\s*\(", text):
        versions.setdefault((name, variant), set()).add(int(version))


def candidates(name, variant):
    for n in ("", *(f"_v{k}" for k in range(2, 9))):
        yield name + n + variant


print("# symbol\tname\tversion\tvariant; written by scripts/names.py from nvidia-cuda-runtime 13.5.37")
used = set()
for (name, variant), found in sorted(versions.items()):
    have = [s for s in candidates(name, variant) if s in declared]
    found = sorted(found)
    if not have:  # profiler, GL, EGL and VDPAU: declared elsewhere
        have = [s for s, _ in zip(candidates(name, variant), found)]
    if len(have) > len(found):
        have = have[-len(found):]
    if len(have) != len(found):
        sys.stderr.write(f"mismatch: {name}{variant}: {found} {have}\n")
    for version, symbol in zip(found, have):
        used.add(symbol)
        print(f"{symbol}\t{name}\t{version}\t{variant.lstrip('_') or '-'}")
# The one symbol without a typedef of its own.
print("cuGetProcAddress_v2_ptsz\tcuGetProcAddress\t12000\tptsz")
for symbol in sorted(declared - used - {"cuGetProcAddress_v2_ptsz"}):
    sys.stderr.write(f"no version: {symbol}\n")
