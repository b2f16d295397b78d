//! What happened, in words: the last events of a failing seed, or all of them when asked, and a hash of everything, by
//! which two runs of one seed are compared.

use std::collections::VecDeque;

use crate::seen::Digest;
use crate::tick::Tick;

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
