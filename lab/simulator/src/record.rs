//! The shared record of a run: the world's clock, the trace, the checkers, and the first violation.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use histories::Outcome;
use proxy::Counted;
use raft_types::MemberId;

use crate::checkers::Checkers;
use crate::event::{Digest, Event, Seen};
use crate::shared::Shared;
use crate::tick::Tick;
use crate::trace_file::TraceFile;

/// A violation that a checker has found.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: Tick,
    pub(crate) checker: &'static str,
    pub(crate) words: String,
}

/// Events after which faults are the most harmful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// A member appended a membership with which other members must agree.
    Widens(MemberId),
    /// A member appended a membership with one voter set, which contains the member.
    Narrows(MemberId),
    /// A member leads in a new term.
    Leads(MemberId),
}

/// The counts in the summary of a run.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) reads: u64,
    pub(crate) messages: u64,
    pub(crate) terms: u64,
    pub(crate) faults: u64,
    pub(crate) proxied: Proxied,
    /// The number of failed reads of log files, and of files that were replaced by another member's copy.
    pub(crate) bad_reads: u64,
    pub(crate) repaired_files: u64,
}

/// The record of a run. Clones share the record.
#[derive(Clone)]
pub(crate) struct Record(Shared<Kept>);

struct Kept {
    now: Tick,
    trace: Trace,
    file: Option<TraceFile>,
    checkers: Checkers,
    news: Vec<News>,
    violation: Option<Violation>,
    counts: Counts,
    healed: Option<Duration>,
}

impl Record {
    pub(crate) fn new(trace: Trace, broken: bool) -> Self {
        Self(Shared::new(Kept {
            now: Tick(0),
            trace,
            file: None,
            checkers: Checkers::new(broken),
            news: Vec::new(),
            violation: None,
            counts: Counts::default(),
            healed: None,
        }))
    }

    /// From now on, also writes the members' actions into this file.
    pub(crate) fn write_to(&self, file: TraceFile) {
        self.0.lock().file = Some(file);
    }

    pub(crate) fn now(&self) -> Tick {
        self.0.lock().now
    }

    pub(crate) fn set_now(&self, now: Tick) {
        sim_entropy::set_time_of_day(now.elapsed());
        self.0.lock().now = now;
    }

    /// Passes an event to all checkers.
    pub(crate) fn saw(&self, event: &Event) {
        let mut kept = self.0.lock();
        let now = kept.now;
        match event {
            Event::Acknowledged { .. } | Event::Told(.., Outcome::Committed) => {
                kept.counts.acknowledged += 1;
            }
            Event::Refused { .. } => kept.counts.refused += 1,
            Event::Read { .. } => kept.counts.reads += 1,
            Event::Led { term, leader } if *term > kept.counts.terms => {
                kept.counts.terms = *term;
                kept.news.push(News::Leads(*leader));
            }
            Event::Appended { member, entries } => {
                let memberships = entries.iter().filter_map(Seen::voter_sets);
                kept.news
                    .extend(memberships.map(|sets| match sets.as_slice() {
                        [only] if only.contains(member) => News::Narrows(*member),
                        _ => News::Widens(*member),
                    }));
            }
            _ => {}
        }
        if !matches!(event, Event::Led { .. }) {
            kept.trace.note(now, &event.to_string());
        }
        if let Some(file) = &mut kept.file
            && let Err(error) = file.write(now, event)
        {
            eprintln!("the trace ends here: {error}");
            kept.file = None;
        }
        let found = kept.checkers.saw(now, event);
        if let Err((checker, words)) = found
            && kept.violation.is_none()
        {
            kept.trace
                .note(now, &format!("VIOLATION ({checker}): {words}"));
            kept.violation = Some(Violation {
                at: now,
                checker,
                words,
            });
        }
    }

    /// Returns the events since the last call after which faults are harmful.
    pub(crate) fn take_news(&self) -> Vec<News> {
        std::mem::take(&mut self.0.lock().news)
    }

