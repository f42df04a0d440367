"""Steps of array programs, timed. usage: arrays.py cupy|jax [--iters N] [--warm N]

Sizes change from step to step, so that temporaries of many sizes come and go. ARRAYS_POOL=off makes CuPy do without its own
pool; JAX has XLA_PYTHON_CLIENT_ALLOCATOR for that. The last line is JSON, as workloads.py has it.
"""
import argparse
import json
import os
import random
import time


def cupy_steps():
    import cupy
    if os.environ.get("ARRAYS_POOL") == "off":
        cupy.cuda.set_allocator(None)
        cupy.cuda.set_pinned_memory_allocator(None)
    sizes = random.Random(1)
    weights = cupy.random.RandomState(1).standard_normal((1024, 1024), dtype=cupy.float32)
    while True:
        for _ in range(20):
            rows = sizes.randrange(256, 4096)
            x = cupy.full((rows, 1024), 0.5, dtype=cupy.float32)
            y = cupy.tanh(x @ weights + 1) * 2 - x
            y -= y.mean(axis=1, keepdims=True)
            total = float((y * y).sum()) if rows % 8 == 0 else (y * y).sum()
        del x, y, total
        yield cupy.cuda.runtime.deviceSynchronize


def jax_steps():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x, weights):
        y = jnp.tanh(x @ weights + 1) * 2 - x
        y -= y.mean(axis=1, keepdims=True)
        return y, (y * y).sum()

    assert jax.devices()[0].platform == "gpu", jax.devices()
    sizes = random.Random(1)
    weights = jnp.full((1024, 1024), 0.01, jnp.float32)
    # A shape is compiled once: few of them, all in the warm steps.
    shapes = [256 * k for k in range(1, 9)]
    while True:
        for rows in shapes + [sizes.choice(shapes) for _ in range(12)]:
            y, total = step(jnp.full((rows, 1024), 0.5, jnp.float32), weights)
        yield total.block_until_ready


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=["cupy", "jax"])
    parser.add_argument("--iters", type=int, default=60)
    parser.add_argument("--warm", type=int, default=6)
    arguments = parser.parse_args()
    steps = {"cupy": cupy_steps, "jax": jax_steps}[arguments.name]()
    for _ in range(arguments.warm):
        wait = next(steps)
    wait()
    start = time.perf_counter()
    for _ in range(arguments.iters):
        wait = next(steps)
    wait()
    print(json.dumps({"workload": arguments.name, "ms_per_iter": round((time.perf_counter() - start) * 1000 / arguments.iters, 3)}))
