//! Runs over files, and to simulated targets.

mod a_refusal_says_where_and_a_later_run_goes_on;
mod file_sources;
mod log_parallelism;
mod questions_about_tables;
