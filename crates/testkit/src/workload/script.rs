//! How a load is spread over its clients.

use fastrand::Rng;

/// How much is done, by how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Transactions of all clients together.
    pub transactions: u64,
    /// Clients at once.
    pub clients: u32,
    /// What the choices follow from.
    pub seed: u64,
}

/// One client's part.
pub(super) struct Part {
    transactions: std::ops::Range<u64>,
    dice: Rng,
}

impl Load {
    /// The part of one client: transactions that no other has.
    pub(super) fn of(self, client: u32) -> Part {
        let clients = u64::from(self.clients.max(1));
        let at = |client: u64| self.transactions * client / clients;
        let client = u64::from(client);
        Part {
            transactions: at(client)..at(client + 1),
            dice: Rng::with_seed(self.seed ^ (client << 32)),
        }
    }
}

impl Part {
    /// The statements of all its transactions.
    pub(super) fn transactions(mut self, statements: impl Fn(u64, &mut Rng) -> String) -> String {
        self.transactions
            .map(|at| statements(at, &mut self.dice))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transaction_is_one_clients() {
        let load = Load {
            transactions: 10,
            clients: 3,
            seed: 1,
        };
        let parts: Vec<u64> = (0..3)
            .flat_map(|client| load.of(client).transactions)
            .collect();
        assert_eq!(parts, (0..10).collect::<Vec<_>>());
    }
}
