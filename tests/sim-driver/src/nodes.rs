//! Nodes of graphs: their parameters, and the functions that add and change them.
use crate::abi::*;
use crate::action::Action;
use crate::copies::{described, Memcpy3D};
use crate::copy::as_node;
use crate::kernel::Launch;
use crate::memset::Fill;
use crate::ranges::Kind;
use crate::state::{lock, State};
use std::ffi::c_void;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelParams {
    function: Handle,
    shape: [u32; 6],
    shared: u32,
    pointers: *const *const c_void,
    extra: *const *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemsetParams {
    to: Ptr,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostParams {
    function: usize,
    data: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocParams {
    properties: [u32; 22],
    access: *const c_void,
    access_count: usize,
    size: usize,
    pointer: Ptr,
}

/// # Safety
/// `p` is null or points to the parameters of a kernel of this name.
unsafe fn kernel_action(st: &mut State, p: *const KernelParams) -> R<Launch> {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    let context = st.current()?;
    // SAFETY: not null; the caller vouches for the rest.
    unsafe {
        let p = p.read_unaligned();
        st.launch(p.function, context, p.pointers, p.extra)
    }
}

/// # Safety
/// `p` is null or points to parameters.
unsafe fn memset_action(p: *const MemsetParams) -> R<Action> {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller vouches for it.
    let p = unsafe { p.read_unaligned() };
    let fill = Fill {
        to: p.to,
        pitch: p.pitch as u64,
        element: u64::from(p.element),
        value: p.value,
        width: p.width as u64,
        height: p.height as u64,
    };
    if !matches!(fill.element, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    fill.check(&lock(), true)?;
    Ok(Action::Fill(fill))
}

/// # Safety
/// `out` is null or valid for a write; `after` points to `n` handles.
unsafe fn add(
    out: *mut Handle,
    graph: Handle,
    after: *const Handle,
    n: usize,
    action: Action,
) -> R {
    let mut st = lock();
    // SAFETY: passed on.
    unsafe {
        let after = if n == 0 || after.is_null() {
            Vec::new()
        } else {
            std::slice::from_raw_parts(after, n).to_vec()
        };
        let h = st.add_node(graph, action, after)?;
        put(out, h)
    }
}

fn set_action(node: Handle, action: Action) -> R {
    let mut st = lock();
    let graph = st.graph_of(node)?;
    let g = st.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
    let n = g
        .nodes
        .iter_mut()
        .find(|n| n.handle == node)
        .ok_or(INVALID_VALUE)?;
    n.action = action;
    Ok(())
}

fn set_exec_action(exec: Handle, node: Handle, action: Action) -> R {
    let mut st = lock();
    let e = st.execs.get_mut(&exec).ok_or(INVALID_VALUE)?;
    let n = e
        .nodes
        .iter_mut()
        .find(|n| n.handle == node)
        .ok_or(INVALID_VALUE)?;
    n.action = action;
    Ok(())
}

impl State {
    /// The address of memory that a graph will allocate.
    pub fn reserve_graph_memory(&mut self, size: u64) -> R<Ptr> {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let p = self.alloc_device(size, Kind::Graph)?;
        if let Some(r) = self.ranges.at_mut(p) {
            r.access = false;
        }
        Ok(p)
    }
}

/// CUgraphNodeParams: the type, and its parameters 16 bytes on.
///
/// # Safety
/// `p` is null or points to such a structure.
unsafe fn any_action(p: *mut u8) -> R<Action> {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and large enough for the parameters of its type.
    unsafe {
        let at = p.add(16);
        match p.cast::<i32>().read_unaligned() {
            0 => Ok(Action::Kernel(kernel_action(&mut lock(), at.cast())?)),
            1 => as_node(&lock(), described(at.add(16).cast())?),
            2 => memset_action(at.cast()),
            3 => {
                let h = at.cast::<HostParams>().read_unaligned();
                Ok(Action::Host(h.function, h.data))
            }
            5 => Ok(Action::Nothing),
            6 => Ok(Action::Event(at.cast::<Handle>().read_unaligned(), false)),
            7 => Ok(Action::Event(at.cast::<Handle>().read_unaligned(), true)),
            10 => alloc_action(at.cast()),
            11 => free_action(at.cast::<Ptr>().read_unaligned()),
            _ => Err(NOT_SUPPORTED),
        }
    }
}

/// # Safety
/// `p` is null or points to parameters; the address is written there.
unsafe fn alloc_action(p: *mut AllocParams) -> R<Action> {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller vouches for it.
    unsafe {
        let at = lock().reserve_graph_memory((*p).size as u64)?;
        (*p).pointer = at;
        Ok(Action::Alloc(at))
    }
}

/// Only memory that a graph allocates is a graph's to free.
fn free_action(p: Ptr) -> R<Action> {
    let of_graph = lock().ranges.at(p).is_some_and(|r| r.kind == Kind::Graph);
    of_graph.then_some(Action::Free(p)).ok_or(INVALID_VALUE)
}

/// A copy of a graph's nodes within another, between `after` and a node that stands for the end.
fn add_child(st: &mut State, graph: Handle, after: Vec<Handle>, child: Handle) -> R<Handle> {
    let nodes = st.graphs.get(&child).ok_or(INVALID_VALUE)?.nodes.clone();
    let mut names: Vec<(Handle, Handle)> = Vec::new();
    for n in &nodes {
        let of = |a: &Handle| names.iter().find(|(old, _)| old == a).map(|(_, new)| *new);
        let mut behind: Vec<Handle> = n.after.iter().filter_map(of).collect();
        if behind.is_empty() {
            behind = after.clone();
        }
        let h = st.add_node(graph, n.action.clone(), behind)?;
        names.push((n.handle, h));
    }
    let ends: Vec<Handle> = names.iter().map(|n| n.1).collect();
    st.add_node(
        graph,
        Action::Nothing,
        if ends.is_empty() { after } else { ends },
    )
}

api! {
    fn cuGraphAddEmptyNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize) {
        add(out, graph, after, n, Action::Nothing)
    }
    fn cuGraphAddKernelNode | cuGraphAddKernelNode_v2 (out: *mut Handle, graph: Handle, after: *const Handle, n: usize, parameters: *const KernelParams) {
        let launch = kernel_action(&mut lock(), parameters)?;
        add(out, graph, after, n, Action::Kernel(launch))
    }
    fn cuGraphKernelNodeSetParams | cuGraphKernelNodeSetParams_v2 (node: Handle, parameters: *const KernelParams) {
        let launch = kernel_action(&mut lock(), parameters)?;
        set_action(node, Action::Kernel(launch))
    }
    fn cuGraphExecKernelNodeSetParams | cuGraphExecKernelNodeSetParams_v2 (exec: Handle, node: Handle, parameters: *const KernelParams) {
        let launch = kernel_action(&mut lock(), parameters)?;
        set_exec_action(exec, node, Action::Kernel(launch))
    }
    fn cuGraphAddMemcpyNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, copy: *const Memcpy3D, context: Handle) {
        let action = as_node(&lock(), described(copy)?)?;
        add(out, graph, after, n, action)
    }
    fn cuGraphAddMemsetNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, parameters: *const MemsetParams, context: Handle) {
        add(out, graph, after, n, memset_action(parameters)?)
    }
    fn cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, parameters: *const MemsetParams, context: Handle) {
        set_exec_action(exec, node, memset_action(parameters)?)
    }
    fn cuGraphAddHostNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, parameters: *const HostParams) {
        if parameters.is_null() {
            return Err(INVALID_VALUE);
        }
        let p = parameters.read_unaligned();
        add(out, graph, after, n, Action::Host(p.function, p.data))
    }
    fn cuGraphAddMemAllocNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, parameters: *mut AllocParams) {
        add(out, graph, after, n, alloc_action(parameters)?)
    }
    fn cuGraphMemAllocNodeGetParams(node: Handle, parameters: *mut AllocParams) {
        let st = lock();
        let g = st.graph_of(node)?;
        let Action::Alloc(p) = st.graphs[&g].node(node)?.action else { return Err(INVALID_VALUE) };
        let size = st.ranges.at(p).map_or(0, |r| r.size) as usize;
        put(parameters, AllocParams { properties: [0; 22], access: std::ptr::null(), access_count: 0, size, pointer: p })
    }
    fn cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, p: Ptr) {
        add(out, graph, after, n, free_action(p)?)
    }
    fn cuGraphMemFreeNodeGetParams(node: Handle, out: *mut Ptr) {
        let st = lock();
        let g = st.graph_of(node)?;
        let Action::Free(p) = st.graphs[&g].node(node)?.action else { return Err(INVALID_VALUE) };
        put(out, p)
    }
    fn cuGraphAddEventRecordNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, event: Handle) {
        add(out, graph, after, n, Action::Event(event, true))
    }
    fn cuGraphAddEventWaitNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, event: Handle) {
        add(out, graph, after, n, Action::Event(event, false))
    }
    fn cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, child: Handle) {
        let mut st = lock();
        let after = if n == 0 || after.is_null() { Vec::new() } else { std::slice::from_raw_parts(after, n).to_vec() };
        let h = add_child(&mut st, graph, after, child)?;
        put(out, h)
    }
    fn cuGraphAddNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, parameters: *mut u8) {
        add(out, graph, after, n, any_action(parameters)?)
    }
    fn cuGraphAddNode_v2(out: *mut Handle, graph: Handle, after: *const Handle, edges: *const c_void, n: usize, parameters: *mut u8) {
        add(out, graph, after, n, any_action(parameters)?)
    }
    fn cuGraphNodeSetParams(node: Handle, parameters: *mut u8) {
        set_action(node, any_action(parameters)?)
    }
    fn cuGraphExecNodeSetParams(exec: Handle, node: Handle, parameters: *mut u8) {
        set_exec_action(exec, node, any_action(parameters)?)
    }
}
