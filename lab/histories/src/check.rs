//! Finds anomalies: results of transactions that no serial order of the transactions explains.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Before, Graph};
use crate::history::{Access, List, Operation, Outcome, Transaction, Value};

/// A result that no serial order of the transactions explains. The kinds are:
///
/// - A list contains a value twice, or a value that no transaction appended to the list.
/// - A read returned a value of a failed transaction (Adya's G1a), or only a part of another transaction's appends to a list (G1b).
/// - A transaction does not see its own appends.
/// - Two transactions read a list, and neither result is a prefix of the other. One of the two reads contains values that were lost.
/// - In a cycle of transactions, each transaction must precede the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The transactions involved, by index.
    pub transactions: Vec<usize>,
    /// The description of the anomaly.
    pub words: String,
    /// The kind of the cycle, if the anomaly is a cycle.
    pub circle: Option<Circle>,
}

/// The kind of a cycle by its edges, with the names in Adya's thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circle {
    /// G0: the cycle consists only of appends.
    Writes,
    /// G1c: the cycle consists of appends and of reads of appended values.
    Information,
    /// G-single: one edge of the cycle is a read of an older state.
    ReadSkew,
    /// G2: several edges of the cycle are reads of an older state.
    WriteSkew,
    /// The cycle has an edge by time: a later transaction missed an acknowledged append, or a server returned an older state than before.
    Time,
}

impl Anomaly {
    fn of(transactions: &[usize], words: String) -> Self {
        Self {
            transactions: transactions.to_vec(),
            words,
            circle: None,
        }
    }
}

/// Returns all anomalies found by [`check`] as text. Each text lists the transactions, each cut to `shown` characters.
pub fn check_in_words(transactions: &[Transaction], shown: usize) -> Vec<String> {
    let shortened = |at: usize| {
        let words = format!("{at}: {:?}", transactions[at]);
        words.chars().take(shown).collect::<String>()
    };
    let words = check(transactions).into_iter().map(|anomaly| {
        let named: Vec<String> = anomaly.transactions.into_iter().map(shortened).collect();
        format!("{}; {}", anomaly.words, named.join("; "))
    });
    words.collect()
}

/// Returns the anomalies, with the transactions' indexes. If the result is empty, the reads contradict none of the promises.
///
/// # Panics
/// If the clients append a value twice; such a history cannot be checked.
pub fn check(transactions: &[Transaction]) -> Vec<Anomaly> {
    let writers = writers(transactions);
    let mut found = Vec::new();
    for (reader, transaction) in transactions.iter().enumerate() {
        if transaction.outcome == Outcome::Committed {
            check_reads(transactions, &writers, reader, &mut found);
        }
    }
    let orders = orders(transactions, &mut found);
    // If the order of a list is contradictory, the transactions have no order to check.
    if found.is_empty() {
        found.extend(circle(transactions, &writers, &orders));
    }
    found
}

type Writers = BTreeMap<Value, (usize, List)>;

fn writers(transactions: &[Transaction]) -> Writers {
    let mut writers = Writers::new();
    for (at, transaction) in transactions.iter().enumerate() {
        for (list, value) in transaction.appends() {
            let before = writers.insert(value, (at, list));
            assert!(before.is_none(), "{value} is appended twice by the clients");
        }
    }
    writers
}

