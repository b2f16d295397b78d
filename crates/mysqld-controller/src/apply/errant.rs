//! Transactions that a server has and the ring has not committed: nobody may follow with them, or lead.

use binlog_format::gtid::GtidSet;

/// What a server has beyond the ring's committed log.
pub(super) fn errant(executed: &GtidSet, committed: &GtidSet) -> GtidSet {
    executed.difference(committed)
}

/// What to do about them, in words.
pub(super) fn advice(errant: &GtidSet) -> String {
    const SHOWN: usize = 300;
    let mut text = errant.to_string();
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    format!(
        "mysqld has {} transactions that the ring has not committed (errant): {text}. Clients may have been told that they \
         succeeded. Inspect them with mysqlbinlog, then run `witness reprovision MEMBER --from`",
        errant.count()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_ring_lacks_is_errant() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |text: &str| format!("{UUID}:{text}").parse::<GtidSet>().unwrap();
        assert!(errant(&set("1-5"), &set("1-9")).is_empty());
        let found = errant(&set("1-12"), &set("1-9"));
        assert_eq!(found, set("10-12"));
        assert!(advice(&found).contains(":10-12") && advice(&found).contains("3 transactions"));
    }
}
