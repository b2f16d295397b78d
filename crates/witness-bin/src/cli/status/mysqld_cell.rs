//! What the mysqld beside a member is, in few words.

use member::status::MysqlView;

use super::span::span;

/// From which lag on it is said.
const LAG_MS: u64 = 1_000;
/// From how many transactions on it is said that they are lacking.
const LACKS: u64 = 100;

/// The cell of the table.
pub(super) fn cell(mysql: &MysqlView) -> String {
    let of_a_role = || {
        match mysql.role.split(':').next().unwrap_or_default() {
            _ if !mysql.applies => "closed",
            "primary" => "to be opened",
            "catching up" => &mysql.role,
            other => other,
        }
        .to_owned()
    };
    let lag = mysql.lag_ms.filter(|lag| *lag >= LAG_MS);
    match (mysql.state.as_str(), mysql.writable, mysql.following, lag) {
        ("running", true, ..) if mysql.protected => "primary".to_owned(),
        ("running", true, ..) => "primary, not protected".to_owned(),
        ("running", false, true, None) => match lacks(mysql) {
            Some(lacks) => format!("following, {lacks} transactions behind"),
            None => "following".to_owned(),
        },
        ("running", false, true, Some(lag)) => {
            format!("following, {} behind", span(lag as f64 / 1e3))
        }
        ("running", false, false, _) => of_a_role(),
        (state, ..) => state.to_owned(),
    }
}

/// Committed transactions that it has not executed, where that would keep clients waiting behind a promotion.
fn lacks(mysql: &MysqlView) -> Option<u64> {
    let behind = mysql.promotion.as_ref()?.behind?;
    Some(behind).filter(|behind| *behind >= LACKS)
}

/// What it waits for, where it does.
pub(super) fn wait(mysql: &MysqlView) -> Option<String> {
    let what = mysql.role.strip_prefix("waiting: ")?;
    Some(format!("its mysqld waits: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::status::sample::database_leader;

    #[test]
    fn a_mysqld_in_few_words() {
        let primary = database_leader().mysql.unwrap();
        let with_role = |role: &str| MysqlView {
            writable: false,
            protected: false,
            role: role.to_owned(),
            ..primary.clone()
        };
        let following = |lag_ms| MysqlView {
            following: true,
            lag_ms,
            ..with_role("following")
        };
        let lacking = |behind| MysqlView {
            promotion: Some(consensus::DatabaseState {
                behind: Some(behind),
                ..consensus::DatabaseState::default()
            }),
            ..following(None)
        };
        let starting = MysqlView {
            state: "starting".to_owned(),
            ..with_role("unknown")
        };
        let alone = MysqlView {
            applies: false,
            ..with_role("nothing is applied to it")
        };
        let open = MysqlView {
            protected: false,
            ..primary.clone()
        };
        for (mysql, expected) in [
            (primary.clone(), "primary"),
            (open, "primary, not protected"),
            (with_role("primary"), "to be opened"),
            (following(None), "following"),
            (following(Some(999)), "following"),
            (lacking(99), "following"),
            (lacking(1_663), "following, 1663 transactions behind"),
            (following(Some(75_000)), "following, 1m15s behind"),
            (starting, "starting"),
            (
                with_role("catching up: 3 transactions behind, then the primary"),
                "catching up: 3 transactions behind, then the primary",
            ),
            (with_role("waiting: nobody leads"), "waiting"),
            (with_role("stopped: it has errant transactions"), "stopped"),
            (alone, "closed"),
        ] {
            assert_eq!(cell(&mysql), expected, "{mysql:?}");
        }
        let waiting = with_role("waiting: nobody leads");
        assert_eq!(wait(&waiting).unwrap(), "its mysqld waits: nobody leads");
        assert_eq!(wait(&primary), None);
    }
}