/// Adds the anomalies that the reads of one transaction show.
fn check_reads(
    transactions: &[Transaction],
    writers: &Writers,
    reader: usize,
    found: &mut Vec<Anomaly>,
) {
    let mut add = |named: &[usize], words| found.push(Anomaly::of(named, words));
    let mut own: BTreeMap<List, Vec<Value>> = BTreeMap::new();
    for operation in &transactions[reader].operations {
        let (list, values) = match operation {
            Operation::Append(list, value) => {
                own.entry(*list).or_default().push(*value);
                continue;
            }
            Operation::Read(list, values) => (*list, values),
        };
        let own = own.get(&list).map_or(&[][..], Vec::as_slice);
        if !values.ends_with(own) {
            add(
                &[reader],
                format!("{reader} does not read what it appended"),
            );
        }
        let mut seen = BTreeSet::new();
        let mut by = BTreeMap::<usize, usize>::new();
        for value in values {
            if !seen.insert(*value) {
                let words = format!("{value} is twice in what {reader} read");
                add(&[reader], words);
            }
            match writers.get(value) {
                Some((writer, there)) if *there == list => {
                    *by.entry(*writer).or_default() += 1;
                    if transactions[*writer].outcome == Outcome::Failed {
                        let words = format!("{value} is in what {reader} read, and was refused");
                        add(&[reader], words);
                    }
                }
                _ => {
                    let words = "and no transaction appended it there";
                    add(&[reader], format!("{value} was read by {reader}, {words}"));
                }
            }
        }
        for (writer, read) in by {
            let all = transactions[writer].appends();
            let all = all.filter(|(there, _)| *there == list).count();
            if writer != reader && read < all {
                let words = format!("{reader} read a part of what {writer} appended");
                add(&[writer, reader], words);
            }
        }
    }
}

/// Returns the longest read of each list, with its reader. Each shorter read of a list must be a prefix of the longest; otherwise adds an
/// anomaly.
fn orders(transactions: &[Transaction], found: &mut Vec<Anomaly>) -> BTreeMap<List, Vec<Value>> {
    let mut longest: BTreeMap<List, (usize, &[Value])> = BTreeMap::new();
    let committed = || {
        let all = transactions.iter().enumerate();
        all.filter(|(_, one)| one.outcome == Outcome::Committed)
    };
    for (reader, transaction) in committed() {
        for (list, values) in transaction.reads() {
            let known = longest.entry(list).or_insert((reader, values));
            if values.len() > known.1.len() {
                *known = (reader, values);
            }
        }
    }
    for (reader, transaction) in committed() {
        for (list, values) in transaction.reads() {
            let (other, all) = longest[&list];
            if !all.starts_with(values) {
                let words = format!(
                    "list {list} as {other} read it and as {reader} read it cannot both have been"
                );
                found.push(Anomaly::of(&[other, reader], words));
            }
        }
    }
    longest
        .into_iter()
        .map(|(list, (_, values))| (list, values.to_vec()))
        .collect()
}

fn circle(
    transactions: &[Transaction],
    writers: &Writers,
    orders: &BTreeMap<List, Vec<Value>>,
) -> Option<Anomaly> {
    let seen: BTreeSet<Value> = orders.values().flatten().copied().collect();
    let took_effect = |transaction: &Transaction| match transaction.outcome {
        Outcome::Committed => true,
        Outcome::Failed => false,
        Outcome::Unknown => transaction
            .appends()
            .any(|(_, value)| seen.contains(&value)),
    };
    let mut graph = Graph::with(transactions.len());
    // A transaction with an unread append comes after all reads of that list.
    let mut unread: BTreeMap<List, Vec<usize>> = BTreeMap::new();
    for (at, transaction) in transactions.iter().enumerate() {
        let unseen = |(_, value): &(List, Value)| !seen.contains(value);
        for (list, _) in transaction.appends().filter(unseen) {
            if took_effect(transaction) {
                unread.entry(list).or_default().push(at);
            }
        }
    }
    let none = Vec::new();
    for (list, order) in orders {
        let mut by: Vec<usize> = order.iter().map(|value| writers[value].0).collect();
        by.dedup();
        for pair in by.windows(2) {
            graph.add(pair[0], pair[1], Before::Appended);
        }
        if let Some(last) = by.last() {
            for next in unread.get(list).unwrap_or(&none) {
                graph.add(*last, *next, Before::Appended);
            }
        }
    }
    let committed = |one: &&Transaction| one.outcome == Outcome::Committed;
    for (reader, transaction) in transactions.iter().enumerate() {
        if !committed(&transaction) {
            continue;
        }
        for (list, values) in transaction.reads() {
            let own = |value: &&Value| writers[*value].0 == reader;
            let others = values.len() - values.iter().filter(own).count();
            if let Some(last) = others.checked_sub(1) {
                graph.add(writers[&values[last]].0, reader, Before::WasRead);
            }
            let order = &orders[&list];
            let mut later = order[others..].iter().map(|value| writers[value].0);
            match later.find(|writer| *writer != reader) {
                Some(next) => graph.add(reader, next, Before::ReadOlder),
                None => unread
                    .get(&list)
                    .unwrap_or(&none)
                    .iter()
                    .for_each(|next| graph.add(reader, *next, Before::ReadOlder)),
            }
        }
    }
    let mut places: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
    for (at, transaction) in transactions.iter().enumerate() {
        if took_effect(transaction) {
            let place = match transaction.access {
                Access::Primary => None,
                Access::Follower(number) => Some(number),
            };
            places.entry(place).or_default().push(at);
        }
    }
    for at_one_place in places.values() {
        add_time(&mut graph, transactions, at_one_place);
    }
    let circle = graph.circle()?;
    Some(in_words(&circle, transactions.len()))
}

