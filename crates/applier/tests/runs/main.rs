//! Runs over files, and to simulated targets.

mod file_sources;
mod log_parallelism;
mod questions_about_tables;
mod refusal_and_resumption;
