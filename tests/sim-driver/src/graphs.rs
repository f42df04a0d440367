//! The functions that make, question and launch graphs.
use crate::abi::*;
use crate::action::Action;
use crate::graph::{node_type, Exec, Graph};
use crate::state::lock;
use crate::stream::wait_points;
use std::ffi::c_void;

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
