//! Nodes of graphs that copy or set memory: the driver makes them, once it is certain that they stay inside what the program
//! was given (hazard 25; natively a node that does not is refused with CUDA_ERROR_INVALID_VALUE when it is made).

use super::copy::{rows_are_inside, Copy3d};
use crate::abi::*;
use std::ffi::{c_int, c_uint, c_void};

type Node = *mut c_void;
type Graph = *mut c_void;

const COPY: c_int = 1;
const SET: c_int = 2;

/// `CUDA_MEMSET_NODE_PARAMS`; its later form has a context behind it.
#[repr(C)]
pub struct Set {
    to: CUdeviceptr,
    pitch_bytes: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
}

impl Set {
    fn is_inside(&self) -> bool {
        let width_bytes = self.width.saturating_mul(self.element_bytes as usize);
        rows_are_inside(self.to, self.pitch_bytes, width_bytes, self.height)
    }
}

/// `CUgraphNodeParams`, as far as copies and sets have it.
#[repr(C)]
pub struct Parameters {
    kind: c_int,
    reserved: [c_int; 3],
    of: Of,
}

#[repr(C)]
union Of {
    copy: std::mem::ManuallyDrop<CopyNode>,
    set: std::mem::ManuallyDrop<Set>,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
struct CopyNode {
    flags: c_int,
    reserved: c_int,
    context: CUcontext,
    copy: Copy3d,
}

impl Parameters {
    fn is_inside(&self) -> bool {
        // SAFETY: the kind says which part of the union the caller has filled.
        unsafe {
            match self.kind {
                COPY => self.of.copy.copy.is_inside(),
                SET => self.of.set.is_inside(),
                _ => true,
            }
        }
    }
}

macro_rules! nodes {
    ($( $name:ident ( $($before:ident : $type:ty),* ; $description:ty $(; $after:ident : $last:ty)? ) )*) => {$(
        /// Done by the driver if it stays inside.
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            real: unsafe extern "C" fn($($type,)* *mut $description $(, $last)?) -> Status,
            $($before: $type,)*
            description: *mut $description
            $(, $after: $last)?
        ) -> Status {
            // SAFETY: the caller owes a readable description, or null, which the driver refuses.
            if unsafe { description.as_ref() }.is_some_and(|description| !description.is_inside()) {
                return INVALID_VALUE;
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real($($before,)* description $(, $after)?) }
        }
    )*};
}

nodes! {
    add_copy (node: Node, graph: Graph, dependencies: *const c_void, count: usize; Copy3d; context: CUcontext)
    add_set (node: Node, graph: Graph, dependencies: *const c_void, count: usize; Set; context: CUcontext)
    add (node: Node, graph: Graph, dependencies: *const c_void, count: usize; Parameters)
    add_v2 (node: Node, graph: Graph, dependencies: *const c_void, edges: *const c_void, count: usize; Parameters)
    change_copy (node: Node; Copy3d)
    change_set (node: Node; Set)
    change (node: Node; Parameters)
    change_copy_in (executable: Graph, node: Node; Copy3d; context: CUcontext)
    change_set_in (executable: Graph, node: Node; Set; context: CUcontext)
    change_in (executable: Graph, node: Node; Parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn descriptions_are_laid_out_as_cuda_h_has_them() {
        assert_eq!((size_of::<Set>(), size_of::<Copy3d>()), (40, 200));
        assert_eq!(
            (offset_of!(Parameters, of), offset_of!(CopyNode, copy)),
            (16, 16)
        );
    }
}
