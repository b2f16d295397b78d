//! What the whole-system tests share: writers that remember every acknowledgement, and the questions that each test asks
//! at its end. The tests run real `witness` processes around a real mysqld; one that finds no mysqld fails.

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
