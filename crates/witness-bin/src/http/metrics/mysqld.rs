//! Metrics of the mysqld beside the member.

use std::fmt::Error;

use member::status::MemberView;
use prometheus_client::registry::Unit;

use crate::openmetrics::Sheet;

/// Writes them; nothing for a witness.
pub(super) fn write(sheet: &mut Sheet<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let Some(mysql) = &view.mysql else {
        return Ok(());
    };
    sheet.yes(
        "protected",
        "Whether a commit in mysqld waits for the ring, whatever happens",
        mysql.protected,
    )?;
    sheet.yes(
        "ingesting",
        "Whether mysqld's transactions are taken in",
        mysql.ingesting,
    )?;
    sheet.yes(
        "writable",
        "Whether mysqld takes writes of clients",
        mysql.writable,
    )?;
    sheet.gauge(
        "oldest_unacked",
        Some(&Unit::Seconds),
        "Age of the oldest transaction that is not acknowledged",
        mysql.oldest_unacked_seconds.unwrap_or(0.0),
    )?;
    sheet.counter(
        "acked_transactions",
        None,
        "Transactions of mysqld that the ring committed",
        mysql.acknowledged_total,
    )?;
    sheet.counter(
        "acks",
        None,
        "Acknowledgements sent to mysqld; one may stand for many transactions",
        mysql.acks_total,
    )
}
