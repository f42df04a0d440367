//! Graphs: nodes, instantiation, launch.
use crate::abi::*;
use crate::engine::Action;
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
    pub nodes: Vec<Node>,
}

impl Graph {
    pub fn node(&self, h: Handle) -> R<&Node> {
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

    /// Whether a graph still has the node that allocates this memory.
    fn graph_keeps(&self, p: Ptr) -> bool {
        let has = |n: &Node| matches!(n.action, Action::Alloc(q) if q == p);
        self.graphs.values().any(|g| g.nodes.iter().any(has))
            || self.execs.values().any(|e| e.nodes.iter().any(has))
    }

    /// Memory of a graph is freed: its address stays while a graph may allocate it again.
    pub fn free_graph_memory(&mut self, p: Ptr) {
        self.graph_memory(p, false);
        if !self.graph_keeps(p) {
            self.release(p);
        }
    }

    /// Releases the memory of allocation nodes that no graph has any more.
    fn drop_memory_of(&mut self, nodes: &[Node]) {
        for n in nodes {
            let Action::Alloc(p) = n.action else { continue };
            let live = self.ranges.at(p).is_some_and(|r| r.access);
            if !live && !self.graph_keeps(p) {
                self.release(p);
            }
        }
    }

    pub fn graph_of(&self, node: Handle) -> R<Handle> {
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
        Action::Event(_, false) => 6,
        Action::Event(_, true) | Action::Record(..) => 7,
        Action::Alloc(_) => 10,
        Action::Free(_) => 11,
        Action::WriteValue(..) | Action::WaitValue(..) => 12,
        Action::Nothing | Action::WaitShared(..) => 5,
    }
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

/// # Safety
/// As for [`give_list`].
unsafe fn dependencies(node: Handle, out: *mut Handle, count: *mut usize) -> R {
    let st = lock();
    let g = st.graph_of(node)?;
    // SAFETY: passed on.
    unsafe { give_list(out, count, &st.graphs[&g].node(node)?.after) }
}

/// # Safety
/// As for [`give_list`].
unsafe fn dependents(node: Handle, out: *mut Handle, count: *mut usize) -> R {
    let st = lock();
    let g = &st.graphs[&st.graph_of(node)?];
    let users = g.nodes.iter().filter(|n| n.after.contains(&node));
    // SAFETY: passed on.
    unsafe { give_list(out, count, &users.map(|n| n.handle).collect::<Vec<_>>()) }
}

/// # Safety
/// As for [`give_list`], for both lists.
unsafe fn edges_of(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) -> R {
    let st = lock();
    let g = st.graphs.get(&graph).ok_or(INVALID_VALUE)?;
    let pairs = g
        .nodes
        .iter()
        .flat_map(|n| n.after.iter().map(|a| (*a, n.handle)));
    let (heads, tails): (Vec<Handle>, Vec<Handle>) = pairs.unzip();
    // SAFETY: passed on; the first call leaves the room's size as it was asked.
    unsafe {
        let mut room = if count.is_null() { 0 } else { *count };
        give_list(from, &mut room, &heads)?;
        give_list(to, count, &tails)
    }
}

/// # Safety
/// `from` and `to` point to `count` handles.
unsafe fn add_edges(graph: Handle, from: *const Handle, to: *const Handle, count: usize) -> R {
    let mut st = lock();
    let g = st.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
    for i in 0..count {
        // SAFETY: by contract.
        let (from, to) = unsafe { (*from.add(i), *to.add(i)) };
        g.node(from)?;
        let n = g
            .nodes
            .iter_mut()
            .find(|n| n.handle == to)
            .ok_or(INVALID_VALUE)?;
        n.after.push(from);
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
            match n.action {
                Action::Event(event, true) => st.record_in(key, event)?,
                Action::Event(event, false) => st.stream_waits(key, event)?,
                action => st.submit(key, action).map(|_| ())?,
            }
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
        dependencies(node, out, count)
    }
    fn cuGraphNodeGetDependencies_v2(node: Handle, out: *mut Handle, edges: *mut c_void, count: *mut usize) {
        dependencies(node, out, count)
    }
    fn cuGraphNodeGetDependentNodes(node: Handle, out: *mut Handle, count: *mut usize) {
        dependents(node, out, count)
    }
    fn cuGraphNodeGetDependentNodes_v2(node: Handle, out: *mut Handle, edges: *mut c_void, count: *mut usize) {
        dependents(node, out, count)
    }
    fn cuGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) {
        edges_of(graph, from, to, count)
    }
    fn cuGraphGetEdges_v2(graph: Handle, from: *mut Handle, to: *mut Handle, edges: *mut c_void, count: *mut usize) {
        edges_of(graph, from, to, count)
    }
    fn cuGraphAddDependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize) {
        add_edges(graph, from, to, count)
    }
    fn cuGraphAddDependencies_v2(graph: Handle, from: *const Handle, to: *const Handle, edges: *const c_void, count: usize) {
        add_edges(graph, from, to, count)
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
    fn cuGraphDebugDotPrint(graph: Handle, path: *const u8, flags: u32) {
        Ok(())
    }
}
