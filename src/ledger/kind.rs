//! What an allocation is.

/// The kinds of allocation that reports tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Device memory from a pool.
    Pooled,
    /// Device memory straight from the driver.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// Page-locked host memory from the driver.
    PinnedHost,
    /// Host memory of the program's, page-locked afterwards.
    RegisteredHost,
    /// `cuArrayCreate`.
    Array,
    /// `cuMipmappedArrayCreate`.
    MipmappedArray,
    /// Stream-ordered, from the device's current pool.
    Async,
    /// Stream-ordered, from a pool that the program named.
    PoolAsync,
    /// `cuMemCreate`.
    Vmm,
    /// A memory node of a graph.
    Graph,
    /// Another process's memory, opened here.
    IpcImported,
}

/// The name spaces of keys: two allocations can have the same number when it means different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Device addresses.
    Device,
    /// Host addresses.
    Host,
    /// Addresses of imported memory: one may be open several times.
    Imported,
    /// Array handles.
    Array,
    /// Mipmapped array handles.
    MipmappedArray,
    /// Handles of `cuMemCreate`.
    Vmm,
}

impl Kind {
    /// All of them, in the order of reports.
    pub const ALL: [Kind; 12] = [
        Kind::Pooled,
        Kind::Device,
        Kind::Managed,
        Kind::PinnedHost,
        Kind::RegisteredHost,
        Kind::Array,
        Kind::MipmappedArray,
        Kind::Async,
        Kind::PoolAsync,
        Kind::Vmm,
        Kind::Graph,
        Kind::IpcImported,
    ];

    /// Its place in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Pooled => "pooled",
            Kind::Device => "device",
            Kind::Managed => "managed",
            Kind::PinnedHost => "pinned_host",
            Kind::RegisteredHost => "registered_host",
            Kind::Array => "array",
            Kind::MipmappedArray => "mipmapped_array",
            Kind::Async => "async",
            Kind::PoolAsync => "pool_async",
            Kind::Vmm => "vmm",
            Kind::Graph => "graph",
            Kind::IpcImported => "ipc_imported",
        }
    }

    /// The name space in which its keys are.
    pub const fn space(self) -> Space {
        match self {
            Kind::PinnedHost | Kind::RegisteredHost => Space::Host,
            Kind::IpcImported => Space::Imported,
            Kind::Array => Space::Array,
            Kind::MipmappedArray => Space::MipmappedArray,
            Kind::Vmm => Space::Vmm,
            Kind::Pooled
            | Kind::Device
            | Kind::Managed
            | Kind::Async
            | Kind::PoolAsync
            | Kind::Graph => Space::Device,
        }
    }

    /// Whether destroying a context ends the allocations made in it. Memory handles, the pools of stream-ordered
    /// allocation and graph memory belong to the device or the process.
    pub const fn dies_with_context(self) -> bool {
        !matches!(
            self,
            Kind::Vmm | Kind::Async | Kind::PoolAsync | Kind::Graph
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        for (at, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), at);
        }
    }
}
