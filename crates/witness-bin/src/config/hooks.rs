//! `[hooks]`: commands that the member runs when the primary changes.

use std::time::Duration;

use super::values::Values;

/// `[hooks]`; an empty command is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// Run when the mysqld beside this member has become the primary.
    pub on_primary: Vec<String>,
    /// Run when it is not the primary any more.
    pub on_demoted: Vec<String>,
    /// Run by every member when the primary is beside another member than before.
    pub on_primary_changed: Vec<String>,
    /// How long a command may take.
    pub timeout: Duration,
}

impl HookSettings {
    /// Whether there is any command.
    pub fn any(&self) -> bool {
        [&self.on_primary, &self.on_demoted, &self.on_primary_changed]
            .iter()
            .any(|command| !command.is_empty())
    }
}

pub(super) fn build(values: &Values) -> Option<HookSettings> {
    Some(HookSettings {
        on_primary: values.list("hooks.on_primary")?,
        on_demoted: values.list("hooks.on_demoted")?,
        on_primary_changed: values.list("hooks.on_primary_changed")?,
        timeout: values.duration("hooks.timeout")?,
    })
}
