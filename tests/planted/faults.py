"""Faults, each taking one rule away, by row of the table in docs/semantics.md. scripts/planted plants them.

`before` stands once in `file`; `after` takes its place. `test` is a command, run in the root of the tree, or `conformance` with patterns of cases.
"""
import collections

Fault = collections.namedtuple("Fault", "row name file before after test")

RANDOM = ("tests/properties/run", *map(str, range(1, 25)))
RANDOM_MANY = ("scripts/test-gpu", "--sim", "--part", "properties", "--seconds", "20")

FAULTS = [
    Fault(3, "no-fence", "src/pool/epochs.rs", "        epoch <= self.fenced.load(SeqCst)", "        let _ = epoch;\n        true", RANDOM),
    Fault(3, "no-fence-in-batch", "src/pool/epochs.rs", "        epoch <= self.fenced.load(SeqCst)", "        let _ = epoch;\n        true", RANDOM_MANY),
    Fault(3, "size-too-small", "src/pool/settings.rs", "        size_bytes.wrapping_add(granule_bytes - 1) & !(granule_bytes - 1)", "        size_bytes & !(granule_bytes - 1)", RANDOM_MANY),
    Fault(10, "size-of-block", "shim/src/device/blocks.rs", "size_bytes: block.requested_bytes,", "size_bytes: block.requested_bytes.next_multiple_of(512),", RANDOM_MANY),
    Fault(19, "no-scrub", "src/pool/ready.rs", "            Some(byte) => state.dirty_ranges(block).map(|ranges| (ranges, byte)),", "            Some(byte) => state.dirty_ranges(block).map(|ranges| (ranges, byte)).filter(|_| false),", RANDOM_MANY),
]
