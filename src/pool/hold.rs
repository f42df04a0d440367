//! Keeping blocks out of use: exported ones (hazard 5) and ones whose memory must really be freed (hazard 16).

use super::arena::{Use, FLAG_HELD, FLAG_RETIRE};
use super::facade::Pool;
use super::state::Hold;

impl Pool {
    /// The live block with this base is exported: once freed, it is not handed out again until as many
    /// [`Pool::unhold`] follow. Counts. `false`: no block has this base.
    pub fn hold(&self, address: u64) -> bool {
        let mut state = self.lock();
        if let Some(hold) = state.holds.get_mut(&address) {
            hold.count += 1;
            return true;
        }
        let Some(block) = self.plain_live(&mut state, address) else {
            return false;
        };
        let entry = &mut state.blocks[block];
        entry.set_flags(entry.flags() | FLAG_HELD);
        state.holds.insert(address, Hold { count: 1, block });
        true
    }

    /// Takes one hold back. After the last one, a block that was freed meanwhile can be used again; what other
    /// processes do with it is their barrier. `false`: the block is not held.
    pub fn unhold(&self, address: u64) -> bool {
        let mut state = self.lock();
        let Some(hold) = state.holds.get_mut(&address) else {
            return false;
        };
        hold.count -= 1;
        if hold.count > 0 {
            return true;
        }
        let block = hold.block;
        state.holds.remove(&address);
        let entry = &mut state.blocks[block];
        if matches!(entry.in_use(), Use::Held { .. }) {
            state.end_hold(block);
        } else {
            entry.set_flags(entry.flags() & !FLAG_HELD);
        }
        true
    }

    /// The memory of this live block must never be handed out again: if it is a whole segment it goes back to the
    /// driver when it is freed, else it is held for as long as its segment exists. `false`: no live block has this
    /// base.
    pub fn retire_on_free(&self, address: u64) -> bool {
        let mut state = self.lock();
        let Some(block) = self.plain_live(&mut state, address) else {
            return false;
        };
        let entry = &mut state.blocks[block];
        entry.set_flags(entry.flags() | FLAG_RETIRE);
        true
    }
}
