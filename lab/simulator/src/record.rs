//! The record of a run, shared by everything in it: the clock of the world, the trace, the checkers, and the first
//! violation that one of them found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use histories::Outcome;
use proxy::Counted;
use raft_types::MemberId;

use crate::checkers::Checkers;
use crate::event::{Digest, Event, Seen};
use crate::tick::Tick;
use crate::trace_file::TraceFile;

/// What a checker found.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: Tick,
    pub(crate) checker: &'static str,
    pub(crate) words: String,
}

/// Moments at which a fault hurts most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// A member appends a membership that others have to agree to.
    Widens(MemberId),
    /// A member appends a membership with a single voter set, of which it is one.
    Narrows(MemberId),
    /// A member leads a term that is new.
    Leads(MemberId),
}

/// Counts for the summary of a run.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) reads: u64,
    pub(crate) messages: u64,
    pub(crate) terms: u64,
    pub(crate) faults: u64,
    pub(crate) proxied: Proxied,
    /// Reads of a log's files that failed, and files that were replaced by another member's.
    pub(crate) bad_reads: u64,
    pub(crate) repaired_files: u64,
}

/// Clones are the same record.
#[derive(Clone)]
pub(crate) struct Record(Arc<Mutex<Kept>>);

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
        Self(Arc::new(Mutex::new(Kept {
            now: Tick(0),
            trace,
            file: None,
            checkers: Checkers::new(broken),
            news: Vec::new(),
            violation: None,
            counts: Counts::default(),
            healed: None,
        })))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A member's panic is a violation that is reported through this very record.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What members do from here on is written there as well.
    pub(crate) fn write_to(&self, file: TraceFile) {
        self.kept().file = Some(file);
    }

    pub(crate) fn now(&self) -> Tick {
        self.kept().now
    }

    pub(crate) fn set_now(&self, now: Tick) {
        sim_entropy::set_time_of_day(now.elapsed());
        self.kept().now = now;
    }

    /// Tells every checker.
    pub(crate) fn saw(&self, event: &Event) {
        let mut kept = self.kept();
        let now = kept.now;
        match event {
            Event::Acknowledged { .. }
            | Event::Told {
                outcome: Outcome::Committed,
                ..
            } => kept.counts.acknowledged += 1,
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

    /// What happened since the last call that an adversary would wait for.
    pub(crate) fn take_news(&self) -> Vec<News> {
        std::mem::take(&mut self.kept().news)
    }

    /// Something that is no event for the checkers.
    pub(crate) fn note(&self, words: &str) {
        let mut kept = self.kept();
        let now = kept.now;
        kept.trace.note(now, words);
    }

    /// A fault was played.
    pub(crate) fn fault(&self, words: &str) {
        self.kept().counts.faults += 1;
        self.note(words);
    }

    /// A message was sent.
    pub(crate) fn message(&self, numbers: &[u64], words: impl FnOnce() -> String) {
        let mut kept = self.kept();
        kept.counts.messages += 1;
        let now = kept.now;
        kept.trace.detail(now, numbers, words);
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.kept().violation.clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.kept().counts.clone()
    }

    /// A process has ended, and has counted this.
    pub(crate) fn carried(&self, counted: &Counted) {
        self.kept().counts.proxied.add(counted);
    }

    /// A process has ended, and has met this in its log.
    pub(crate) fn read_badly(&self, bad_reads: u64, repaired_files: u64) {
        let mut kept = self.kept();
        kept.counts.bad_reads += bad_reads;
        kept.counts.repaired_files += repaired_files;
    }

    /// The ring committed again, so long after everything was mended.
    pub(crate) fn healed_after(&self, time: Duration) {
        let mut kept = self.kept();
        if kept.violation.is_none() {
            kept.healed = Some(time);
        }
    }

    pub(crate) fn healed(&self) -> Option<Duration> {
        self.kept().healed
    }

    pub(crate) fn hash(&self) -> String {
        self.kept().trace.hash()
    }

    pub(crate) fn last_events(&self) -> Vec<String> {
        self.kept().trace.last().map(str::to_owned).collect()
    }
}

// What happened, in words: the last events of a failing seed, or all of them when asked, and a hash of everything, by
// which two runs of one seed are compared.

/// How many events are kept for a failing seed.
const KEPT: usize = 80;

/// See the module.
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

    /// Something worth reading when a seed fails.
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

    /// Something that only the whole trace shows; its numbers stand for it in the hash.
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

// What went over proxies in a run, so that one sees that a seed has used them.

/// Sums over all processes of a run.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(crate) struct Proxied {
    /// Sessions that proxies were asked for, those between two proxies among them.
    sessions: u64,
    refused: u64,
    /// Entries that proxies have put back.
    relayed_entries: u64,
    /// Entries that leaders have sent themselves.
    direct_entries: u64,
    /// Entries that leaders have sent as op ids.
    proxied_entries: u64,
    /// Why leaders have left proxies, and how often.
    fallbacks: BTreeMap<&'static str, u64>,
}

impl Proxied {
    /// Adds what one process has counted.
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
