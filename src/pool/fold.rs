//! How what happened in front enters the figures: under the pool's lock.
//!
//! # Decision: when the figures are exact
//! Currents and totals are, whenever they are read: each lane counts, and [`Pool::fold`] adds. So are peaks while one
//! thread uses the pool: its lane keeps its own, which is added before the tables change what it is added to. With several, a
//! peak within the short time between two folds is seen only as far as it stood at one of them: at the latest at every
//! [`FOLD_EVERY`]th allocation that is not served in front.

use super::facade::Pool;
use super::front::lane::{Lane, Tally, FIGURES};
use super::state::State;
use super::Gauge;

/// Misses after which the lanes of several threads are folded: each was written by another processor.
const FOLD_EVERY: u32 = 32;

fn gauges(state: &mut State) -> [&mut Gauge; FIGURES] {
    let stats = &mut state.stats;
    [
        &mut stats.allocations,
        &mut stats.requested_bytes,
        &mut stats.allocated_bytes,
    ]
}

impl Pool {
    /// Adds what the lanes counted to the figures.
    /// `own` is the calling thread's, if it has one.
    pub(super) fn fold(&self, state: &mut State, own: Option<usize>) {
        if let Some((number, lane)) = self.front.only_lane() {
            self.fold_one(state, number, lane, own);
            return;
        }
        let is_folded = |(number, lane): (usize, &Lane)| {
            let folded = state.front.folded.get(number);
            folded.is_some_and(|folded| folded.events() == lane.events())
        };
        if self.front.lanes().all(is_folded) {
            return;
        }
        let mut freed = [0; FIGURES];
        for (number, lane) in self.front.lanes() {
            if state.front.folded.len() <= number {
                state.front.folded.resize(number + 1, Tally::default());
            }
            let before = state.front.folded[number];
            let now = lane.freed();
            for figure in 0..FIGURES {
                freed[figure] += now[figure].wrapping_sub(before.freed[figure]);
            }
            state.front.folded[number].freed = now;
        }
        let mut taken = [0; FIGURES];
        for (number, lane) in self.front.lanes() {
            let Some(folded) = state.front.folded.get_mut(number) else {
                continue; // Its lane is younger than the loop above.
            };
            let now = lane.taken();
            for figure in 0..FIGURES {
                taken[figure] += now[figure].wrapping_sub(folded.taken[figure]);
            }
            folded.taken = now;
            if own == Some(number) {
                lane.begin_peaks();
            }
        }
        if taken == [0; FIGURES] && freed == [0; FIGURES] {
            return;
        }
        for (figure, gauge) in gauges(state).into_iter().enumerate() {
            gauge.current = (gauge.current + taken[figure]).saturating_sub(freed[figure]);
            gauge.total += taken[figure];
            gauge.peak = gauge.peak.max(gauge.current);
        }
        state.stats.hits += taken[0];
        state.front.cached_bytes += freed[2].wrapping_sub(taken[2]) as i64;
        state.settle_active();
    }

    /// The same while there is one lane, whose peaks are those of the pool.
    #[inline]
    fn fold_one(&self, state: &mut State, number: usize, lane: &Lane, own: Option<usize>) {
        if state.front.folded.len() <= number {
            state.front.folded.resize(number + 1, Tally::default());
        }
        let before = state.front.folded[number];
        if before.events() == lane.events() {
            if own == Some(number) {
                // Another thread may have added them.
                lane.begin_peaks();
            }
            return;
        }
        let peaks = lane.net_peaks();
        let freed = lane.freed();
        let taken = lane.taken();
        let now = Tally { taken, freed };
        state.front.folded[number] = now;
        let (taken, freed) = now.since(&before);
        for (figure, gauge) in gauges(state).into_iter().enumerate() {
            let peak = gauge
                .current
                .saturating_add_signed(peaks[figure] - before.net(figure));
            gauge.current = (gauge.current + taken[figure]).saturating_sub(freed[figure]);
            gauge.total += taken[figure];
            gauge.peak = gauge.peak.max(peak).max(gauge.current);
        }
        if own == Some(number) {
            lane.begin_peaks();
        }
        state.stats.hits += taken[0];
        state.front.cached_bytes += freed[2].wrapping_sub(taken[2]) as i64;
        state.settle_active();
    }

    /// The figures are about to change by what is not done in front: what one thread did there before counts first.
    #[inline]
    pub(super) fn fold_alone(&self, state: &mut State, own: Option<usize>) {
        if let Some((number, lane)) = self.front.only_lane() {
            self.fold_one(state, number, lane, own);
        }
    }

    /// The same where they are about to fall: only a peak has to count first, and seldom is there one.
    #[inline]
    pub(super) fn fold_before_fall(&self, state: &mut State, own: Option<usize>) {
        if let Some((number, lane)) = self.front.only_lane() {
            let folded = state.front.folded.get(number);
            let stats = &state.stats;
            let gauges = [
                &stats.allocations,
                &stats.requested_bytes,
                &stats.allocated_bytes,
            ];
            let rises = |figure: usize| {
                let net = folded.map_or(0, |folded| folded.net(figure));
                let more = lane.net_peak(figure) - net;
                gauges[figure].current.saturating_add_signed(more) > gauges[figure].peak
            };
            if (0..FIGURES).any(rises) {
                self.fold_one(state, number, lane, own);
            }
        }
    }

    /// A request of this size was not served in front. The figures follow, at times.
    #[inline]
    pub(super) fn note_miss(
        &self,
        state: &mut State,
        own: Option<usize>,
        size_bytes: u64,
        is_ordered: bool,
    ) {
        let do_meet = state.front.meetings.is_on();
        state.front.asked.note(size_bytes, do_meet);
        self.note_meeting(state, own, is_ordered);
        state.front.misses += 1;
        if self.front.only_lane().is_some() || state.front.misses >= FOLD_EVERY {
            state.front.misses = 0;
            self.fold(state, own);
        }
    }

    /// Gives the calling thread's lane numbers for its next allocations.
    #[cold]
    pub(super) fn lease(&self, state: &mut State, lane: &Lane) {
        state.sequence += lane.lease(state.sequence + 1);
    }
}
