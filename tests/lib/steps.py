"""Steps of real programs, timed side by side: each workload under its variants, in rounds, every other round in the opposite order.

Loading takes several times as long as what is measured, so some processes load their modules side by side (tests/gpu/held.py). Then they run
one after the other, and while one is measured nothing else does anything.
"""
import collections
import importlib.metadata
import itertools
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time

GPU = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpu")

# Processes that load side by side: each takes a core and some GiB of host memory. With six that loaded beside the one that is measured, short steps, which the
# host bounds, took up to twice as long. With none they still differ by half from process to process on some machines (docs/gpu/notes.md).
AT_ONCE = 8
# Rounds of a variant that is slow and has no target of its own: both orders.
ROUNDS_UNCACHED = 2
# Without any pool a run of these takes half a minute and more.
SLOW_UNCACHED = ["gpt", "llama_gen", "streams"]
# A ratio that is this much below the wanted one is the same: what one framework's own pool differs by from run to run.
NOISE = 0.03

Comparison = collections.namedtuple("Comparison", "slow quick least")
# `uncached_arguments` come after the others without any pool.
Workload = collections.namedtuple("Workload", "script modules arguments variants comparisons uncached_arguments", defaults=[[]])
# Steps of the array programs, warm and timed: of a second or more. Without a pool each takes several times as long.
STEPS = ["--warm", "40", "--iters", "400"]
FEW_STEPS = ["--warm", "6", "--iters", "60"]


def variants(library, without):
    """A program with its own pool, and as `without` keeps it from using that: alone and under cushion."""
    return {"caching": {}, "uncached": without, "fast": {**without, "LD_PRELOAD": library, "CUSHION_MODE": "fast"},
            "faithful": {**without, "LD_PRELOAD": library}}


def jax_without_pool():
    """What makes JAX do without its pool. From 0.10.1 on it maps its memory itself (cuMemCreate), so that a pool in front of cuMemAlloc has no part in
    it; since 0.12 a flag, which earlier versions refuse, brings cuMemAlloc back."""
    try:
        version = tuple(map(int, importlib.metadata.version("jax").split(".")[:2]))
    except importlib.metadata.PackageNotFoundError:
        version = (0, 0)
    flags = {"XLA_FLAGS": "--xla_gpu_experimental_vmm_disabled=true"} if version >= (0, 12) else {}
    return {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", **flags}


def workloads(library):
    """Each workload's program, and what is wanted of its times: that of the first over that of the second, at least."""
    torch = variants(library, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    wanted = [Comparison("caching", "fast", 1.0), Comparison("caching", "faithful", 1 / 1.35), Comparison("uncached", "faithful", 1.0)]
    loads = {"resnet": ("torchvision", 6, 24), "gnn": ("torch_geometric.nn", 6, 30), "streams": ("torch", 40, 600),
             "gpt": ("transformers.models.gpt2.modeling_gpt2", 4, 12), "llama_gen": ("transformers.models.llama.modeling_llama", 1, 3)}
    found = {name: Workload("workloads.py", module, [name, "--warm", str(warm), "--iters", str(steps)], torch, wanted)
             for name, (module, warm, steps) in loads.items()}
    for name in SLOW_UNCACHED:
        found[name] = found[name]._replace(variants={variant: settings for variant, settings in torch.items() if variant != "uncached"},
                                           comparisons=[each for each in wanted if each.slow != "uncached"])
    found["cupy"] = Workload("arrays.py", "cupy", ["cupy", *STEPS], variants(library, {"ARRAYS_POOL": "off"}), wanted, FEW_STEPS)
    found["jax"] = Workload("arrays.py", "jax", ["jax", *FEW_STEPS], variants(library, jax_without_pool()),
                            [Comparison("caching", "fast", 1.0), Comparison("uncached", "fast", 1.0), Comparison("uncached", "faithful", 1.0)])
    return found


class Held:
    """A program that has been started and waits for its turn."""

    def __init__(self, command, env):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0,
                                        start_new_session=True)
        self.is_ready = False

    def _line(self, end):
        """The next line, or nothing at the end of the output, or when the time is over."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, end - time.monotonic())):
                return ""
        return self.process.stdout.readline().decode(errors="replace")

    def load(self, end):
        """Waits until it has loaded its modules, or ended."""
        self.is_ready = self._line(end).strip() == "ready"

    def run(self, end):
        """Lets it go: exit status (124 past its time), last line of output, stderr."""
        last = ""
        try:
            if self.is_ready:
                self.process.stdin.write(b"go\n")
                self.process.stdin.flush()
                while line := self._line(end):
                    last = line
            status = self.process.wait(max(1.0, end - time.monotonic()))
        except (subprocess.TimeoutExpired, BrokenPipeError):
            status = 124
        self.close()
        self.errors.seek(0)
        return status, last, self.errors.read().decode(errors="replace")

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def schedule(names, known, rounds):
    """(round, workload, variant) in the order of the runs."""
    for number in range(rounds):
        for name in names:
            order = [variant for variant in known[name].variants if variant != "uncached" or number < ROUNDS_UNCACHED]
            for variant in order if number % 2 == 0 else reversed(order):
                yield number, name, variant


def measure(runs, known, environment, report, end, script=None):
    """Runs what `schedule` says until `end`; yields (round, workload, variant, status, what it printed last, stderr).

    `environment(settings, report)` makes a run's, `report(round, workload, variant)` names its reports; `script` is run in place of all.
    """
    def start(run):
        number, name, variant = run
        workload = known[name]
        arguments = workload.arguments + (workload.uncached_arguments if variant == "uncached" else [])
        command = [sys.executable, os.path.join(GPU, "held.py"), "" if script else workload.modules,
                   script or os.path.join(GPU, workload.script), *arguments]
        return run, Held(command, environment(workload.variants[variant], report(number, name, variant)))

    runs, ahead, longest = iter(runs), collections.deque(), {}
    try:
        while True:
            ahead.extend(start(run) for run in itertools.islice(runs, AT_ONCE))
            if not ahead:
                return
            for _, held in ahead:
                held.load(end)
            while ahead:
                (number, name, variant), held = ahead.popleft()
                # One that would be killed on its way is not begun.
                if longest.get((name, variant), 10.0) > end - time.monotonic():
                    held.close()
                    return
                began = time.monotonic()
                yield (number, name, variant, *held.run(end))
                longest[name, variant] = time.monotonic() - began
    finally:
        for _, held in ahead:
            held.close()


def compared(comparison, taken):
    """Medians of both over the rounds that both had: (ratio, rounds, passed)."""
    slow, quick = taken[comparison.slow], taken[comparison.quick]
    rounds = min(len(slow), len(quick))
    if not rounds:
        return 0.0, 0, False
    ratio = statistics.median(slow) / statistics.median(quick)
    return ratio, rounds, rounds >= 2 and ratio >= comparison.least * (1 - NOISE)

