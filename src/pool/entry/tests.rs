//! Entries, packed and unpacked.

use super::*;

const TOP: u64 = 1 << ADDRESS_BITS;
const MOST_BYTES: u64 = (u32::MAX as u64) << GRANULE_BITS;

fn uses() -> [Use; 6] {
    let past = Past {
        epoch: u64::MAX - 1,
        ticket: u64::MAX - 2,
    };
    [
        Use::Vacant { next_vacant: 7 },
        Use::Live {
            requested_bytes: u64::MAX - 3,
            tag: u64::MAX - 4,
            sequence: u64::MAX - 5,
        },
        Use::Free {
            past,
            bin_previous: u32::MAX - 6,
            bin_next: u32::MAX - 7,
        },
        Use::Hand { past },
        Use::Held { past },
        Use::Hole,
    ]
}

#[test]
fn an_entry_is_48_bytes() {
    assert_eq!(size_of::<Entry>(), 48);
}

#[test]
fn what_goes_in_comes_out() {
    let ranges = [
        (0, 512),
        (512, MOST_BYTES),
        (TOP - MOST_BYTES, MOST_BYTES),
        (TOP - 512, 512),
    ];
    for (address, size_bytes) in ranges {
        for in_use in uses() {
            for flags in 0..8 {
                let entry = Entry::new(Parts {
                    address,
                    size_bytes,
                    in_use,
                    segment: u32::MAX - 8,
                    previous: u32::MAX - 9,
                    next: u32::MAX - 10,
                    flags,
                });
                let parts = entry.parts();
                assert_eq!((parts.address, parts.size_bytes), (address, size_bytes));
                assert_eq!((parts.in_use, parts.flags), (in_use, flags));
                assert_eq!(entry.end(), address + size_bytes);
                let links = (parts.segment, parts.previous, parts.next);
                assert_eq!(links, (u32::MAX - 8, u32::MAX - 9, u32::MAX - 10));
                for other in uses() {
                    let mut changed = entry;
                    changed.set_use(other);
                    changed.set_flags(flags ^ 5);
                    changed.set_address(TOP / 2);
                    changed.set_size_bytes(1024);
                    changed.set_next(3);
                    let parts = changed.parts();
                    assert_eq!((parts.in_use, parts.flags), (other, flags ^ 5));
                    assert_eq!((parts.address, parts.size_bytes), (TOP / 2, 1024));
                    assert_eq!((parts.next, parts.previous), (3, u32::MAX - 9));
                }
            }
        }
    }
}

#[test]
fn the_links_of_a_bin_change_one_by_one() {
    let [_, _, in_use, ..] = uses();
    let mut entry = Entry::new(Parts {
        address: 0,
        size_bytes: 512,
        in_use,
        segment: 0,
        previous: 0,
        next: 0,
        flags: 0,
    });
    entry.set_bin_previous(1);
    entry.set_bin_next(2);
    let past = Past {
        epoch: 3,
        ticket: 4,
    };
    entry.set_free_past(past);
    let expected = Use::Free {
        past,
        bin_previous: 1,
        bin_next: 2,
    };
    assert_eq!((entry.in_use(), entry.free_past()), (expected, Some(past)));
}

#[test]
fn what_would_not_fit_is_told() {
    let can_hold = |address, size_bytes| {
        Entry::can_hold(Range {
            address,
            size_bytes,
        })
    };
    assert!(can_hold(TOP - MOST_BYTES, MOST_BYTES));
    assert!(!can_hold(TOP - 512, 1024));
    assert!(!can_hold(u64::MAX - 511, 512));
    assert!(!can_hold(0, MOST_BYTES + 512));
    assert!(!can_hold(256, 512));
    assert!(!can_hold(512, 100));
}
