//! Graphs: nodes, instantiation, launch.
use crate::abi::*;
use crate::copy::{described, Fill, Memcpy3D};
use crate::engine::Action;
use crate::kernel::Launch;
use crate::ranges::Kind;
use crate::state::{lock, State};
use crate::stream::wait_points;
use std::ffi::c_void;

#[derive(Clone)]
pub struct Node {
    pub handle: Handle,
    pub action: Action,
    pub after: Vec<Handle>,
}

#[derive(Clone, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
}

/// An executable graph: nodes in an order that respects their dependencies.
pub struct Exec {
    nodes: Vec<Node>,
}

impl Graph {
    fn node(&self, h: Handle) -> R<&Node> {
        self.nodes
            .iter()
            .find(|n| n.handle == h)
            .ok_or(INVALID_VALUE)
    }

    /// The nodes, each behind those it depends on.
    fn ordered(&self) -> R<Vec<Node>> {
        let mut out: Vec<Node> = Vec::with_capacity(self.nodes.len());
        let mut left: Vec<&Node> = self.nodes.iter().collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|n| {
                let ready = n.after.iter().all(|a| out.iter().any(|o| o.handle == *a));
                if ready {
                    out.push((*n).clone());
                }
                !ready
            });
            if left.len() == before {
                return Err(INVALID_VALUE);
            }
        }
        Ok(out)
    }
}

impl State {
    pub fn add_node(&mut self, graph: Handle, action: Action, after: Vec<Handle>) -> R<Handle> {
        let h = self.handle();
        let g = self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        if after.iter().any(|a| g.node(*a).is_err()) {
            return Err(INVALID_VALUE);
        }
        g.nodes.push(Node {
            handle: h,
            action,
            after,
        });
        Ok(h)
    }

    /// Whether `node` is one of `from`, or something they depend on.
    pub fn reaches(&self, graph: Handle, from: &[Handle], node: Handle) -> bool {
        let Some(g) = self.graphs.get(&graph) else {
            return false;
        };
        let (mut open, mut seen) = (from.to_vec(), Vec::new());
        while let Some(n) = open.pop() {
            if n == node {
                return true;
            }
            if !seen.contains(&n) {
                seen.push(n);
                open.extend(g.node(n).map(|n| n.after.clone()).unwrap_or_default());
            }
        }
        false
    }

    /// Memory of a graph comes, or goes: its address stays.
    pub fn graph_memory(&mut self, p: Ptr, there: bool) {
        let Some(r) = self.ranges.at_mut(p) else {
            return;
        };
        let (was, size, device) = (r.access, r.size, r.device);
        (r.access, r.leaving) = (there, false);
        if let Ok(d) = self.device(device) {
            match (was, there) {
                (false, true) => d.graph_bytes += size,
                (true, false) => d.graph_bytes -= size,
                _ => {}
            }
            d.graph_bytes_high = d.graph_bytes_high.max(d.graph_bytes);
        }
    }

    pub fn drop_graph(&mut self, graph: Handle) {
        if let Some(g) = self.graphs.remove(&graph) {
            self.drop_memory_of(&g.nodes);
        }
    }

    /// Releases the memory of allocation nodes that no graph has any more.
    fn drop_memory_of(&mut self, nodes: &[Node]) {
        for n in nodes {
            let Action::Alloc(p) = n.action else { continue };
            let has = |ns: &[Node]| {
                ns.iter()
                    .any(|n| matches!(n.action, Action::Alloc(q) if q == p))
            };
            let used = self.graphs.values().any(|g| has(&g.nodes))
                || self.execs.values().any(|e| has(&e.nodes));
            let live = self.ranges.at(p).is_some_and(|r| r.access);
            if !used && !live {
                self.release(p);
            }
        }
    }

    fn graph_of(&self, node: Handle) -> R<Handle> {
        let found = self.graphs.iter().find(|(_, g)| g.node(node).is_ok());
        found.map(|(&h, _)| h).ok_or(INVALID_VALUE)
    }
}

fn node_type(a: &Action) -> i32 {
    match a {
        Action::Kernel(_) => 0,
        Action::Copy(_) => 1,
        Action::Fill(_) => 2,
        Action::Host(..) | Action::Callback(..) => 3,
        Action::Record(..) => 7,
        Action::Alloc(_) => 10,
        Action::Free(_) => 11,
        Action::WriteValue(..) | Action::WaitValue(..) => 12,
        Action::Nothing | Action::WaitShared(..) => 5,
    }
}

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
    Ok(Action::Fill(Fill {
        to: p.to,
        pitch: p.pitch as u64,
        element: u64::from(p.element),
        value: p.value,
        width: p.width as u64,
        height: p.height as u64,
    }))
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

/// # Safety
/// `out` is null or valid for a write.
unsafe fn instantiate(out: *mut Handle, graph: Handle) -> R {
    let mut st = lock();
    let nodes = st.graphs.get(&graph).ok_or(INVALID_VALUE)?.ordered()?;
    let h = st.handle();
    st.execs.insert(h, Exec { nodes });
    // SAFETY: passed on.
    unsafe { put(out, h) }
}

/// # Safety
/// `count` is valid; `out` is null or has room for `*count` handles.
unsafe fn give_list(out: *mut Handle, count: *mut usize, list: &[Handle]) -> R {
    if count.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by contract.
    unsafe {
        if !out.is_null() {
            for i in 0..*count {
                *out.add(i) = list.get(i).copied().unwrap_or(0);
            }
        }
        *count = list.len();
    }
    Ok(())
}

