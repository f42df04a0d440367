//! What lies where, whatever is kept, taken and crowded out.

use super::super::lane::{Lane, KEPT_APART_ABOVE_BYTES};
use super::*;

/// What is kept is found under its own size and no other, and nothing is lost, however many may be kept.
#[test]
fn a_large_block_is_only_ever_found_under_its_own_size() {
    let mut random = 1u64;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (random >> 33) % limit
    };
    let size_of = |hint: Hint| KEPT_APART_ABOVE_BYTES + 512 * (u64::from(hint.entry()) + 1);
    for _ in 0..100 {
        let lane = Lane::new();
        let size_count = 1 + below(120);
        let mut kept = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let hint = Hint::new(below(size_count) as u32, number);
            let size_bytes = size_of(hint);
            let mut out = Vec::new();
            match below(200) {
                0 => lane.wide.set_limit(0),
                1 => lane.wide.set_limit(KEPT_APART_ABOVE_BYTES * below(60)),
                2 => lane.wide.set_alike_limit(below(2) << 20),
                3 => out.extend(lane.wide.take_any()),
                4..40 => {
                    let newest = below(2) == 0;
                    if let Some(bin) = lane.bin_of(size_bytes).filter(|bin| bin.count() > 0) {
                        out.extend(if newest { bin.newest() } else { bin.oldest() });
                        lane.drop_hint(bin, size_bytes, newest);
                    }
                }
                _ => {
                    kept.insert(number);
                    if !lane.keep(size_bytes, hint) {
                        let crowd = lane.crowd_in(size_bytes, hint);
                        out.extend(crowd.iter().flat_map(|crowd| crowd.hints()));
                    }
                }
            }
            for hint in out {
                assert!(kept.remove(&hint.sequence()), "twice, or never put in");
            }
            let mut kept_bytes = 0;
            for hint in lane.wide.hints() {
                assert!(kept.contains(&hint.sequence()));
                kept_bytes += size_of(hint);
            }
            assert_eq!(lane.wide.hints().count(), kept.len());
            assert_eq!(lane.wide.bytes.load(Relaxed), kept_bytes);
            for entry in 0..size_count as u32 {
                let bin = lane.bin_of(size_of(Hint::new(entry, 0)));
                for hint in bin.into_iter().flat_map(Bin::hints) {
                    assert_eq!(hint.entry(), entry, "a block of another size");
                }
            }
        }
    }
}

/// Each block of one size has another that nobody takes make room.
#[test]
fn a_large_size_for_which_others_make_room_has_no_more_than_its_bin() {
    const SIZE_BYTES: u64 = 1 << 20;
    let lane = Lane::new();
    lane.wide.set_limit(64 * SIZE_BYTES);
    let mut number = 0;
    for size_bytes in (SIZE_BYTES..).step_by(512).take(512) {
        if lane.wide.has_room_beside(size_bytes) && lane.bin_for(size_bytes).count() == 0 {
            lane.crowd_in(size_bytes, Hint::new(0, number));
            number += 1;
        }
    }
    lane.wide.set_limit(lane.wide.bytes.load(Relaxed));
    for _ in 0..64 {
        if !lane.keep(SIZE_BYTES, Hint::new(0, number)) {
            lane.crowd_in(SIZE_BYTES, Hint::new(0, number));
        }
        number += 1;
        assert!(lane.bin_for(SIZE_BYTES).count() <= SHALLOW_DEPTH);
    }
}
