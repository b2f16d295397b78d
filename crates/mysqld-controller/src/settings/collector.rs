//! Findings while they are collected, and the one question that most of them ask.

use crate::settings::finding::{Check, Finding, Fix, Severity};
use crate::settings::observed::{Observed, says_on};

/// Findings while they are collected.
pub(super) struct Findings<'a> {
    pub(super) observed: &'a Observed,
    pub(super) list: Vec<Finding>,
}

impl Findings<'_> {
    pub(super) fn add(
        &mut self,
        check: Check,
        severity: Severity,
        found: impl Into<String>,
        why: &str,
        fix: Fix,
    ) {
        self.list.push(Finding {
            check,
            severity,
            found: found.into(),
            why: why.to_owned(),
            fix,
        });
    }

    /// A variable that must have one value. One that the server does not have (any more) is not judged.
    pub(super) fn expect(
        &mut self,
        check: Check,
        severity: Severity,
        name: &str,
        expected: &str,
        why: &str,
        fix: Fix,
    ) {
        if let Some(value) = self.observed.variable(name)
            && !same_value(value, expected)
        {
            self.add(
                check,
                severity,
                format!("{name} is {value}, not {expected}"),
                why,
                fix,
            );
        }
    }
}

fn same_value(found: &str, expected: &str) -> bool {
    found.eq_ignore_ascii_case(expected) || (expected == "ON" && says_on(found))
}
