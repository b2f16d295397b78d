//! iproute2's program, by which devices and namespaces are made and removed.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::bounded_run;

const LIMIT: Duration = Duration::from_secs(20);

/// Runs `ip` and answers with what it printed.
pub(super) fn ip<S: AsRef<OsStr>>(arguments: &[S]) -> Result<String> {
    let mut command = Command::new("ip");
    command.args(arguments);
    let shown: Vec<_> = arguments
        .iter()
        .map(|argument| argument.as_ref().to_string_lossy())
        .collect();
    let what = format!("ip {}", shown.join(" "));
    bounded_run::run(what.clone(), command, Vec::new(), LIMIT)?.into_text(&what)
}
