//! The built `witness`: its commands, its configuration, members and rings of it.

mod a_reload_takes_all_or_nothing;
mod certificates_keep_strangers_out;
mod commands_answer_with_their_exit_codes;
mod configuration_mistakes_are_all_named;
mod configuration_reference_is_in_step;
mod configuration_sources_have_a_precedence;
mod containers_fit_together;
mod demonstration_around_a_mysqld;
mod demonstration_loses_nothing;
mod documented_commands_exist;
mod floods_are_in_nobodys_way;
mod http_keeps_strangers_out;
mod log_is_purged_on_order;
mod log_on_disk_is_read_and_judged;
mod log_parallelism_is_told;
mod log_tells_what_was_trimmed;
mod member_answers_over_http;
mod member_refuses_what_is_not_its_own;
mod members_of_two_versions;
mod operators_change_a_ring;
mod operators_follow_and_wait;
mod operators_repair_a_quorum;
mod orders_find_the_leader;
mod program;
mod the_page_shows_the_ring;
mod the_proxysql_example_says_what_is_so;
