//! Measures how long this member has lacked entries that its leader reports as committed. Entries arrive in a separate stream, which stalls
//! on a full log disk and lags on a slow line, while heartbeats continue. The local commit index alone then does not show how old it is.

use std::collections::VecDeque;
use std::time::Duration;

use raft_types::OpId;
use tokio::time::Instant;

/// Reports that arrive within this time of each other count as one report, received at the beginning of that time.
const RESOLUTION: Duration = Duration::from_millis(10);
/// The number of reports in memory. When it is reached, adjacent reports are merged, and the merged report keeps the earlier time. So the
/// measured time may be too long, by at most one part in [`PART`], and is never too short.
const MOST: usize = 1024;
const PART: u32 = 16;

/// Entries that leaders reported as committed and this member has not committed, with the time of the report.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// The time of the last message from a leader.
    heard: Option<Instant>,
    /// The reports, in the order of the log.
    told: VecDeque<ReportedCommit>,
}

/// A commit index reported by a leader.
#[derive(Debug, Clone, Copy)]
struct ReportedCommit {
    up_to: OpId,
    /// The time of the first report. `None` if the report came with the very first message, because the entry may have been committed at
    /// any earlier time.
    since: Option<Instant>,
    /// The time of the last report.
    until: Instant,
}

/// How long a member has lacked committed entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The member has all reported entries.
    Nothing,
    /// The member has lacked entries for this long.
    For(Duration),
    /// The member lacks entries, since an unknown time.
    Unknown,
}

impl Reports {
    /// Records that a leader reports the commit index `committed`, while the log is committed up to `own` here. If the leader sent nothing
    /// for the duration `silence`, the entries may have been committed when the silence began.
    pub(crate) fn told(
        &mut self,
        committed: Option<OpId>,
        own: Option<OpId>,
        now: Instant,
        silence: Duration,
    ) {
        let before = self.heard.replace(now);
        self.forget(own);
        let Some(up_to) = committed.filter(|committed| own < Some(*committed)) else {
            return;
        };
        if let Some(last) = self.told.back_mut() {
            if last.up_to >= up_to {
                return;
            }
            let fresh = |since: Instant| now.duration_since(since) < RESOLUTION;
            if last.since.is_some_and(fresh) {
                (last.up_to, last.until) = (up_to, now);
                return;
            }
        }
        let spoke_on = |before: &Instant| now.duration_since(*before) < silence;
        let since = before.map(|before| if spoke_on(&before) { now } else { before });
        if self.told.len() >= MOST {
            self.thin_out(now);
        }
        let until = now;
        self.told.push_back(ReportedCommit {
            up_to,
            since,
            until,
        });
    }

    /// How long this member, with a log that is committed up to `own`, has lacked reported entries.
    pub(crate) fn lack(&mut self, own: Option<OpId>, now: Instant) -> Lack {
        self.forget(own);
        match self.told.front().map(|first| first.since) {
            None => Lack::Nothing,
            Some(None) => Lack::Unknown,
            Some(Some(since)) => Lack::For(now.duration_since(since)),
        }
    }

    /// Compares op ids, not indexes: after a quorum repair, new entries replace the given-up entries at the same indexes.
    fn forget(&mut self, own: Option<OpId>) {
        while self
            .told
            .front()
            .is_some_and(|first| Some(first.up_to) <= own)
        {
            self.told.pop_front();
        }
    }

