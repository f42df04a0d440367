//! The ledger's table of live allocations: figures follow it, whatever order threads come in.

use std::sync::Arc;

use cushion::config::Stacks;
use cushion::ledger::{Allocation, Kind, Ledger, SiteId, Space, Tag, Weight};

use crate::explore::explore;

fn managed(context: u64, size_bytes: u64) -> Allocation {
    Allocation {
        kind: Kind::Managed,
        size_bytes,
        device: 0,
        context,
        tag: Tag::new(SiteId(size_bytes as u32), Weight::ONE, context),
    }
}

/// Sums of the snapshot and of the counters, which must agree when nobody is inside.
fn assert_figures(ledger: &Ledger, expected: (u64, u64)) {
    let snapshot = ledger.snapshot();
    let (mut count, mut bytes) = (0, 0);
    for (group, sum) in &snapshot.live {
        assert_eq!(
            u64::from(group.site.0) * sum.count,
            sum.bytes,
            "a tag of another allocation"
        );
        count += sum.count;
        bytes += sum.bytes;
    }
    assert_eq!((count, bytes), expected, "the table");
    assert_eq!(ledger.live_bytes(Kind::Managed), bytes, "the counter");
    for (_, counts) in &snapshot.kinds {
        assert_eq!((counts.count.current, counts.bytes.current), (count, bytes));
        assert!(counts.bytes.peak <= counts.bytes.total);
        assert!(counts.bytes.peak >= counts.bytes.current);
    }
}

/// An address is freed by one thread and given to another at once: the entry of the new one stays, with its tag.
#[test]
fn an_address_that_comes_back_at_once() {
    explore("an_address_that_comes_back_at_once", || {
        let ledger = Arc::new(Ledger::new(Stacks::Off));
        ledger.insert(0x1000, managed(1, 10));
        // The driver: whose the address is.
        let given = Arc::new(loom::sync::Mutex::new(false));
        let thread = {
            let (ledger, given) = (ledger.clone(), given.clone());
            loom::thread::spawn(move || {
                // Out of the ledger first, as the shim does it, then the driver's free.
                let removed = ledger.remove(Space::Device, 0x1000);
                assert_eq!(removed, Some(managed(1, 10)));
                *given.lock().unwrap() = true;
            })
        };
        let mut expected = (0, 0);
        if *given.lock().unwrap() {
            ledger.insert(0x1000, managed(1, 20));
            assert_eq!(ledger.get(Space::Device, 0x1000), Some(managed(1, 20)));
            expected = (1, 20);
        }
        // What decides the free-sync mode is never a number below zero.
        assert!(ledger.live_bytes(Kind::Managed) <= 30);
        thread.join().unwrap();
        assert_figures(&ledger, expected);
    });
}

/// A context ends while others enter and remove allocations of it and of another.
#[test]
fn a_context_that_ends_beside_frees() {
    explore("a_context_that_ends_beside_frees", || {
        let ledger = Arc::new(Ledger::new(Stacks::Off));
        ledger.insert(0x1000, managed(1, 10));
        ledger.insert(0x2000, managed(2, 20));
        let thread = {
            let ledger = ledger.clone();
            loom::thread::spawn(move || {
                ledger.insert(0x3000, managed(2, 30));
                ledger.remove(Space::Device, 0x1000).is_some()
            })
        };
        let gone = ledger.lose_context(1, 0, [(5, Tag::default())]);
        assert!(ledger.live_bytes(Kind::Managed) <= 60);
        let freed = thread.join().unwrap();
        assert_eq!(
            gone.len(),
            usize::from(!freed),
            "lost or freed, one of the two"
        );
        assert_figures(&ledger, (2, 50));
        let lost: u64 = ledger.snapshot().lost.values().map(|sum| sum.bytes).sum();
        assert_eq!(lost, if freed { 5 } else { 15 });
    });
}

/// Two entries under one key, since the end of the first was missed: one stays, and is counted once.
#[test]
fn two_entries_under_one_key() {
    explore("two_entries_under_one_key", || {
        let ledger = Arc::new(Ledger::new(Stacks::Off));
        let enter = |size_bytes| {
            let ledger = ledger.clone();
            loom::thread::spawn(move || ledger.insert(0x1000, managed(1, size_bytes)))
        };
        let threads = [enter(10), enter(20)];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let left = ledger.get(Space::Device, 0x1000).expect("one of them");
        assert_figures(&ledger, (1, left.size_bytes));
        assert_eq!(ledger.remove(Space::Device, 0x1000), Some(left));
        assert_figures(&ledger, (0, 0));
    });
}
