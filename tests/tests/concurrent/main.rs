//! Tests that tolerate a parallel test: their time limits are tens of seconds, and another load may slow them
//! down.

mod a_cut_off_primary_is_not_read;
mod a_file_that_rots_is_replaced;
mod a_host_with_a_wrong_clock_knows_its_lag;
mod a_killed_leader_is_replaced_immediately;
mod a_log_begins_at_a_later_file;
mod a_mysqld_is_provisioned_again;
mod a_mysqld_that_gets_nothing_is_no_primary;
mod a_prepared_transaction_blocks_no_client;
mod a_replaced_account_is_reported;
mod a_replica_without_the_log_lags;
mod a_ring_is_restored_from_its_archive;
mod a_running_primary_becomes_a_ring;
mod a_statement_about_accounts_waits;
mod a_statement_that_cannot_be_executed_is_replaced;
mod a_stock_replica_follows_through_failovers;
mod a_stopped_apply_reports_its_position;
mod a_target_follows_a_server_and_a_ring;
mod alerts_and_the_dashboard_are_sound;
mod an_applier_and_its_target_are_killed;
mod an_old_server_is_applied_from_and_to;
mod bad_input_is_refused_and_loses_nothing;
mod base_backups_are_taken;
mod consumers_are_served_from_the_archive;
mod consumers_see_only_what_is_committed;
mod events_run_at_the_primary;
mod every_kind_of_statement_is_followed;
mod logs_are_flushed_through_the_ring;
mod mysqlbinlog_reads_every_members_files;
mod no_fault_leaves_a_gap_in_the_archive;
mod other_channels_end_with_the_primary;
mod readers_of_a_target_see_prefixes;
mod readers_stand_before_a_promotion;
mod replica_threads_follow_the_ring;
mod runbook_commands_run;
mod stock_clients_read_a_member;
mod stock_replicas_follow_the_ring;
mod tables_without_transactions_are_named;
mod the_account_has_what_it_needs;
mod the_history_is_the_same_everywhere;
mod the_log_is_archived;
mod the_page_about_the_archive_runs;
mod the_primary_moves;
mod two_servers_have_one_uuid;

use witness_tests::Turns;

/// The number of test clusters that run at the same time.
static SCENES: Turns = Turns::of(3);
