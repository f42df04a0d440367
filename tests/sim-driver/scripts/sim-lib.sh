#!/bin/sh
# sim-lib.sh [debug|release]: puts the simulated driver where programs find it, and prints the
# folder: DIR/libcuda.so.1 for LD_LIBRARY_PATH, DIR/libcuda.so for -lcuda. Builds nothing.
set -e
cd "$(dirname "$0")/../../.."
dir="${CARGO_TARGET_DIR:-target}/${1:-debug}"
test -f "$dir/libsimcuda.so" || { echo "sim-lib.sh: build sim-driver first ($dir/libsimcuda.so)" >&2; exit 1; }
mkdir -p "$dir/sim"
ln -sf ../libsimcuda.so "$dir/sim/libcuda.so.1"
ln -sf libcuda.so.1 "$dir/sim/libcuda.so"
cd "$dir/sim" && pwd
