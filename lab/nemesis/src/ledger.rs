//! Records the outcomes of the clients' transactions, and checks a server's contents against them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use testkit::statistics::longest_gap;

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// The transaction inserts a row.
    Append,
    /// The transaction adds one to a counter and to both halves of the pair, and inserts a row with the counter's number.
    Increment,
    /// The transaction inserts a parent with two children, and deletes an old parent. A foreign key deletes the children of the old parent.
    Family,
    /// The transaction creates a table.
    Make,
    /// The transaction drops a table that the client created.
    Unmake,
    /// The XA transaction inserts a row.
    Xa,
    /// The transaction appends to lists and reads lists. [`crate::lists`] checks the results.
    Lists,
}

/// A family (a parent with its children) may be deleted after this many further transaction numbers.
pub(crate) const FAMILY_LIVES: u64 = 2_000;

/// A transaction's outcome as reported to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The commit was acknowledged.
    Acknowledged,
    /// The transaction certainly had no effect.
    Failed,
    /// The client received no answer.
    Unknown,
}

/// An acknowledged transaction's times.
#[derive(Clone, Copy, Debug)]
struct Acknowledgement {
    started: Instant,
    done: Instant,
}

/// The numbers of one kind of transaction.
#[derive(Clone, Debug, Default)]
struct Numbers {
    acknowledged: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    /// The transaction numbers of each kind, indexed by [`Work`].
    numbers: [Numbers; 7],
    /// The times of the acknowledgements since the last call of `forget_times`.
    recent: Vec<Acknowledgement>,
}

/// The record of all transactions, shared by all clients. Transaction numbers are unique.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

/// The number of transactions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) acknowledged: usize,
    pub(crate) failed: usize,
    pub(crate) unknown: usize,
}

/// A server's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The numbers of the appended rows. A number is repeated if several rows have it.
    pub(crate) appended: Vec<u64>,
    /// The numbers of the rows of increments, each with the counter's number.
    pub(crate) increments: Vec<(u64, u64)>,
    /// The counters, by number.
    pub(crate) counters: BTreeMap<u64, u64>,
    /// Both halves of the pair. Each counts all increments.
    pub(crate) pair: [u64; 2],
    /// The parents' numbers, each with its number of children.
    pub(crate) parents: Vec<(u64, u64)>,
    /// The number of children without a parent.
    pub(crate) orphans: u64,
    /// The numbers of the existing tables that the client of tables created.
    pub(crate) made: Vec<u64>,
    /// The numbers of the rows of XA transactions.
    pub(crate) xa: Vec<u64>,
}

/// The kinds that insert rows permanently or create tables.
const LASTING: [Work; 5] = [
    Work::Append,
    Work::Increment,
    Work::Family,
    Work::Make,
    Work::Xa,
];

impl Book {
    fn of(&self, work: Work) -> &Numbers {
        &self.numbers[work as usize]
    }
}

impl Ledger {
    pub(crate) fn next(&self) -> u64 {
        let mut book = self.book();
        book.next += 1;
        book.next
    }

    /// Records an outcome. The client calls this before its next transaction.
    pub(crate) fn write(&self, work: Work, number: u64, outcome: Outcome, started: Instant) {
        let mut book = self.book();
        let numbers = &mut book.numbers[work as usize];
        match outcome {
            Outcome::Acknowledged => &mut numbers.acknowledged,
            Outcome::Failed => &mut numbers.failed,
            Outcome::Unknown => &mut numbers.unknown,
        }
        .insert(number);
        if outcome == Outcome::Acknowledged {
            let done = Instant::now();
            book.recent.push(Acknowledgement { started, done });
        }
    }

    /// Forgets the times of the acknowledgements, but not the outcomes.
    pub(crate) fn forget_times(&self) {
        self.book().recent.clear();
    }

    /// The acknowledgement time of the first transaction that began after `moment` and was acknowledged.
    pub(crate) fn first_begun_after(&self, moment: Instant) -> Option<Instant> {
        let book = self.book();
        let after = book.recent.iter().filter(|one| one.started >= moment);
        after.map(|one| one.done).min()
    }

    /// The longest time without an acknowledgement between `from` and `to`, as far as the times are still recorded.
    pub(crate) fn longest_pause(&self, from: Instant, to: Instant) -> Duration {
        let book = self.book();
        let inside = book.recent.iter().map(|one| one.done);
        let inside = inside.filter(|done| *done > from && *done < to);
        longest_gap(inside.chain([from, to])).unwrap_or_default()
    }

