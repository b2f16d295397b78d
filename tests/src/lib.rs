//! Code that the whole-system tests have in common: writers that record every acknowledgement, and each test's final checks. The
//! tests run real `witness` processes around a real mysqld. Without a mysqld they fail.

mod agreement;
mod applied;
mod pages;
mod replicaset;
mod scene;
mod server_contents;
mod stock_replica;
mod turns;
mod writers;
mod written_rows;

pub use agreement::{assert_nothing_lost_or_doubled, numbers_rise_in_each_file, ring_gtids};
pub use applied::Pair;
pub use pages::{Page, Shell};
pub use replicaset::{replicaset, replicaset_in, replicaset_with};
pub use scene::Scene;
pub use server_contents::{ServerContents, difference, server_contents};
pub use stock_replica::StockReplica;
pub use turns::{Turn, Turns};
pub use writers::{Place, Writers, client_session, connect_to_primary};
pub use written_rows::{Commit, MAKE_ROWS, WrittenRows, make_rows};
