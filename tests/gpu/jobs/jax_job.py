"""JAX with XLA_PYTHON_CLIENT_ALLOCATOR=platform."""
import jax
import jax.numpy as jnp
import numpy
import job


@jax.jit
def step(total, a, b):
    product = jnp.matmul(a, b, precision="highest")
    return (total + jnp.maximum(product, 0) - a.sum(1, keepdims=True) - b.sum(0, keepdims=True)) % 1009


assert jax.devices()[0].platform == "gpu", jax.devices()
rng = numpy.random.default_rng(5)
total = jnp.zeros((64, 64), jnp.float32)
for i in range(400):
    n = 64 * (1 + i % 8)
    a = jnp.asarray(rng.integers(-3, 4, (64, n)).astype(numpy.float32))
    b = jnp.asarray(rng.integers(-3, 4, (n, 64)).astype(numpy.float32))
    total = step(total, a, b)
total = numpy.asarray(total.block_until_ready())
del a, b
if job.leak:
    for _ in range(job.COUNT):
        job.lose(jax.device_put(numpy.zeros(job.BYTES, numpy.uint8)).block_until_ready())
job.result("jax", total)