    /// Records a message that the checkers do not receive.
    pub(crate) fn note(&self, words: &str) {
        let mut kept = self.0.lock();
        let now = kept.now;
        kept.trace.note(now, words);
    }

    /// Records an injected fault.
    pub(crate) fn fault(&self, words: &str) {
        self.0.lock().counts.faults += 1;
        self.note(words);
    }

    /// Records a sent message.
    pub(crate) fn message(&self, numbers: &[u64], words: impl FnOnce() -> String) {
        let mut kept = self.0.lock();
        kept.counts.messages += 1;
        let now = kept.now;
        kept.trace.detail(now, numbers, words);
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.0.lock().violation.clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().counts.clone()
    }

    /// Adds the proxy counts of a process that has ended.
    pub(crate) fn carried(&self, counted: &Counted) {
        self.0.lock().counts.proxied.add(counted);
    }

    /// Adds the log faults of a process that has ended.
    pub(crate) fn read_badly(&self, bad_reads: u64, repaired_files: u64) {
        let mut kept = self.0.lock();
        kept.counts.bad_reads += bad_reads;
        kept.counts.repaired_files += repaired_files;
    }

    /// Records the time from the end of all faults to the next commit.
    pub(crate) fn healed_after(&self, time: Duration) {
        let mut kept = self.0.lock();
        if kept.violation.is_none() {
            kept.healed = Some(time);
        }
    }

    pub(crate) fn healed(&self) -> Option<Duration> {
        self.0.lock().healed
    }

    pub(crate) fn hash(&self) -> String {
        self.0.lock().trace.hash()
    }

    pub(crate) fn last_events(&self) -> Vec<String> {
        self.0.lock().trace.last().map(str::to_owned).collect()
    }
}

// The trace of a run as text: the last events of a failing seed, or all events on request. A hash of all events shows whether two runs of
// one seed are equal.

/// Number of events that are kept for a failing seed.
const KEPT: usize = 80;

/// The trace of a run.
pub(crate) struct Trace {
    verbose: bool,
    hash: Digest,
    last: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(verbose: bool) -> Self {
        Self {
            verbose,
            hash: Digest::EMPTY,
            last: VecDeque::new(),
        }
    }

    /// Adds an event that is shown for a failing seed.
    pub(crate) fn note(&mut self, at: Tick, words: &str) {
        self.hash = self.hash.with(words.as_bytes());
        let line = format!("{at}  {words}");
        if self.verbose {
            println!("{line}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// Adds an event that is shown only in the full trace. `numbers` is the part of it that enters the hash.
    pub(crate) fn detail(&mut self, at: Tick, numbers: &[u64], words: impl FnOnce() -> String) {
        for number in numbers {
            self.hash = self.hash.with(&number.to_le_bytes());
        }
        if self.verbose {
            println!("{at}      {}", words());
        }
    }

    pub(crate) fn hash(&self) -> String {
        format!("{:?}", self.hash)
    }

    pub(crate) fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }
}

// The proxy traffic of a run. It shows whether a seed has used proxies.

/// The sums over all processes of a run.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(crate) struct Proxied {
    /// Number of sessions requested from proxies, including sessions between two proxies.
    sessions: u64,
    refused: u64,
    /// Number of entries that proxies reconstituted.
    relayed_entries: u64,
    /// Number of entries that leaders sent directly.
    direct_entries: u64,
    /// Number of entries that leaders sent as op ids only.
    proxied_entries: u64,
    /// How often leaders stopped using a proxy, by reason.
    fallbacks: BTreeMap<&'static str, u64>,
}

impl Proxied {
    /// Adds the counts of a process.
    pub(crate) fn add(&mut self, counted: &Counted) {
        self.sessions += counted.relayed.sessions;
        self.refused += counted.relayed.refused;
        self.relayed_entries += counted.relayed.entries;
        for sent in counted.members.values() {
            self.direct_entries += sent.direct_entries;
            self.proxied_entries += sent.proxied_entries;
        }
        for ((_, why), times) in &counted.fallbacks {
            *self.fallbacks.entry(why).or_default() += times;
        }
    }
}
