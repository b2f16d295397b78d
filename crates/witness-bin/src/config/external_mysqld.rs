//! The keys of a mysqld in mode `external`, and the rules between them.

use std::path::PathBuf;

use member::settings::ExternalMysqld;

use super::problem::Problems;
use super::values::Values;

const COMMANDS: [&str; 3] = [
    "mysql.start_command",
    "mysql.stop_command",
    "mysql.kill_command",
];

fn is_external(values: &Values) -> bool {
    values.text("mysql.mode").as_deref() == Some("external")
}

/// `None` within where the mode is another one.
pub(crate) fn build(values: &Values) -> Option<Option<ExternalMysqld>> {
    if !is_external(values) {
        return Some(None);
    }
    let pid_file = values.text("mysql.pid_file")?;
    Some(Some(ExternalMysqld {
        start: values.list("mysql.start_command")?,
        stop: values.list("mysql.stop_command")?,
        kill: values.list("mysql.kill_command")?,
        log_bin: values.text("mysql.log_bin")?,
        pid_file: Some(pid_file)
            .filter(|file| !file.is_empty())
            .map(PathBuf::from),
    }))
}

/// Names what is missing in mode `external`.
pub(crate) fn check(values: &Values, problems: &mut Problems) {
    if !is_external(values) {
        return;
    }
    for key in COMMANDS {
        if values.list(key).is_some_and(|command| command.is_empty()) {
            problems.error(
                values.report_at(key),
                key,
                format!("`{key}` is empty, but the member starts and stops mysqld through it"),
                "write the command as a list of words, as in [\"systemctl\", \"start\", \"mysql\"]",
            );
        }
    }
    for (key, what) in [
        ("mysql.datadir", "mysqld's data directory"),
        ("mysql.log_bin", "the value of mysqld's option log_bin"),
    ] {
        if values.text(key).is_some_and(|text| text.is_empty()) {
            problems.error(
                values.report_at(key),
                key,
                format!("`{key}` is missing, but the member looks after mysqld's binlog before each start"),
                format!("name {what}, or set `mysql.mode` to \"attach\""),
            );
        }
    }
}
