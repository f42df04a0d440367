//! Devices: what they are called and what they say about themselves.
use crate::abi::*;
use crate::arena::Arena;
use crate::config;
use crate::state::{lock, State};
use std::ffi::{c_char, CStr};

pub struct Device {
    arena: Option<Arena>,
    /// The primary context's handle, the same for the life of the process.
    pub primary: Handle,
    pub primary_flags: u32,
    pub primary_count: u32,
    pub default_pool: Handle,
    pub pool: Handle,
    pub graph_bytes: u64,
    pub graph_bytes_high: u64,
}

impl Device {
    pub fn new(primary: Handle, pool: Handle) -> Device {
        Device {
            arena: None,
            primary,
            primary_flags: 0,
            primary_count: 0,
            default_pool: pool,
            pool,
            graph_bytes: 0,
            graph_bytes_high: 0,
        }
    }

    /// The device's memory, made at its first use.
    pub fn arena(&mut self) -> R<&mut Arena> {
        if self.arena.is_none() {
            let mut arena = Arena::new(config::get().memory)?;
            // What contexts take natively: free is never the whole of the device.
            let share = (config::get().memory / 256).min(512 << 20);
            arena.charge(share / crate::arena::CHUNK * crate::arena::CHUNK)?;
            self.arena = Some(arena);
        }
        self.arena.as_mut().ok_or(OUT_OF_MEMORY)
    }

    pub fn known_arena(&self) -> Option<&Arena> {
        self.arena.as_ref()
    }
}

impl State {
    /// Whether the address lies in a device's window, memory there or not.
    pub fn in_window(&self, p: Ptr) -> bool {
        self.devices
            .iter()
            .filter_map(Device::known_arena)
            .any(|a| (a.window..a.window + a.size).contains(&p))
            || self
                .reservations
                .iter()
                .any(|(&b, r)| (b..b + r.size).contains(&p))
    }
}

/// Attributes that are not 0; what an H200 answers where that is known.
const ATTRIBUTES: &[(i32, i32)] = &[
    (1, 1024),           // MAX_THREADS_PER_BLOCK
    (2, 1024),           // MAX_BLOCK_DIM_X
    (3, 1024),           // Y
    (4, 64),             // Z
    (5, 2_147_483_647),  // MAX_GRID_DIM_X
    (6, 65_535),         // Y
    (7, 65_535),         // Z
    (8, 49_152),         // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 65_536),         // TOTAL_CONSTANT_MEMORY
    (10, 32),            // WARP_SIZE
    (11, 2_147_483_647), // MAX_PITCH
    (12, 65_536),        // MAX_REGISTERS_PER_BLOCK
    (13, 1_980_000),     // CLOCK_RATE
    (14, 512),           // TEXTURE_ALIGNMENT
    (15, 1),             // GPU_OVERLAP
    (16, 132),           // MULTIPROCESSOR_COUNT
    (19, 1),             // CAN_MAP_HOST_MEMORY
    (21, 131_072),       // MAXIMUM_TEXTURE1D_WIDTH
    (22, 131_072),
    (23, 65_536),
    (24, 16_384),
    (25, 16_384),
    (26, 16_384),
    (27, 32_768),
    (28, 32_768),
    (29, 2_048),
    (30, 512), // SURFACE_ALIGNMENT
    (31, 1),   // CONCURRENT_KERNELS
    (33, 1),   // PCI_BUS_ID; the ordinal is added
    (36, 3_201_000),
    (37, 6_144), // GLOBAL_MEMORY_BUS_WIDTH
    (38, 62_914_560),
    (39, 2_048), // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 3),     // ASYNC_ENGINE_COUNT
    (41, 1),     // UNIFIED_ADDRESSING
    (42, 32_768),
    (43, 2_048),
    (51, 32), // TEXTURE_PITCH_ALIGNMENT
    (75, 9),  // COMPUTE_CAPABILITY_MAJOR
    (76, 0),
    (78, 1), // STREAM_PRIORITIES_SUPPORTED
    (79, 1),
    (80, 1),
    (81, 233_472),
    (82, 65_536),
    (83, 1), // MANAGED_MEMORY
    (89, 1), // CONCURRENT_MANAGED_ACCESS
    (90, 1), // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1), // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (92, 1), // CAN_USE_STREAM_MEM_OPS
    (93, 1),
    (94, 1),
    (95, 1), // COOPERATIVE_LAUNCH
    (97, 232_448),
    (98, 1),
    (99, 1),  // HOST_REGISTER_SUPPORTED
    (102, 1), // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 1), // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (106, 32),
    (107, 1),
    (108, 39_321_600),
    (109, 134_213_632),
    (110, 1), // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    (111, 1_024),
    (112, 1),
    (113, 1),
    (114, 1),
    (115, 1), // MEMORY_POOLS_SUPPORTED
    (116, 1), // GPU_DIRECT_RDMA_SUPPORTED
    (117, 3),
    (118, 100),
    (119, 9), // MEMPOOL_SUPPORTED_HANDLE_TYPES
    (120, 1), // CLUSTER_LAUNCH
    (121, 1),
    (122, 1),
    (123, 1),
    (124, 1), // DMA_BUF_SUPPORTED
    (125, 1), // IPC_EVENT_SUPPORTED
    (126, 4),
    (127, 1),
    (128, 1), // HANDLE_TYPE_FABRIC_SUPPORTED
    (129, 1),
    (132, 1), // MULTICAST_SUPPORTED
    (136, 7),
    (137, 4_194_304),
];