api! {
    fn cuGraphCreate(out: *mut Handle, flags: u32) {
        let mut st = lock();
        let h = st.handle();
        st.graphs.insert(h, Graph::default());
        put(out, h)
    }
    fn cuGraphClone(out: *mut Handle, graph: Handle) {
        let mut st = lock();
        let copy = st.graphs.get(&graph).ok_or(INVALID_VALUE)?.clone();
        let h = st.handle();
        st.graphs.insert(h, copy);
        put(out, h)
    }
    fn cuGraphDestroy(graph: Handle) {
        let mut st = lock();
        if !st.graphs.contains_key(&graph) {
            return Err(INVALID_VALUE);
        }
        st.drop_graph(graph);
        Ok(())
    }
    fn cuGraphInstantiate(out: *mut Handle, graph: Handle, error: *mut Handle, log: *mut u8, size: usize) {
        instantiate(out, graph)
    }
    fn cuGraphInstantiate_v2(out: *mut Handle, graph: Handle, error: *mut Handle, log: *mut u8, size: usize) {
        instantiate(out, graph)
    }
    fn cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64) {
        instantiate(out, graph)
    }
    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz (out: *mut Handle, graph: Handle, parameters: *mut c_void) {
        instantiate(out, graph)
    }
    fn cuGraphLaunch | cuGraphLaunch_ptsz (exec: Handle, stream: Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        let nodes = st.execs.get(&exec).ok_or(INVALID_VALUE)?.nodes.clone();
        // Nodes run one after the other, in an order their dependencies allow.
        st.submit(key, Action::Nothing)?;
        for n in nodes {
            st.submit(key, n.action)?;
        }
        Ok(())
    }
    fn cuGraphUpload | cuGraphUpload_ptsz (exec: Handle, stream: Handle) {
        let mut st = lock();
        st.stream(stream)?;
        st.execs.get(&exec).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuGraphExecDestroy(exec: Handle) {
        let st = lock();
        if !st.execs.contains_key(&exec) {
            return Err(INVALID_VALUE);
        }
        let points = st.points(|_| true);
        let mut st = wait_points(st, &points);
        if let Some(e) = st.execs.remove(&exec) {
            st.drop_memory_of(&e.nodes);
        }
        Ok(())
    }
    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: *mut [u64; 4]) {
        let mut st = lock();
        let nodes = st.graphs.get(&graph).ok_or(INVALID_VALUE)?.ordered()?;
        put_opt(info, [0; 4]);
        st.execs.get_mut(&exec).ok_or(INVALID_VALUE)?.nodes = nodes;
        Ok(())
    }
    fn cuGraphGetNodes(graph: Handle, out: *mut Handle, count: *mut usize) {
        let st = lock();
        let g = st.graphs.get(&graph).ok_or(INVALID_VALUE)?;
        give_list(out, count, &g.nodes.iter().map(|n| n.handle).collect::<Vec<_>>())
    }
    fn cuGraphGetRootNodes(graph: Handle, out: *mut Handle, count: *mut usize) {
        let st = lock();
        let g = st.graphs.get(&graph).ok_or(INVALID_VALUE)?;
        let roots: Vec<Handle> = g.nodes.iter().filter(|n| n.after.is_empty()).map(|n| n.handle).collect();
        give_list(out, count, &roots)
    }
    fn cuGraphNodeGetType(node: Handle, out: *mut i32) {
        let st = lock();
        let g = st.graph_of(node)?;
        put(out, node_type(&st.graphs[&g].node(node)?.action))
    }
    fn cuGraphNodeGetDependencies(node: Handle, out: *mut Handle, count: *mut usize) {
        let st = lock();
        let g = st.graph_of(node)?;
        give_list(out, count, &st.graphs[&g].node(node)?.after)
    }
    fn cuGraphAddDependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize) {
        let mut st = lock();
        let g = st.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        for i in 0..count {
            let (from, to) = (*from.add(i), *to.add(i));
            g.node(from)?;
            let n = g.nodes.iter_mut().find(|n| n.handle == to).ok_or(INVALID_VALUE)?;
            n.after.push(from);
        }
        Ok(())
    }
    fn cuGraphDestroyNode(node: Handle) {
        let mut st = lock();
        let graph = st.graph_of(node)?;
        if let Some(g) = st.graphs.get_mut(&graph) {
            g.nodes.retain(|n| n.handle != node);
            g.nodes.iter_mut().for_each(|n| n.after.retain(|a| *a != node));
        }
        Ok(())
    }
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
        let (c, _, _) = described(copy)?;
        add(out, graph, after, n, Action::Copy(c))
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
        if parameters.is_null() {
            return Err(INVALID_VALUE);
        }
        let p = lock().reserve_graph_memory((*parameters).size as u64)?;
        (*parameters).pointer = p;
        add(out, graph, after, n, Action::Alloc(p))
    }
    fn cuGraphMemAllocNodeGetParams(node: Handle, parameters: *mut AllocParams) {
        let st = lock();
        let g = st.graph_of(node)?;
        let Action::Alloc(p) = st.graphs[&g].node(node)?.action else { return Err(INVALID_VALUE) };
        let size = st.ranges.at(p).map_or(0, |r| r.size) as usize;
        put(parameters, AllocParams { properties: [0; 22], access: std::ptr::null(), access_count: 0, size, pointer: p })
    }
    fn cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, after: *const Handle, n: usize, p: Ptr) {
        add(out, graph, after, n, Action::Free(p))
    }
    fn cuGraphMemFreeNodeGetParams(node: Handle, out: *mut Ptr) {
        let st = lock();
        let g = st.graph_of(node)?;
        let Action::Free(p) = st.graphs[&g].node(node)?.action else { return Err(INVALID_VALUE) };
        put(out, p)
    }
    fn cuGraphDebugDotPrint(graph: Handle, path: *const u8, flags: u32) {
        Ok(())
    }
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