    fn thin_out(&mut self, now: Instant) {
        let mut thinned: VecDeque<ReportedCommit> = VecDeque::with_capacity(MOST);
        for told in self.told.drain(..) {
            let before = thinned.back_mut().filter(|before| {
                let near = |since| told.until - since <= now.duration_since(since) / PART;
                before.since.is_some_and(near)
            });
            match before {
                Some(before) => (before.up_to, before.until) = (told.up_to, told.until),
                None => thinned.push_back(told),
            }
        }
        self.told = thinned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(2);
    const HEARTBEAT: Duration = Duration::from_millis(500);

    fn entry(index: u64) -> Option<OpId> {
        Some(OpId::new(3, index))
    }

    /// A member that has received its leader's messages and has the first entry.
    fn in_the_ring() -> (Reports, Instant) {
        let (mut memory, begun) = (Reports::default(), Instant::now());
        memory.told(entry(0), entry(0), begun, SILENCE);
        (memory, begun)
    }

    #[test]
    fn heartbeats_with_a_growing_commit_and_no_entries_give_a_growing_lag() {
        let (mut memory, begun) = in_the_ring();
        assert_eq!(memory.lack(entry(0), begun), Lack::Nothing);
        for beat in 1..100 {
            let now = begun + HEARTBEAT * beat;
            memory.told(entry(u64::from(beat) * 7), entry(0), now, SILENCE);
            assert_eq!(
                memory.lack(entry(0), now),
                Lack::For(HEARTBEAT * (beat - 1))
            );
        }
        let now = begun + HEARTBEAT * 99;
        assert_eq!(memory.lack(entry(6), now), Lack::For(HEARTBEAT * 98));
        // Received entries are no longer lacking, and the rest are lacking for less time.
        assert_eq!(memory.lack(entry(7 * 98), now), Lack::For(Duration::ZERO));
        assert_eq!(memory.lack(entry(7 * 99), now), Lack::Nothing);
    }

    #[test]
    fn a_constant_lag_is_reported_in_full() {
        let (mut memory, begun) = in_the_ring();
        let step = Duration::from_millis(20);
        let lag = 15_000_u32;
        for at in 1..100_000_u32 {
            let now = begun + step * at;
            let own = entry(u64::from(at.saturating_sub(lag)));
            memory.told(entry(at.into()), own, now, SILENCE);
            let Lack::For(lack) = memory.lack(own, now) else {
                panic!("something is lacked");
            };
            // The first lacking entry was reported this long ago.
            let so = step * at.min(lag).saturating_sub(1);
            assert!(lack >= so, "{at}: {lack:?} of {so:?}");
            assert!(lack <= so + so / (PART - 1), "{at}: {lack:?} of {so:?}");
            assert!(memory.told.len() <= MOST);
        }
    }

    #[test]
    fn a_report_after_silence_counts_from_the_start_of_the_silence() {
        let begun = Instant::now();
        let mut memory = Reports::default();
        memory.told(entry(9), entry(4), begun, SILENCE);
        assert_eq!(memory.lack(entry(4), begun), Lack::Unknown, "a start");
        let later = begun + HEARTBEAT;
        memory.told(entry(12), entry(4), later, SILENCE);
        assert_eq!(memory.lack(entry(8), later), Lack::Unknown);
        assert_eq!(memory.lack(entry(9), later), Lack::For(Duration::ZERO));
        let away = later + SILENCE;
        memory.told(entry(20), entry(12), away, SILENCE);
        assert_eq!(memory.lack(entry(12), away), Lack::For(SILENCE));
        assert_eq!(memory.lack(entry(20), away), Lack::Nothing);
    }

    #[test]
    fn entries_given_up_by_a_repair_are_not_lacking() {
        let (mut memory, begun) = in_the_ring();
        memory.told(entry(100), entry(50), begun, SILENCE);
        let repaired = Some(OpId::new(1003, 51));
        assert_eq!(memory.lack(repaired, begun + HEARTBEAT), Lack::Nothing);
    }

    #[test]
    fn reports_out_of_order_change_nothing() {
        let (mut memory, begun) = in_the_ring();
        memory.told(entry(9), entry(0), begun, SILENCE);
        let later = begun + HEARTBEAT;
        memory.told(entry(5), entry(0), later, SILENCE);
        memory.told(None, entry(0), later, SILENCE);
        assert_eq!(memory.lack(entry(5), later), Lack::For(HEARTBEAT));
    }
}