/// Adds the edges by time: a transaction precedes all transactions that began after its end. A chain of moments replaces an edge per pair.
fn add_time(graph: &mut Graph, transactions: &[Transaction], all: &[usize]) {
    let over = |at: &&usize| transactions[**at].outcome == Outcome::Committed;
    let mut ends: Vec<(u64, usize)> = all
        .iter()
        .filter(over)
        .map(|at| (transactions[*at].ended, *at))
        .collect();
    ends.sort_unstable();
    let mut moments = Vec::new();
    for (_, at) in &ends {
        let moment = graph.node();
        if let Some(before) = moments.last() {
            graph.add(*before, moment, Before::Moment);
        }
        graph.add(*at, moment, Before::Ended);
        moments.push(moment);
    }
    for at in all {
        let began = transactions[*at].began;
        let over = ends.partition_point(|(ended, _)| *ended < began);
        if let Some(last) = over.checked_sub(1) {
            graph.add(moments[last], *at, Before::Moment);
        }
    }
}

fn in_words(circle: &[(usize, Before)], transactions: usize) -> Anomaly {
    let has = |wanted: Before| circle.iter().filter(|(_, why)| *why == wanted).count();
    let kind = match (
        has(Before::Ended),
        has(Before::ReadOlder),
        has(Before::WasRead),
    ) {
        (1.., _, _) => Circle::Time,
        (0, 0, 0) => Circle::Writes,
        (0, 0, _) => Circle::Information,
        (0, 1, _) => Circle::ReadSkew,
        (0, _, _) => Circle::WriteSkew,
    };
    let words = |why: &Before| match why {
        Before::Appended => "appended before",
        Before::WasRead => "was read by",
        Before::ReadOlder => "read before it was appended to by",
        Before::Ended | Before::Moment => "was over before",
    };
    let steps = circle.iter().filter(|(node, _)| *node < transactions);
    let mut steps: Vec<_> = steps.map(|(node, why)| (*node, words(why))).collect();
    // Starts the text at the transaction with the lowest index, so that the text does not depend on where the search started.
    if let Some(first) = (0..steps.len()).min_by_key(|at| steps[*at].0) {
        steps.rotate_left(first);
    }
    let mut words = format!("{kind:?}: ");
    for (transaction, why) in &steps {
        words += &format!("{transaction} {why} ");
    }
    words += &steps.first().map_or(0, |(first, _)| *first).to_string();
    Anomaly {
        transactions: steps.into_iter().map(|(at, _)| at).collect(),
        words,
        circle: Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(began: u64, ended: u64, operations: &[Operation]) -> Transaction {
        Transaction {
            began,
            ended,
            outcome: Outcome::Committed,
            access: Access::Primary,
            operations: operations.to_vec(),
        }
    }

    fn append(list: List, value: Value) -> Operation {
        Operation::Append(list, value)
    }

    fn read(list: List, values: &[Value]) -> Operation {
        Operation::Read(list, values.to_vec())
    }

    fn unknown(transaction: Transaction) -> Transaction {
        Transaction {
            outcome: Outcome::Unknown,
            ..transaction
        }
    }

    fn follower(transaction: Transaction) -> Transaction {
        Transaction {
            access: Access::Follower(2),
            ..transaction
        }
    }

    fn kind(history: &[Transaction]) -> Option<Circle> {
        match check(history).as_slice() {
            [] => None,
            [one] if one.circle.is_some() => one.circle,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sequential_transactions_are_valid() {
        let history = [
            at(0, 1, &[append(1, 10), append(2, 20)]),
            at(2, 3, &[read(1, &[10]), append(1, 11), read(1, &[10, 11])]),
            unknown(at(4, 5, &[append(1, 12)])),
            unknown(at(4, 5, &[append(2, 22)])),
            at(6, 7, &[read(1, &[10, 11, 12]), read(2, &[20])]),
            follower(at(6, 7, &[read(1, &[]), read(2, &[])])),
            follower(at(8, 9, &[read(1, &[10, 11]), read(2, &[20])])),
        ];
        assert_eq!(check(&history), []);
    }

    #[test]
    fn single_reads_that_cannot_be() {
        let failed = Transaction {
            outcome: Outcome::Failed,
            ..at(0, 1, &[append(1, 9)])
        };
        let two = at(0, 1, &[append(1, 7), append(1, 8)]);
        let table: [(Vec<Transaction>, &[usize], &str); 5] = [
            (
                vec![at(0, 1, &[append(1, 5)]), at(2, 3, &[read(1, &[5, 5])])],
                &[1],
                "5 is twice in what 1 read",
            ),
            (
                vec![at(0, 1, &[append(2, 5)]), at(2, 3, &[read(1, &[5])])],
                &[1],
                "5 was read by 1, and no transaction appended it there",
            ),
            (
                vec![failed, at(2, 3, &[read(1, &[9])])],
                &[1],
                "9 is in what 1 read, and was refused",
            ),
            (
                vec![two, at(0, 3, &[read(1, &[7])])],
                &[0, 1],
                "1 read a part of what 0 appended",
            ),
            (
                vec![at(0, 1, &[append(1, 5), read(1, &[])])],
                &[0],
                "0 does not read what it appended",
            ),
        ];
        for (history, transactions, words) in table {
            let expected = Anomaly::of(transactions, words.to_owned());
            assert!(check(&history).contains(&expected), "{words}");
        }
    }

    /// The second leader's history lacks an acknowledged append.
    #[test]
    fn a_lost_append_splits_the_list() {
        let history = [
            at(0, 1, &[append(1, 5)]),
            at(2, 3, &[read(1, &[5])]),
            at(4, 5, &[append(1, 6)]),
            at(6, 7, &[read(1, &[6])]),
        ];
        let words = "list 1 as 1 read it and as 3 read it cannot both have been";
        let parted = Anomaly::of(&[1, 3], words.to_owned());
        assert_eq!(check(&history), [parted]);
        // Without a read of the lost append, only the time shows that the later transaction missed it.
        let unread = [
            at(0, 1, &[append(1, 5)]),
            at(4, 5, &[append(1, 6)]),
            at(6, 7, &[read(1, &[6])]),
        ];
        assert_eq!(kind(&unread), Some(Circle::Time));
    }

    #[test]
    fn circles_have_their_names() {
        let writes = [
            at(0, 9, &[append(1, 10), append(2, 20)]),
            at(0, 9, &[append(1, 11), append(2, 21)]),
            at(0, 9, &[read(1, &[10, 11])]),
            at(0, 9, &[read(2, &[21, 20])]),
        ];
        assert_eq!(kind(&writes), Some(Circle::Writes));
        let information = [
            at(0, 9, &[append(1, 10), read(2, &[20])]),
            at(0, 9, &[append(2, 20), read(1, &[10])]),
        ];
        assert_eq!(kind(&information), Some(Circle::Information));
        let read_skew = [
            at(0, 9, &[append(1, 10), append(2, 20)]),
            at(0, 9, &[read(1, &[10]), read(2, &[])]),
        ];
        assert_eq!(kind(&read_skew), Some(Circle::ReadSkew));
        let write_skew = [
            at(0, 9, &[read(1, &[]), append(2, 20)]),
            at(0, 9, &[read(2, &[]), append(1, 10)]),
        ];
        assert_eq!(kind(&write_skew), Some(Circle::WriteSkew));
    }

    #[test]
    fn time_counts_at_the_primary_and_at_each_follower_by_itself() {
        let stale = |reader: fn(Transaction) -> Transaction| {
            [
                at(0, 1, &[append(1, 10)]),
                reader(at(2, 3, &[read(1, &[])])),
            ]
        };
        assert_eq!(kind(&stale(|one| one)), Some(Circle::Time));
        assert_eq!(kind(&stale(follower)), None);
        // A read that is concurrent with the append may return either result.
        let concurrent = [at(0, 5, &[append(1, 10)]), at(2, 3, &[read(1, &[])])];
        assert_eq!(kind(&concurrent), None);
        let goes_back = [
            at(0, 1, &[append(1, 10)]),
            follower(at(2, 3, &[read(1, &[10])])),
            follower(at(4, 5, &[read(1, &[])])),
        ];
        assert_eq!(kind(&goes_back), Some(Circle::Time));
        let told = &check(&goes_back)[0].words;
        assert!(told.contains("was over before"), "{told}");
    }

    /// Returns the history of a database that runs transactions sequentially, with followers. Some answers arrive late or never.
    fn serial(seed: u64, transactions: usize) -> Vec<Transaction> {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut states = vec![BTreeMap::<List, Vec<Value>>::new()];
        let mut at_follower = [0; 3];
        let mut history = Vec::new();
        for number in 0..transactions as u64 {
            let now = 10 * number + 10;
            let (began, ended) = (now - dice.u64(0..10), now + dice.u64(0..40));
            if dice.u8(0..4) == 0 {
                let follower = dice.usize(0..at_follower.len());
                let place = &mut at_follower[follower];
                *place = dice.usize(*place..states.len());
                let seen = |list| states[*place].get(&list).cloned().unwrap_or_default();
                let reads = (0..3).map(|list| Operation::Read(list, seen(list)));
                history.push(Transaction {
                    access: Access::Follower(follower as u64),
                    // One client reads at each follower, so that its reads are sequential.
                    ..at(now, now, &reads.collect::<Vec<_>>())
                });
                continue;
            }
            let mut state = states[states.len() - 1].clone();
            let outcome = match dice.u8(0..10) {
                0 => Outcome::Failed,
                1 | 2 => Outcome::Unknown,
                _ => Outcome::Committed,
            };
            let mut operations = Vec::new();
            for part in 0..dice.u64(1..4) {
                let list = dice.u64(0..3);
                let values = state.entry(list).or_default();
                if dice.bool() {
                    values.push(number * 10 + part);
                    operations.push(append(list, number * 10 + part));
                } else {
                    operations.push(read(list, values));
                }
            }
            let done = match outcome {
                Outcome::Committed => true,
                Outcome::Failed => false,
                Outcome::Unknown => dice.bool(),
            };
            if done {
                states.push(state);
            }
            history.push(Transaction {
                outcome,
                ..at(began, ended, &operations)
            });
        }
        history
    }

    #[test]
    fn a_database_that_keeps_its_promises_is_never_accused() {
        for seed in 0..300 {
            let history = serial(seed, 60);
            let found = check(&history);
            assert_eq!(found, [], "seed {seed}: {history:#?}");
        }
    }

    /// Removes an acknowledged append from all later reads.
    #[test]
    fn an_acknowledged_append_that_is_gone_is_always_found() {
        let mut tried = 0;
        for seed in 0..100 {
            let mut history = serial(seed, 60);
            let committed = |one: &&Transaction| {
                one.outcome == Outcome::Committed && one.access == Access::Primary
            };
            let Some((gone, list, ended)) = history.iter().filter(committed).find_map(|one| {
                one.appends()
                    .next()
                    .map(|(list, value)| (value, list, one.ended))
            }) else {
                continue;
            };
            for one in &mut history {
                for operation in &mut one.operations {
                    if let Operation::Read(_, values) = operation {
                        values.retain(|value| *value != gone);
                    }
                }
            }
            let misses = |one: &Transaction| {
                one.began > ended
                    && one.outcome == Outcome::Committed
                    && one.access == Access::Primary
                    && one.reads().any(|(there, _)| there == list)
            };
            if history.iter().any(misses) {
                tried += 1;
                assert!(!check(&history).is_empty(), "seed {seed}");
            }
        }
        assert!(tried > 50, "{tried}");
    }

    /// Returns the transactions of the primary in Jepsen's format, the input format of the checker `adya`.
    fn for_adya(history: &[Transaction]) -> String {
        let mut lines = Vec::new();
        for (process, one) in history.iter().enumerate() {
            let kind = match one.outcome {
                Outcome::Committed => "ok",
                Outcome::Failed => "fail",
                Outcome::Unknown => "info",
            };
            let operation = |done: bool| {
                let parts = one.operations.iter().map(|operation| match operation {
                    Operation::Append(list, value) => format!("[\"append\",{list},{value}]"),
                    Operation::Read(list, values) if done => format!("[\"r\",{list},{values:?}]"),
                    Operation::Read(list, _) => format!("[\"r\",{list},null]"),
                });
                parts.collect::<Vec<_>>().join(",")
            };
            let line = |kind: &str, done| {
                let value = operation(done);
                format!("{{\"type\":\"{kind}\",\"process\":{process},\"value\":[{value}]}}")
            };
            // A transaction that ends when another one begins is concurrent with it.
            lines.push((one.began, 0, line("invoke", false)));
            lines.push((one.ended, 1, line(kind, kind == "ok")));
        }
        lines.sort();
        let lines: Vec<_> = lines.into_iter().map(|(_, _, line)| line).collect();
        lines.join("\n")
    }

    fn second_opinion(history: &[Transaction]) -> adya::Report {
        let history = adya::History::from_json(&for_adya(history)).unwrap();
        let options = adya::Opts {
            models: vec!["strict-serializable".to_owned()],
            ..adya::Opts::default()
        };
        adya::check(&history, adya::Workload::ListAppend, &options)
    }

    /// This checker and `adya` agree on valid histories and on histories with errors.
    #[test]
    fn another_checker_finds_the_same_histories_wrong() {
        let (mut good, mut bad) = (0, 0);
        for seed in 0..600 {
            let mut dice = fastrand::Rng::with_seed(seed);
            let mut history = serial(seed, 40);
            history.retain(|one| one.access == Access::Primary);
            for _ in 0..dice.u8(0..3) {
                let at = dice.usize(0..history.len());
                let reads = history[at].operations.iter_mut();
                let reads = reads.filter_map(|operation| match operation {
                    Operation::Read(_, values) if !values.is_empty() => Some(values),
                    _ => None,
                });
                let Some(values) = reads.last() else {
                    continue;
                };
                match dice.u8(0..4) {
                    0 => drop(values.pop()),
                    1 => values.clear(),
                    2 => drop(values.remove(dice.usize(0..values.len()))),
                    _ => values.reverse(),
                }
            }
            let ours = check(&history);
            let theirs = second_opinion(&history);
            match ours.is_empty() {
                true => good += 1,
                false => bad += 1,
            }
            assert_eq!(
                ours.is_empty(),
                theirs.valid == adya::Valid::True,
                "seed {seed}: {ours:?} and {:?}: {history:#?}",
                theirs.anomaly_types
            );
        }
        assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
    }
}
