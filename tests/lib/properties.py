"""Runs the random programs of tests/properties, compares what they see natively and under cushion, and shortens one that sees something else."""
import concurrent.futures
import os
import re
import signal
import subprocess
import tempfile
import time

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "properties")
PROGRAM = os.path.join(FOLDER, "bin", "program")
IMAGE = os.path.join(FOLDER, "bin", "kernels.fatbin")
OPERATIONS = 200

# What may differ under a setting, all of it documented: lines that are left out, or a pattern and what takes its place.
LEFT_OUT = {"CUSHION_MODE=fast": r"(zero|host|aligned) "}
REPLACED = {"CUSHION_MEMORY_LIMIT": (r"(INFO .*total) \d+", r"\1")}


class Seen:
    """What one process saw: of each job, in order, its lines. `wrong`: of the process's end, if anything."""

    def __init__(self, jobs, status, out, err):
        self.jobs, self.lines, self.err = [], [], err
        # Seconds until the driver was ready, and after it.
        self.start_seconds = self.seconds = 0.0
        open_ = False
        for line in out.splitlines():
            word = line.split(" ", 1)[0]
            if word == "program":
                self.jobs.append(jobs[len(self.jobs)])
                self.lines.append([])
                open_ = True
            elif word in ("ready", "done"):
                took = float(line.split()[2]) / 1000
                self.start_seconds, self.seconds = (took, self.seconds) if word == "ready" else (self.start_seconds, took)
            elif self.lines:
                self.lines[-1].append(line)
                open_ = open_ and word != "end"
        self.ended = len(self.jobs) - open_
        complained = any(not line.endswith(" 0 complaints") for lines in self.lines for line in lines[-1:] if line.startswith("end "))
        self.wrong = "" if status == 0 or (status == 1 and complained and not open_) else "status %d; %s" % (status, err.strip()[-600:])


def expected(lines, settings):
    """Lines without what may differ under these settings."""
    for name, value in settings.items():
        left_out = LEFT_OUT.get("%s=%s" % (name, value))
        if left_out:
            lines = [line for line in lines if not re.match(left_out, line)]
        if name in REPLACED:
            lines = [re.sub(*REPLACED[name], line) for line in lines]
    return lines


def difference(native, shimmed, settings):
    """The first line that differs, with those before it; nothing if none does."""
    native, shimmed = expected(native, settings) + ["nothing"], expected(shimmed, settings) + ["nothing"]
    for at, (one, other) in enumerate(zip(native, shimmed)):
        # What is not zero natively may be.
        if one != other and not (re.fullmatch(r"zero \d+ 0 0", one) and other == one[:-1] + "1"):
            return native[max(0, at - 3):at] + ["native: " + one, "shim:   " + other]
    return []


def operation_of(line):
    """The number of the operation that a line is about; None of an end."""
    found = re.match(r"\w*:? *(?:(?:zero|host|aligned) )?(\d+) ", line)
    return int(found[1]) if found else None


class Runner:
    """Runs jobs, which are lists: a seed, and the operations that are kept, all if there are none."""

    def __init__(self, folder, native, library, gpu=False, image=None):
        self.folder, self.native, self.library = folder, native, library
        self.options = (["-g"] if gpu else []) + (["-i", image] if image else [])

    def run(self, jobs, settings=None, seconds=1e6, limit=None, report=None):
        """Natively if `settings` is None. No job begins after `seconds`; the process is killed after `limit`, 60 s more if not given."""
        environment = dict(self.native)
        if settings is not None:
            environment.update(LD_PRELOAD=self.library, CUSHION_REPORT=report or os.path.join(self.folder, "%p.json"), **settings)
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".jobs") as file:
            file.writelines(" ".join(map(str, job)) + "\n" for job in jobs)
            file.flush()
            process = subprocess.Popen([PROGRAM, *self.options, "-s", "%.1f" % seconds, str(OPERATIONS), file.name], env=environment, cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                       start_new_session=True)
            try:
                out, err = process.communicate(timeout=limit or min(seconds, 60) + 60)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                status, err = 124, err + "\nit hung"
        return Seen(jobs, status, out, err)

    def both(self, jobs, settings, limit=None):
        """Natively, and under the shim, at the same time."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            native, shimmed = pool.submit(self.run, jobs, limit=limit), pool.submit(self.run, jobs, settings, limit=limit)
        return native.result(), shimmed.result()

    def differences(self, jobs, settings, limit=None):
        """Of each job, the difference; also what is wrong with an end."""
        native, shimmed = self.both(jobs, settings, limit)
        if native.wrong:
            raise RuntimeError("without the shim: " + native.wrong)
        found = [difference(one, other, settings) for one, other in zip(native.lines, shimmed.lines)]
        if shimmed.wrong and found:
            found[-1] = found[-1] + [shimmed.wrong]
        return found + [[]] * (len(jobs) - len(found))

    def shortened(self, seed, settings, first, seconds):
        """As few operations as can be found in that time which still see a difference, and what they see.

        `first`: the difference that was seen. None if the program alone does not see it again."""
        deadline = time.monotonic() + seconds
        everything = list(range(OPERATIONS))
        numbers = [operation_of(line) for line in first[-3:]]
        last = max((number for number in numbers if number is not None), default=OPERATIONS)
        found, keep = [], None
        # What comes after the difference is not needed, as a rule.
        tries = [everything[:last + 1], everything]
        for candidate, seen in zip(tries, self.differences([[seed, *one] for one in tries], settings)):
            if seen and not found:
                keep, found = candidate, seen
        if not keep:
            return None, []
        step = max(1, len(keep) // 2)
        while time.monotonic() < deadline:
            pieces = [keep[at:at + step] for at in range(0, len(keep), step)]
            alone = self._without(seed, settings, keep, [[piece] for piece in pieces])
            removable = [piece for piece, seen in zip(pieces, alone) if seen]
            together = self._without(seed, settings, keep, [removable[:count] for count in range(1, len(removable) + 1)])
            count = max((count for count, seen in enumerate(together, 1) if seen), default=0)
            if count:
                keep, found = sorted(set(keep) - set(sum(removable[:count], []))), together[count - 1]
            elif step == 1:
                break
            step = max(1, min(step if count else step // 2, len(keep) // 2))
        return keep, found

    def _without(self, seed, settings, keep, removals):
        jobs = [[seed, *sorted(set(keep) - set(sum(pieces, [])))] for pieces in removals]
        # A job without operations is one with all of them.
        wanted = [job for job in jobs if len(job) > 1]
        seen = iter(self.differences(wanted, settings) if wanted else [])
        return [next(seen) if len(job) > 1 else [] for job in jobs]
