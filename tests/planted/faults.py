"""Faults, each taking one rule away, by row of the table in docs/semantics.md. scripts/planted plants them.

`before` stands once in `file`; `after` takes its place. `test` is a command, run in the root of the tree, or `conformance` with patterns of cases and
settings.
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
    Fault(19, "no-scrub", "src/pool/ready.rs", "dirty.filter(|(ranges, _)| !ranges.is_empty());", "dirty.filter(|_| false);", RANDOM_MANY),
    Fault(3, "pool-out-of-list-unfenced", "shim/src/device/contexts/reach.rs", "        if !is_unsettled(generation) {\n            return is_all;", "        {\n            return is_all;", ("tests/races/run", "list")),
    Fault(2, "version-ignored", "shim/src/route/proc_address.rs", "    let row = row_of(found as usize, name, flags, &mut again);",
          "    let row = names::rows_named(name).first().copied();", ("conformance", "plain/g11_entry.getproc*", "driver/g16_states_drv.drv-every-look-up")),
    Fault(4, "unknown-free-swallowed", "shim/src/exports/memory/free.rs",
          "            let code = ledger::released(Space::Device, address, || unsafe { real(address) });", "            let code = SUCCESS;",
          ("conformance", "driver/g01_basic_drv.drv-bad-frees", "driver/g01_basic_drv.drv-free-module-global", "driver/g16_states_drv.drv-async-arguments")),
    Fault(5, "ipc-at-segment-start", "shim/src/exports/ipc.rs", "            offset_bytes: block.base - block.segment.address,", "            offset_bytes: 0,",
          ("conformance", "shared/g06_ipc.ipc-small*", "shared/g06_ipc.ipc-handles-differ")),
    Fault(6, "served-without-context", "shim/src/exports/memory/free.rs", ".filter(|&code| code != INVALID_VALUE)", ".filter(|_| false)",
          ("conformance", "driver/g16_states_drv.drv-no-current-context", "driver/g17_corners_drv.drv-host-functions")),
    Fault(7, "capture-not-asked", "shim/src/exports/memory/free.rs", "    let said = ask_the_driver();", "    let said = SUCCESS;",
          ("conformance", "driver/g16_states_drv.drv-capture-global", "driver/g17_corners_drv.drv-shielded-captures")),
    Fault(8, "cache-counts-as-used", "src/pool/request.rs", "        self.cached_bytes() + self.borrowed_bytes", "        0", ("conformance", "shared/g04_meminfo.*")),
    Fault(25, "freed-memory-copied", "shim/src/exports/copy/mod.rs", "        Found::Dead => false,", "        Found::Dead => true,",
          ("conformance", "driver/g15_bounds_drv.drv-copies", "shared/g10_apis.copy-after-free")),
    Fault(26, "sticky-error-hidden", "shim/src/device/contexts/observe.rs", "    if code != SUCCESS && is_sticky(code) {", "    if code != SUCCESS && is_sticky(code) && false {",
          ("conformance", "driver/g16_states_drv.drv-after-sticky-error", "shared/g01_basic.sticky-error")),
    Fault(1, "any-library-of-that-name", "shim/src/route/dlsym.rs", "            && driver::owns(native);", "            && native != 0;",
          ("conformance", "plain/g12_dlsym.foreign-cu-names")),
    Fault(13, "dlopen-exported", "shim/src/lib.rs", "mod abi;", "mod abi;\n/// Planted.\n#[no_mangle]\npub extern \"C\" fn dlopen() {}", ("scripts/check-exports",)),
    Fault(15, "destroyed-context-kept", "shim/src/exports/context.rs",
          "    // SAFETY: the caller's argument, unchanged.\n    ended(context, || unsafe { real(context) })\n}\n\n/// `cuCtxAttach`",
          "    // SAFETY: the caller's argument, unchanged.\n    unsafe { real(context) }\n}\n\n/// `cuCtxAttach`",
          ("conformance", "driver/g16_states_drv.drv-second-context", "driver/g17_corners_drv.drv-old-contexts")),
    Fault(23, "mapped-handle-from-driver", "shim/src/exports/ipc.rs", "    if context.backing.mapped_at(block.base).is_some() {", "    if false {",
          ("conformance", "CUSHION_BACKING=vmm", "shared/g06_ipc.ipc-small*", "driver/g16_states_drv.drv-ipc-each-call")),
]
