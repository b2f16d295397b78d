//! Whether a member's mysqld could be the primary soon, which is asked before the leadership goes to that member. Pure.

use crate::mysqld::MOST_BEHIND;
use crate::protocol::{Refusal, RefusalKind};
use crate::status::MysqlView;

/// Whether a mysqld could be the primary soon.
pub(crate) fn fitness(name: &str, mysqld: Option<&MysqlView>) -> Result<(), Refusal> {
    let Some(mysqld) = mysqld.filter(|mysqld| mysqld.applies) else {
        return Ok(());
    };
    let unfit = match mysqld.lag_ms {
        _ if !mysqld.following => format!(
            "the mysqld beside `{name}` does not follow the ring: {}",
            mysqld.role
        ),
        Some(lag) if u128::from(lag) > MOST_BEHIND.as_millis() => format!(
            "the mysqld beside `{name}` is {lag} ms behind, and clients would wait for about that long"
        ),
        _ => return Ok(()),
    };
    Err(Refusal::new(
        RefusalKind::Refused,
        unfit,
        "nothing was changed; wait until it follows closely (`witness status`), or add --force",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mysqld_that_is_not_there_soon_is_not_promoted() {
        let following = |lag_ms| MysqlView {
            applies: true,
            following: true,
            lag_ms,
            ..MysqlView::default()
        };
        assert!(fitness("db-2", Some(&following(Some(5_000)))).is_ok());
        assert!(fitness("db-2", Some(&following(None))).is_ok());
        let behind = fitness("db-2", Some(&following(Some(5_001)))).unwrap_err();
        assert!(behind.what.contains("5001 ms behind"), "{}", behind.what);
        let stopped = MysqlView {
            following: false,
            role: "stopped: table d.t is not there".into(),
            ..following(Some(0))
        };
        let refused = fitness("db-2", Some(&stopped)).unwrap_err();
        assert!(
            refused.what.contains("d.t is not there"),
            "{}",
            refused.what
        );
        assert!(refused.advice.contains("--force"));
        // Where nothing is applied, nobody knows, and members without a mysqld have none.
        let alone = MysqlView::default();
        assert!(fitness("db-2", Some(&alone)).is_ok() && fitness("db-2", None).is_ok());
    }
}
