//! The size of a majority. The engine counts what is committed: see [`crate::quorum`].

/// How many of `voters` make a majority: any two majorities of the same voters share one.
pub const fn majority_of(voters: usize) -> usize {
    voters / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::majority_of;

    #[test]
    fn two_majorities_always_share_a_voter() {
        for voters in 1..100 {
            let majority = majority_of(voters);
            assert!(2 * majority > voters && majority <= voters, "{voters}");
            assert!(2 * (majority - 1) <= voters, "{voters}");
        }
    }
}
