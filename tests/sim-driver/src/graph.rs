//! Graphs: nodes, instantiation, launch.
use crate::abi::*;
use crate::action::Action;
use crate::state::State;

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
    pub fn ordered(&self) -> R<Vec<Node>> {
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
    pub fn drop_memory_of(&mut self, nodes: &[Node]) {
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

pub fn node_type(a: &Action) -> i32 {
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
