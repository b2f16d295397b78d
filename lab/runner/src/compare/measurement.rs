//! The order of the measurements, and one measurement. The order is pure.

use testkit::mysqld::sysbench::SysbenchReport;

use super::processor_time::CoresUsed;
use super::setup::Setup;

/// One sysbench run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) setup: Setup,
    pub(super) threads: u32,
    pub(super) report: SysbenchReport,
    /// Who used the processor meanwhile, where the system tells.
    pub(super) cores: Option<CoresUsed>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::rounds;

    #[test]
    fn every_round_has_every_setup_and_starts_with_another() {
        let all = Setup::ALL.len();
        let rounds = rounds(&Setup::ALL, all + 1);
        assert_eq!(rounds.len(), all + 1);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort();
            assert_eq!(sorted, Setup::ALL);
        }
        let firsts: Vec<Setup> = rounds.iter().map(|round| round[0]).collect();
        assert_eq!(firsts[..all], Setup::ALL);
        assert_eq!(firsts[all], Setup::ALL[0]);
    }
}