    pub(crate) fn count(&self) -> Count {
        let book = self.book();
        let sum = |of: fn(&Numbers) -> usize| book.numbers.iter().map(of).sum();
        Count {
            acknowledged: sum(|numbers| numbers.acknowledged.len()),
            failed: sum(|numbers| numbers.failed.len()),
            unknown: sum(|numbers| numbers.unknown.len()),
        }
    }

    /// Number of acknowledged increments.
    pub(crate) fn increments_acknowledged(&self) -> u64 {
        self.book().of(Work::Increment).acknowledged.len() as u64
    }

    /// Returns those of the numbers whose transactions were acknowledged.
    pub(crate) fn acknowledged_of(&self, numbers: &[u64]) -> Vec<u64> {
        let book = self.book();
        let all = LASTING.map(|work| &book.of(work).acknowledged);
        let acknowledged = |number: &&u64| all.iter().any(|of| of.contains(number));
        numbers.iter().filter(acknowledged).copied().collect()
    }

    /// Returns all contradictions between a server's contents and the outcomes, as text.
    pub(crate) fn judge(&self, contents: &Contents) -> Vec<String> {
        let book = self.book();
        let mut wrong = Vec::new();
        let appended = &contents.appended;
        judge_numbers("appended row", book.of(Work::Append), appended, &mut wrong);
        let increments: Vec<u64> = contents.increments.iter().map(|(id, _)| *id).collect();
        judge_numbers(
            "increment",
            book.of(Work::Increment),
            &increments,
            &mut wrong,
        );
        let counters = contents.counters.keys();
        let mut rows: BTreeMap<u64, u64> = counters.map(|counter| (*counter, 0)).collect();
        for (_, counter) in &contents.increments {
            *rows.entry(*counter).or_default() += 1;
        }
        if rows != contents.counters {
            let counters = &contents.counters;
            wrong.push(format!(
                "the counters are {counters:?}, and the increments' rows make {rows:?}"
            ));
        }
        let total = contents.increments.len() as u64;
        if contents.pair != [total; 2] {
            wrong.push(format!(
                "the pair is {:?} after {total} increments",
                contents.pair
            ));
        }
        judge_families(&book, contents, &mut wrong);
        judge_tables(&book, &contents.made, &mut wrong);
        judge_numbers(
            "XA transaction",
            book.of(Work::Xa),
            &contents.xa,
            &mut wrong,
        );
        wrong
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn judge_families(book: &Book, contents: &Contents, wrong: &mut Vec<String>) {
    // Older families may have been deleted.
    let oldest = book.next.saturating_sub(FAMILY_LIVES);
    let mut told = book.of(Work::Family).clone();
    let old = told.acknowledged.iter().filter(|number| **number < oldest);
    let old: Vec<u64> = old.copied().collect();
    for number in old {
        told.acknowledged.remove(&number);
        told.unknown.insert(number);
    }
    let parents: Vec<u64> = contents.parents.iter().map(|(id, _)| *id).collect();
    judge_numbers("parent", &told, &parents, wrong);
    let mut parents = contents.parents.iter();
    if let Some((id, children)) = parents.find(|(_, children)| *children != 2) {
        wrong.push(format!("parent {id} has {children} children"));
    }
    if contents.orphans > 0 {
        wrong.push(format!("{} children have no parent", contents.orphans));
    }
}

fn judge_tables(book: &Book, there: &[u64], wrong: &mut Vec<String>) {
    // A table that a client tried to drop may be missing.
    let mut told = book.of(Work::Make).clone();
    let unmade = book.of(Work::Unmake);
    for number in unmade.unknown.iter().chain(&unmade.acknowledged) {
        told.acknowledged.remove(number);
        told.unknown.insert(*number);
    }
    judge_numbers("table", &told, there, wrong);
    let mut back = there
        .iter()
        .filter(|number| unmade.acknowledged.contains(number));
    if let Some(first) = back.next() {
        wrong.push(format!("table {first} was dropped, and is there"));
    }
}

fn judge_numbers(what: &str, told: &Numbers, there: &[u64], wrong: &mut Vec<String>) {
    let mut once = BTreeSet::new();
    let twice = there.iter().copied();
    let twice: BTreeSet<u64> = twice.filter(|number| !once.insert(*number)).collect();
    let lost: BTreeSet<u64> = told.acknowledged.difference(&once).copied().collect();
    let refused: BTreeSet<u64> = told.failed.intersection(&once).copied().collect();
    let all = [&told.acknowledged, &told.failed, &told.unknown];
    let is_strange = |number: &&u64| all.iter().all(|numbers| !numbers.contains(number));
    let strange: BTreeSet<u64> = once.iter().filter(is_strange).copied().collect();
    for (set, words) in [
        (lost, "acknowledged and lost"),
        (twice, "there twice"),
        (refused, "refused and there all the same"),
        (strange, "there, and no client tried it"),
    ] {
        if let Some(first) = set.first() {
            let last = set.last().unwrap_or(first);
            wrong.push(format!(
                "{what}s {words}: {} of them, from number {first} to {last}",
                set.len()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let ledger = Ledger::default();
        let now = Instant::now();
        ledger.write(Work::Append, 1, Outcome::Acknowledged, now);
        ledger.write(Work::Increment, 2, Outcome::Acknowledged, now);
        ledger.write(Work::Append, 3, Outcome::Unknown, now);
        ledger.write(Work::Append, 4, Outcome::Failed, now);
        ledger.write(Work::Family, 5, Outcome::Acknowledged, now);
        ledger.write(Work::Make, 6, Outcome::Acknowledged, now);
        ledger.write(Work::Make, 7, Outcome::Acknowledged, now);
        ledger.write(Work::Unmake, 7, Outcome::Acknowledged, now);
        ledger.write(Work::Xa, 8, Outcome::Acknowledged, now);
        ledger
    }

    fn contents() -> Contents {
        Contents {
            appended: vec![1, 3],
            increments: vec![(2, 7)],
            counters: [(7, 1), (8, 0)].into(),
            pair: [1, 1],
            parents: vec![(5, 2)],
            orphans: 0,
            made: vec![6],
            xa: vec![8],
        }
    }

    #[test]
    fn agreeing_results_are_accepted() {
        assert_eq!(ledger().judge(&contents()), Vec::<String>::new());
        let without_the_unknown = Contents {
            appended: vec![1],
            ..contents()
        };
        assert_eq!(ledger().judge(&without_the_unknown), Vec::<String>::new());
        assert_eq!(ledger().acknowledged_of(&[1, 2, 3, 4, 8]), [1, 2, 8]);
        assert_eq!(ledger().increments_acknowledged(), 1);
        let much_later = ledger();
        much_later.book().next = FAMILY_LIVES + 6;
        let deleted = Contents {
            parents: Vec::new(),
            ..contents()
        };
        assert_eq!(much_later.judge(&deleted), Vec::<String>::new());
    }

    #[test]
    fn everything_that_contradicts_is_named() {
        type Change = fn(&mut Contents);
        let table: [(Change, &str); 14] = [
            (
                |it| it.appended.retain(|id| *id != 1),
                "acknowledged and lost",
            ),
            (|it| it.appended.push(1), "there twice"),
            (|it| it.appended.push(4), "refused and there"),
            (|it| it.appended.push(9), "no client tried"),
            (
                |it| {
                    it.increments.clear();
                    it.counters.insert(7, 0);
                    it.pair = [0, 0];
                },
                "increments acknowledged and lost",
            ),
            (
                |it| {
                    it.counters.insert(7, 2);
                },
                "the counters are",
            ),
            (|it| it.pair = [1, 2], "the pair is"),
            (|it| it.pair = [2, 2], "the pair is"),
            (|it| it.parents.clear(), "parents acknowledged and lost"),
            (|it| it.parents[0].1 = 1, "parent 5 has 1 children"),
            (|it| it.orphans = 3, "3 children have no parent"),
            (|it| it.made.clear(), "tables acknowledged and lost"),
            (|it| it.made.push(7), "was dropped, and is there"),
            (|it| it.xa.clear(), "XA transactions acknowledged and lost"),
        ];
        for (change, expected) in table {
            let mut changed = contents();
            change(&mut changed);
            let wrong = ledger().judge(&changed);
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].contains(expected), "{wrong:?}");
        }
    }

    #[test]
    fn pauses_are_between_acknowledgements() {
        let ledger = ledger();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        ledger.forget_times();
        for (started, done) in [(0, 10), (5, 300), (280, 320)] {
            ledger.book().recent.push(Acknowledgement {
                started: at(started),
                done: at(done),
            });
        }
        assert_eq!(
            ledger.longest_pause(at(0), at(330)),
            Duration::from_millis(290)
        );
        assert_eq!(
            ledger.longest_pause(at(0), at(900)),
            Duration::from_millis(580)
        );
        assert_eq!(ledger.first_begun_after(at(1)), Some(at(300)));
        assert_eq!(ledger.first_begun_after(at(281)), None);
    }
}
