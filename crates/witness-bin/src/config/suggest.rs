//! "Did you mean": the known word nearest to one that nobody knows.

/// The candidate that a person most probably meant by `word`, if one is near enough.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = 0.75;
    candidates
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= near_enough)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, candidate)| candidate)
}

/// The candidates as a sentence lists them.
pub(crate) fn listed<'a>(candidates: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = candidates
        .map(|candidate| format!("`{candidate}`"))
        .collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_nonsense_is_not() {
        let known = ["heartbeat", "lease", "proposals_bytes"];
        assert_eq!(nearest("heartbeet", known.into_iter()), Some("heartbeat"));
        assert_eq!(nearest("hartbeat", known.into_iter()), Some("heartbeat"));
        assert_eq!(nearest("zzz", known.into_iter()), None);
    }
}
