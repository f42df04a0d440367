"""Reads cushion's reports for the tests, by nothing but their documented format (docs/report.schema.json).

Functions are named with `nm`, not by `cushion report`, so that the two can be compared.
"""
import bisect
import collections
import functools
import glob
import json
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Wrong(AssertionError):
    """A report that is not there, or is not one."""


class Leak(collections.namedtuple("Leak", "count size kind functions")):
    """Live allocations of one stack of functions. `functions`: names, innermost first; an address where there is no name."""

    def within(self, function):
        return function in self.functions


class Report:
    def __init__(self, path):
        self.path = path
        try:
            with open(path) as file:
                self.data = json.load(file)
        except (OSError, ValueError) as error:
            raise Wrong("no report: %s" % error)
        if self.data.get("format") != "cushion-report":
            raise Wrong("%s is no report" % path)

    def validate(self):
        import jsonschema
        with open(os.path.join(ROOT, "docs", "report.schema.json")) as file:
            schema = json.load(file)
        try:
            jsonschema.validate(self.data, schema)
        except jsonschema.ValidationError as error:
            raise Wrong("%s: %s" % (self.path, error.message[:300]))
        self.validate_end()

    def validate_end(self):
        if self.data["report"]["reason"] != "exit":
            raise Wrong("%s is not the last report of its process: %s" % (self.path, self.data["report"]["reason"]))

    # Totals over all devices.

    def _sum(self, *keys):
        total = 0
        for device in self.data["devices"]:
            value = device["figures"]
            for key in keys:
                value = value[key]
            total += value
        return total

    @property
    def hits(self):
        return self._sum("requests", "hits")

    @property
    def requests(self):
        return self.hits + self._sum("requests", "misses")

    @property
    def driver_calls(self):
        return self._sum("driver_calls", "made")

    @property
    def refused_by_limit(self):
        return self._sum("out_of_memory", "by_limit")

    def figures(self):
        return {
            "requests": self.requests, "hits": self.hits, "driver_calls": self.driver_calls,
            "fences": self._sum("driver_calls", "fences"), "host_waits": self._sum("driver_calls", "host_waits"),
            "wait_seconds": round(self._sum("wait_seconds"), 3), "scrubbed_bytes": self._sum("scrubbed_bytes"),
            "peak_allocated": self._sum("allocated_bytes", "peak"), "peak_reserved": self._sum("reserved_bytes", "peak"),
            "live_count": self.live_count, "live_bytes": self.live_bytes,
        }

    # Kinds of allocation.

    def kinds(self):
        return [entry["kind"] for entry in self.data["kinds"]]

    def _kind(self, kind):
        empty = {"current": 0, "total": 0}
        return next((entry for entry in self.data["kinds"] if entry["kind"] == kind), {"count": empty, "bytes": empty})

    def allocations_of(self, kind):
        return self._kind(kind)["count"]["total"]

    def live_of(self, *kinds):
        """How many allocations of these kinds are live, and their bytes."""
        entries = [self._kind(kind) for kind in kinds]
        return sum(entry["count"]["current"] for entry in entries), sum(entry["bytes"]["current"] for entry in entries)

    @property
    def live_count(self):
        """Live allocations of plain device memory (cuMemAlloc and its kin), in whichever way it was served."""
        return self.live_of("pooled", "device")[0]

    @property
    def live_bytes(self):
        return self.live_of("pooled", "device")[1]

    # Leaks.

    def leaks(self, part="leaks"):
        """What is live, by stack of function names."""
        sites = {site["id"]: site["frames"] for site in self.data["sites"]}
        together = {}
        for entry in self.data[part]["sites"]:
            key = entry["kind"], tuple(self._name(frame) for frame in sites.get(entry["site"], []))
            count, size = together.get(key, (0, 0))
            together[key] = count + entry["count"], size + entry["bytes"]
        return [Leak(count, size, kind, functions) for (kind, functions), (count, size) in together.items()]

    def has_leak(self, count, size, function=None):
        return any((leak.count, leak.size) == (count, size) and (function is None or leak.within(function)) for leak in self.leaks())

    def _name(self, frame):
        if frame["module"] is None:
            return frame["offset"]
        path = self.data["modules"][frame["module"]]["path"]
        return _function(path, int(frame["offset"], 16) - 1) or "%s+%s" % (os.path.basename(path), frame["offset"])

    # Fragmentation of the only pool.

    @property
    def pool(self):
        pools = [pool for device in self.data["devices"] for pool in device["pools"]]
        if len(pools) != 1:
            raise Wrong("%s: %d pools, not one" % (self.path, len(pools)))
        return pools[0]

    def free_runs(self):
        """Sizes of the free runs in the map."""
        return [run["size_bytes"] for segment in self.pool["segments"]["list"] for run in segment["runs"]
                if run["state"] in ("free", "free_unfenced")]

    # Coverage.

    def symbols_seen(self):
        coverage = self.data["coverage"]
        return {row["name"] for part in ("hooked", "counted", "unknown") for row in coverage[part] if row["lookups"] or row["calls"]}

    def symbols_hooked(self):
        return {row["name"] for part in ("hooked", "counted") for row in self.data["coverage"][part] if row["lookups"]}


def only(pattern):
    """The one report that matches a pattern."""
    found = glob.glob(pattern)
    if len(found) != 1:
        raise Wrong("%d reports match %s" % (len(found), pattern))
    return Report(found[0])


@functools.lru_cache(maxsize=None)
def _symbols(path):
    """Addresses, ends and names of a file's functions, by address."""
    rows = []
    for options in ([], ["-D"]):
        listed = subprocess.run(["nm", "-n", "-S", "--defined-only", *options, path], capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            fields = line.split()
            if len(fields) == 4 and fields[2] in "tTwWiV":
                rows.append((int(fields[0], 16), int(fields[0], 16) + int(fields[1], 16), fields[3].split("@")[0]))
    rows.sort()
    return rows


def _function(path, offset):
    rows = _symbols(path)
    at = bisect.bisect_right(rows, (offset, float("inf"), "")) - 1
    if at < 0 or not rows[at][0] <= offset < rows[at][1]:
        return None
    # What the compiler adds to a name, and the last component of an unscoped C++ name.
    name = re.sub(r"\.(isra|constprop|part|cold|llvm)\b.*", "", rows[at][2])
    plain = re.match(r"_ZL?(\d+)", name)
    return name[plain.end():plain.end() + int(plain.group(1))] if plain else name


def figures(text):
    """The last `N passed, M failed, K skipped` of a text, as three numbers; zeros if there is none."""
    found = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", text, re.M)
    return tuple(map(int, found[-1])) if found else (0, 0, 0)
