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

/// The setups of each round. Every round has all of them, each starting with another, so that a machine that grows slower or busier
/// during the run favours none.
pub(super) fn rounds(setups: &[Setup], count: usize) -> Vec<Vec<Setup>> {
    (0..count)
        .map(|round| {
            let mut order = setups.to_vec();
            if !order.is_empty() {
                order.rotate_left(round % setups.len());
            }
            order
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
