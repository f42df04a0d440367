//! Carrying out a plan: the calls of the backing, outside the lock, and what came of each.
//!
//! # Decision: what there is no room for is not begun
//! The driver refuses an allocation larger than what is left, and nobody notices. A plan of many handles would take all that is
//! left first, and others on the device would be refused meanwhile. So a plan of several new ones asks for the room before (4 us
//! beside 45 us and more for each handle).

use super::super::{BackingError, Pages, Range};
use super::{Handle, Quiet};

/// Where the memory of one piece comes from.
#[derive(Debug)]
pub(super) enum Origin {
    /// A new handle.
    New,
    /// A handle that is mapped elsewhere now.
    Moved { from: Quiet, handle: Handle },
}

/// One piece to be mapped.
#[derive(Debug)]
pub(super) struct Step {
    pub origin: Origin,
    pub to: Range,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// The handle of this name is behind the piece.
    Mapped(u64),
    /// All is as it was before.
    Undone,
    /// The handle was taken from its place and could not be put anywhere: the driver has it back.
    Lost,
}

/// Carries the steps out in their order, up to the first that fails. One answer for each step, and the error.
pub(super) fn carry_out(
    pages: &dyn Pages,
    steps: &[Step],
) -> (Vec<Came>, Result<(), BackingError>) {
    let mut came = Vec::with_capacity(steps.len());
    let mut error = has_room(pages, steps);
    for step in steps {
        if error.is_err() {
            came.push(Came::Undone);
            continue;
        }
        let (outcome, answer) = match &step.origin {
            Origin::New => create(pages, step.to),
            Origin::Moved { from, handle } => relocate(pages, from, *handle, step.to),
        };
        came.push(outcome);
        error = answer;
    }
    (came, error)
}

fn has_room(pages: &dyn Pages, steps: &[Step]) -> Result<(), BackingError> {
    let new = steps
        .iter()
        .filter(|step| matches!(step.origin, Origin::New));
    let (count, bytes) = new.fold((0, 0u64), |(count, bytes), step| {
        (count + 1, bytes.saturating_add(step.to.size_bytes))
    });
    if count > 1 && pages.room_bytes().is_some_and(|room| room < bytes) {
        return Err(BackingError::OutOfMemory);
    }
    Ok(())
}

fn create(pages: &dyn Pages, to: Range) -> (Came, Result<(), BackingError>) {
    let id = match pages.create(to.size_bytes) {
        Ok(id) => id,
        Err(error) => return (Came::Undone, Err(error)),
    };
    match pages.map(id, to) {
        Ok(()) => (Came::Mapped(id), Ok(())),
        Err(error) => {
            pages.destroy(id);
            (Came::Undone, Err(error))
        }
    }
}

fn relocate(
    pages: &dyn Pages,
    from: &Quiet,
    handle: Handle,
    to: Range,
) -> (Came, Result<(), BackingError>) {
    if let Err(error) = pages.unmap(from) {
        return (Came::Undone, Err(error));
    }
    let Err(error) = pages.map(handle.id, to) else {
        return (Came::Mapped(handle.id), Ok(()));
    };
    if pages.map(handle.id, from.range()).is_ok() {
        return (Came::Undone, Err(error));
    }
    pages.destroy(handle.id);
    (Came::Lost, Err(error))
}
