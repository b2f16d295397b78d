//! What the whole-system tests share: writers that remember every acknowledgement, and the questions that each test asks
//! at its end. The tests run real `witness` processes around a real mysqld; one that finds no mysqld fails.

mod acked_writers;
mod agreement;
mod applied;
mod client_writers;
mod replicaset;
mod scene;
mod server_contents;
mod stock_replica;
mod turns;
mod written_rows;

pub use acked_writers::AckedWriters;
pub use agreement::{assert_nothing_lost_or_doubled, ring_gtids};
pub use applied::Pair;
pub use client_writers::ClientWriters;
pub use replicaset::{CLIENT, CLIENT_PASSWORD, Replicaset, client_session};
pub use scene::Scene;
pub use server_contents::{ServerContents, difference, server_contents};
pub use stock_replica::StockReplica;
pub use turns::{Turn, Turns};
pub use written_rows::{Commit, WrittenRows};