fn check(device: i32) -> R {
    if (0..config::get().devices).contains(&device) {
        Ok(())
    } else {
        Err(INVALID_DEVICE)
    }
}

fn uuid(device: i32) -> [u8; 16] {
    let mut id = *b"SimulatedCUDA\0\0\0";
    id[15] = device as u8;
    id
}

api! {
    fn cuDeviceGetCount(count: *mut i32) {
        put(count, config::get().devices)
    }
    fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        check(ordinal)?;
        put(device, ordinal)
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        check(device)?;
        if name.is_null() || length <= 0 {
            return Err(INVALID_VALUE);
        }
        let text = b"Simulated H200 (no GPU)";
        let n = text.len().min(length as usize - 1);
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, n);
        name.add(n).write(0);
        Ok(())
    }
    fn cuDeviceGetUuid | cuDeviceGetUuid_v2 (out: *mut [u8; 16], device: i32) {
        check(device)?;
        put(out, uuid(device))
    }
    fn cuDeviceGetLuid(luid: *mut c_char, mask: *mut u32, device: i32) {
        Err(NOT_SUPPORTED)
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        check(device)?;
        put(bytes, config::get().memory as usize)
    }
    fn cuDeviceGetAttribute(out: *mut i32, attribute: i32, device: i32) {
        check(device)?;
        if attribute <= 0 {
            return Err(INVALID_VALUE);
        }
        let known = ATTRIBUTES.iter().find(|(a, _)| *a == attribute).map_or(0, |(_, v)| *v);
        put(out, if attribute == 33 { known + device } else { known })
    }
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) {
        check(device)?;
        put(major, 9)?;
        put(minor, 0)
    }
    fn cuDeviceGetPCIBusId(out: *mut c_char, length: i32, device: i32) {
        check(device)?;
        let text = format!("0000:{:02X}:00.0\0", 1 + device);
        if out.is_null() || (length as usize) < text.len() {
            return Err(INVALID_VALUE);
        }
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
        Ok(())
    }
    fn cuDeviceGetByPCIBusId(device: *mut i32, id: *const c_char) {
        if id.is_null() {
            return Err(INVALID_VALUE);
        }
        let text = CStr::from_ptr(id).to_string_lossy();
        let bus = text.split(':').rev().nth(1).and_then(|b| i32::from_str_radix(b, 16).ok());
        let ordinal = bus.ok_or(INVALID_VALUE)? - 1;
        check(ordinal)?;
        put(device, ordinal)
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, format: i32, channels: u32, device: i32) {
        check(device)?;
        put(width, 1 << 28)
    }
    fn cuDeviceGetExecAffinitySupport(out: *mut i32, kind: i32, device: i32) {
        check(device)?;
        put(out, 0)
    }
    fn cuDeviceCanAccessPeer(out: *mut i32, device: i32, peer: i32) {
        check(device)?;
        check(peer)?;
        put(out, (device != peer) as i32)
    }
    fn cuDeviceGetP2PAttribute(out: *mut i32, attribute: i32, device: i32, peer: i32) {
        check(device)?;
        check(peer)?;
        if device == peer {
            return Err(INVALID_DEVICE);
        }
        put(out, (attribute != 1) as i32)
    }
    fn cuFlushGPUDirectRDMAWrites(target: i32, scope: i32) {
        Ok(())
    }
    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, out: *mut u64) {
        check(device)?;
        let mut st = lock();
        let d = st.device(device)?;
        match attribute {
            0 | 2 => put(out, d.graph_bytes),
            1 | 3 => put(out, d.graph_bytes_high),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: *mut u64) {
        check(device)?;
        let mut st = lock();
        let d = st.device(device)?;
        d.graph_bytes_high = d.graph_bytes;
        Ok(())
    }
    fn cuDeviceGraphMemTrim(device: i32) {
        check(device)
    }
}
