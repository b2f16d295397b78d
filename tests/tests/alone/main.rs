//! Tests that need the machine alone. They measure times or memory, fill or freeze disks, or could have elections because of a
//! parallel load.

mod a_broken_primary_steps_down;
mod a_primary_is_shut_down_without_a_quorum;
mod a_region_gets_each_payload_once;
mod a_stalled_primary_steps_down;
mod certificates_and_passwords_are_rotated;
mod clients_go_through_haproxy;
mod commits_wait_without_a_quorum;
mod failover_is_paused;
mod hooks_report_the_primary;
mod large_transactions_cause_no_election;
mod member_of_the_primary_killed;
mod witness_killed_under_load;

use witness_tests::Turns;

/// The number of test clusters that run at the same time.
static SCENES: Turns = Turns::of(1);
