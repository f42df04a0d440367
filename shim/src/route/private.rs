//! `cuGetExportTable`: the driver's private tables of functions, which are passed on as they are.
//!
//! # Decision: which tables keep the order of streams
//! Through a private table work could reach a stream past the hooks. Those that the CUDA runtime asks for load code, keep
//! its storage for each context and serve tools; its work goes through the public functions, which it looks up by
//! cuGetProcAddress. Three more give nothing that could submit work to those who ask for them: the compilers, NVML, and cuBLASLt and
//! cuDNN, which do the work of theirs by the public functions, too. Whoever asks for another (OptiX, the video decoder) may do as it
//! likes with streams; the report names the table.

use crate::abi::Status;
use crate::device::order;
use std::ffi::c_void;

/// `CUuuid`.
#[repr(transparent)]
pub struct TableId(u128);

/// The tables that the runtimes of CUDA 13.0 to 13.5 name, as their bytes read.
const RUNTIME_TABLES: [u128; 12] = [
    0x21318c60_9714_3248_8ca6_41ff7324c8f2,
    0x263e8860_7cd2_6143_92f6_bbd5006dfa7e,
    0x314450b4_8fed_1f1a_db99_8d339f118314,
    0x42d85a81_23f6_cb47_8298_f6e78a3aecdc,
    0x6adc37c8_6cc1_abfa_24e1_7b080cbdb14a,
    0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9,
    0x7888958b_e363_e86d_e9cb_d5fe3b001d39,
    0xa094798c_2e74_2e74_93f2_0800200c0a66,
    0xc693336e_1121_df11_a8c3_68f355d89593,
    0xd4082055_bde6_704b_8d34_ba123c66e1f2,
    0xf2efb70e_6658_d0e4_a677_72f8eb754b0a,
    0xf8cff951_2146_8b4e_b9e2_fb469e7c0dd9,
];

/// Tables that libraries ask for which only compile or describe (searched for in NVIDIA's wheels of 12.8 to 13.5; an H200's processes
/// asked for them from there). What is called in them was read in the code of NVRTC and cuBLASLt of 12.9.
const QUIET_TABLES: [u128; 3] = [
    // The cache of compiled code on disk. NVRTC and nvJitLink, alone or inside cuDNN.
    0xda9151d3_3ae6_cc41_a5c0_4f26d533e328,
    // NVML, when it is initialised.
    0x69a28e9f_2449_8b47_b030_c5da330ea4e9,
    // A description of the device's clusters in host memory, made by one function and freed by another; the compilers use that one for what
    // their cache gave them. NVRTC, nvJitLink, the host's half of nvperf, and cuBLASLt and cuDNN while they choose a kernel.
    0x1734dc26_800d_4745_8726_c0f1e7dd8bca,
];

/// `cuGetExportTable`.
///
/// # Safety
/// As the driver's.
pub unsafe fn export_table(
    real: unsafe extern "C" fn(*mut *const c_void, *const TableId) -> Status,
    table: *mut *const c_void,
    id: *const TableId,
) -> Status {
    if !id.is_null() {
        // SAFETY: not null; the caller owes 16 readable bytes, at any address.
        let bytes = unsafe { id.cast::<[u8; 16]>().read_unaligned() };
        let id = u128::from_be_bytes(bytes);
        if !RUNTIME_TABLES.contains(&id) && !QUIET_TABLES.contains(&id) {
            super::seen::unknown_table(id);
            order::lose("a private table of the driver was looked up");
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(table, id) }
}
