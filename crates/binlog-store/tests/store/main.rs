//! Tests of the log on disks that lose power, fill up, fail and corrupt data, and on real disks.

mod begins_at_a_later_file;
mod committed_part;
mod crash_points;
mod cut_back;
mod damaged_bytes;
mod disk_faults;
mod engine_conformance;
mod full_disk;
mod grouped_writes;
mod histories;
mod large_payloads;
mod log_directory;
mod purged_beyond_the_stored_commit;
mod purged_files_go;
mod reading;
mod recovery_rows;
mod same_bytes;
mod scrubbed;
mod unsynced_runs;
mod workload;
