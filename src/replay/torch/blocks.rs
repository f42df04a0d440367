//! Blocks in chains: the neighbours in memory, split and join.

/// Index of a block.
pub(super) type Id = usize;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Allocated,
    Free,
    /// Address space with no memory behind it.
    Unmapped,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    pub stream: u64,
    pub small: bool,
    pub state: State,
    pub previous: Option<Id>,
    pub next: Option<Id>,
}

/// All blocks of a pool; slots of joined blocks are used again.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<Id>,
}

impl Blocks {
    pub fn get(&self, id: Id) -> &Block {
        &self.slots[id]
    }

    pub fn get_mut(&mut self, id: Id) -> &mut Block {
        &mut self.slots[id]
    }

    pub fn add(&mut self, block: Block) -> Id {
        match self.vacant.pop() {
            Some(id) => {
                self.slots[id] = block;
                id
            }
            None => {
                self.slots.push(block);
                self.slots.len() - 1
            }
        }
    }

    /// Drops a block that has left its chain.
    pub fn remove(&mut self, id: Id) {
        self.vacant.push(id);
    }

    /// Shortens `id` to `size` and returns the rest, a block after it in the same state.
    pub fn split(&mut self, id: Id, size: u64) -> Id {
        let block = self.slots[id];
        let rest = self.add(Block {
            address: block.address + size,
            size: block.size - size,
            previous: Some(id),
            ..block
        });
        if let Some(next) = block.next {
            self.slots[next].previous = Some(rest);
        }
        self.slots[id].size = size;
        self.slots[id].next = Some(rest);
        rest
    }

    /// Joins `id` with the block after it, which ends to exist.
    pub fn join_next(&mut self, id: Id) {
        let Some(next) = self.slots[id].next else {
            return;
        };
        let gone = self.slots[next];
        self.slots[id].size += gone.size;
        self.slots[id].next = gone.next;
        if let Some(after) = gone.next {
            self.slots[after].previous = Some(id);
        }
        self.remove(next);
    }

    /// The neighbour before `id`, if it is in `state`.
    pub fn previous_in(&self, id: Id, state: State) -> Option<Id> {
        self.slots[id]
            .previous
            .filter(|p| self.slots[*p].state == state)
    }

    /// The neighbour after `id`, if it is in `state`.
    pub fn next_in(&self, id: Id, state: State) -> Option<Id> {
        self.slots[id]
            .next
            .filter(|n| self.slots[*n].state == state)
    }
}
