//! How the reading back of a member's log is getting on, in one line, also when all is well.

use member::status::ScrubView;

use super::span::span;

/// The line; none while there is no closed file.
pub(super) fn scrub_line(scrub: &ScrubView, now: u64) -> Option<String> {
    if scrub.closed_bytes == 0 {
        return None;
    }
    let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let last = scrub.completed_at.map(|at| {
        let ago = span(now.saturating_sub(at) as f64);
        format!("all of its closed files were read back last {ago} ago")
    });
    let mut parts =
        vec![last.unwrap_or_else(|| "its closed files were never all read back yet".to_owned())];
    match scrub.bytes_per_second {
        Some(rate) if scrub.turn_bytes > 0 => parts.push(format!(
            "{} of {} in this pass, {} a second at most",
            size(scrub.turn_bytes),
            size(scrub.closed_bytes),
            size(rate)
        )),
        Some(_) => {}
        None => parts.push("`log.scrub_rate` is 0, so that none are".to_owned()),
    }
    if scrub.unverified_bytes > 0 {
        parts.push(format!(
            "{} not since they were written",
            size(scrub.unverified_bytes)
        ));
    }
    if scrub.damaged_total > 0 {
        parts.push(format!(
            "{} found damaged and {} replaced since its start",
            scrub.damaged_total, scrub.repaired_total
        ));
    }
    Some(format!("scrub: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pass_the_present_one_and_the_rate_are_told() {
        const MIB: u64 = 1 << 20;
        let scrub = ScrubView {
            closed_bytes: 40 * MIB,
            bytes_per_second: Some(8 * MIB),
            ..ScrubView::default()
        };
        let table = [
            (ScrubView::default(), None),
            (
                ScrubView {
                    unverified_bytes: 40 * MIB,
                    ..scrub
                },
                Some(
                    "scrub: its closed files were never all read back yet; 40.0 MiB not since they were written",
                ),
            ),
            (
                ScrubView {
                    completed_at: Some(1_000),
                    ..scrub
                },
                Some("scrub: all of its closed files were read back last 1h01m ago"),
            ),
            (
                ScrubView {
                    completed_at: Some(1_000),
                    turn_bytes: 10 * MIB,
                    damaged_total: 2,
                    repaired_total: 1,
                    ..scrub
                },
                Some(
                    "scrub: all of its closed files were read back last 1h01m ago; 10.0 MiB of 40.0 MiB in this pass, 8.0 MiB a \
                     second at most; 2 found damaged and 1 replaced since its start",
                ),
            ),
            (
                ScrubView {
                    bytes_per_second: None,
                    ..scrub
                },
                Some(
                    "scrub: its closed files were never all read back yet; `log.scrub_rate` is 0, so that none are",
                ),
            ),
        ];
        for (scrub, expected) in table {
            assert_eq!(scrub_line(&scrub, 4_660).as_deref(), expected);
        }
    }
}
