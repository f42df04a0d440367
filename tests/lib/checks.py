"""A handful of checks in one file: each is a function under @check, and main() runs them and counts."""
import os
import signal
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# CUSHION_TEST_PROFILE=debug: another build than the one that is installed.
PROFILE = os.environ.get("CUSHION_TEST_PROFILE", "release")
RELEASE = os.path.join(ROOT, "target", PROFILE)
LIBRARY = os.path.join(RELEASE, "libcushion.so")
COMMAND = os.path.join(RELEASE, "cushion")
SIMULATED = os.path.join(ROOT, "target", PROFILE, "sim")

# CUSHION_TEST_BACKING=vmm: the same checks with memory that is mapped.
BACKING = os.environ.get("CUSHION_TEST_BACKING")

_checks = []


class Skip(Exception):
    """Raised by a check that cannot run here; says why."""


def check(function):
    _checks.append(function)
    return function


def equal(got, wanted, what):
    assert got == wanted, "%s: wanted %r, got %r" % (what, wanted, got)


def environment(shim=False, simulated=True, **settings):
    """A clean environment: no setting of cushion's but those given, the simulated driver first."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUSHION_", "SIMCUDA_")) and k != "LD_PRELOAD"}
    if simulated:
        env["LD_LIBRARY_PATH"] = SIMULATED
    if shim:
        env["LD_PRELOAD"] = LIBRARY
    if BACKING and (shim or LIBRARY in settings.get("LD_PRELOAD", "")):
        env["CUSHION_BACKING"] = BACKING
    env.update(settings)
    return env


class Ran:
    """A command that ran to its end, or was killed with all it started after its time."""

    def __init__(self, command, env, cwd=None, seconds=60):
        process = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        self.pid = process.pid
        try:
            self.out, self.err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.out, self.err = process.communicate()
            raise AssertionError("%s did not end within %d s; stderr: %s" % (command, seconds, self.err[-500:]))
        self.status = process.returncode

    def ok(self):
        assert self.status == 0, "exit status %d; %s" % (self.status, (self.err or self.out)[-800:])
        return self


def main():
    """Runs every check in a folder of its own (the argument); exits with 1 if one failed."""
    wanted = sys.argv[1:]
    counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    for function in _checks:
        name = function.__name__.replace("_", " ")
        if wanted and not any(word in name for word in wanted):
            continue
        with tempfile.TemporaryDirectory(prefix="cushion-test-") as folder:
            try:
                function(folder)
                said, why = "PASS", ""
            except Skip as skip:
                said, why = "SKIP", ": %s" % skip
            except AssertionError as failure:
                said, why = "FAIL", ": %s" % failure
            except Exception:
                said, why = "FAIL", ": " + traceback.format_exc()
        counts[said] += 1
        print("%s %s%s" % (said, name, why), flush=True)
    print("%(PASS)d passed, %(FAIL)d failed, %(SKIP)d skipped" % counts)
    sys.exit(1 if counts["FAIL"] or not sum(counts.values()) else 0)
