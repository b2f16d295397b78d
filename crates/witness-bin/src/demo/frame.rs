//! The picture that a demonstration draws again and again: what the clients see, and the members.

use std::time::Duration;

use member::status::MemberView;
use raft_types::OpId;

use super::scoreboard::Window;
use crate::terminal::Table;

/// Without a commit for so long, commits wait.
const WAITING: Duration = Duration::from_millis(300);

/// One picture: lines for a terminal, and the first of them alone for elsewhere.
pub(crate) struct Frame {
    pub(crate) lines: Vec<String>,
    pub(crate) brief: String,
}

impl Frame {
    /// The picture at this moment of a demonstration; a member without a view is down.
    pub(crate) fn new(
        elapsed: Duration,
        window: &Window,
        members: &[(String, Option<MemberView>)],
    ) -> Self {
        let mut brief = format!(
            "{:6.1} s  {:>7} commits  {:>6.0}/s  p50 {:>7.2} ms  p99 {:>7.2} ms",
            elapsed.as_secs_f64(),
            window.total,
            window.per_second,
            window.p50.as_secs_f64() * 1e3,
            window.p99.as_secs_f64() * 1e3,
        );
        if window.total > 0 && window.silent_for > WAITING {
            let silent = window.silent_for.as_secs_f64();
            brief.push_str(&format!("   commits wait since {silent:.1} s"));
        }
        let mut lines = vec![String::new(), brief.clone()];
        lines.extend(table(members).lines());
        Self { lines, brief }
    }
}

fn table(members: &[(String, Option<MemberView>)]) -> Table {
    let mut table = Table::new(&[
        "Member",
        "Role",
        "Term",
        "Log_end",
        "Committed",
        "File",
        "File_size",
    ]);
    let op_id = |op_id: Option<OpId>| op_id.map_or("-".to_owned(), |op_id| op_id.to_string());
    for (name, view) in members {
        let mut cells = vec![name.clone()];
        match view {
            None => {
                cells.push("down".into());
                cells.extend(std::iter::repeat_n("-".to_owned(), 5));
            }
            Some(view) => cells.extend([
                view.role.to_string(),
                view.term.to_string(),
                op_id(view.log_end),
                op_id(view.committed),
                view.log.file.clone(),
                view.log.file_bytes.to_string(),
            ]),
        }
        table.row(cells);
    }
    table
}
