//! Changes that a server's own replica threads leave out, although their GTIDs count as executed: tables and
//! schemas named by filters, and rows whose errors are skipped.

use mysql_link::{Connection, LinkError, Row};

/// Options that skip rows which cannot be applied, or show transactions out of the log's order, in both generations of names.
const LENIENCE: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('replica_skip_errors', 'slave_skip_errors', \
     'replica_exec_mode', 'slave_exec_mode', 'replica_preserve_commit_order', 'slave_preserve_commit_order', 'binlog_order_commits')";
/// The server's filters, which every channel begins with. An emptied one is listed with an empty rule.
const FILTERS: &str = "SELECT filter_name, filter_rule FROM performance_schema.replication_applier_global_filters \
     WHERE filter_rule <> ''";
/// The columns of `SHOW REPLICA STATUS` with a channel's filters, available without performance_schema as well.
const OF_A_CHANNEL: [&str; 7] = [
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Replicate_Rewrite_DB",
];

/// How rows that cannot be applied are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lenience {
    /// The variable of the skipped errors, and its value; none by default. A change needs a restart.
    pub skips: Option<(String, String)>,
    /// The variable of the mode, and its value, where that is not STRICT.
    pub mode: Option<(String, String)>,
    /// Variables that are OFF, without which readers see a later transaction and not yet an earlier one.
    pub unordered: Vec<String>,
}

/// How the server skips rows that cannot be applied.
///
/// # Errors
/// When the connection fails.
pub async fn lenience(connection: &mut Connection) -> Result<Lenience, LinkError> {
    let variables = connection.query(LENIENCE).await?;
    let pair = |row: &Row| Some((row.text_at(0)?.to_lowercase(), row.text_at(1)?.to_owned()));
    Ok(judged(variables.rows.iter().filter_map(pair)))
}

/// Pure. The names of a newer server come first.
fn judged(variables: impl IntoIterator<Item = (String, String)>) -> Lenience {
    let mut all: Vec<_> = variables.into_iter().collect();
    all.sort();
    let of = |end: &str, harmless: &str| {
        let found = all.iter().find(|(name, value)| {
            name.ends_with(end) && !value.is_empty() && !value.eq_ignore_ascii_case(harmless)
        });
        found.cloned()
    };
    Lenience {
        skips: of("_skip_errors", "OFF"),
        mode: of("_exec_mode", "STRICT"),
        unordered: ["_preserve_commit_order", "binlog_order_commits"]
            .into_iter()
            .filter_map(|end| of(end, "ON").map(|(name, _)| name))
            .collect(),
    }
}

/// The filters of a channel, from a row of `SHOW REPLICA STATUS`.
pub fn filters_of_channel(row: &Row) -> impl Iterator<Item = String> + '_ {
    let columns = OF_A_CHANNEL.into_iter();
    columns.filter_map(|column| named(column, row.text(column)?))
}

/// The filters that every channel of the server begins with.
///
/// # Errors
/// When the connection fails, or the account lacks the privilege.
pub(crate) async fn filters_of_server(
    connection: &mut Connection,
) -> Result<Vec<String>, LinkError> {
    let filters = connection.query(FILTERS).await?;
    let rows = filters.rows.iter();
    let filters = rows.filter_map(|row| named(row.text_at(0)?, row.text_at(1)?));
    Ok(filters.collect())
}

/// As the server's option that sets it.
pub(crate) fn named(filter: &str, rule: &str) -> Option<String> {
    let name = filter.to_lowercase().replace('_', "-");
    (!rule.is_empty()).then(|| format!("{name}={rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_passed_over_by_what_both_generations_of_servers_name() {
        let said = |variables: &[(&str, &str)]| {
            let pairs = variables.iter();
            judged(pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
        };
        let some = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        let strict = [
            ("slave_skip_errors", "OFF"),
            ("slave_preserve_commit_order", "ON"),
            ("binlog_order_commits", "ON"),
            ("slave_exec_mode", "STRICT"),
            ("replica_skip_errors", "OFF"),
            ("replica_exec_mode", "STRICT"),
        ];
        assert_eq!(said(&strict), Lenience::default());
        assert_eq!(said(&[]), Lenience::default());
        let new = said(&[
            ("slave_exec_mode", "IDEMPOTENT"),
            ("replica_exec_mode", "IDEMPOTENT"),
        ]);
        assert_eq!(new.mode, some("replica_exec_mode", "IDEMPOTENT"));
        let any_order = said(&[
            ("slave_preserve_commit_order", "OFF"),
            ("replica_preserve_commit_order", "OFF"),
            ("binlog_order_commits", "OFF"),
        ]);
        assert_eq!(
            any_order.unordered,
            ["replica_preserve_commit_order", "binlog_order_commits"]
        );
        let old = said(&[("slave_skip_errors", "1032,1062")]);
        assert_eq!(old.skips, some("slave_skip_errors", "1032,1062"));
    }

    #[test]
    fn a_filter_is_called_by_its_option() {
        assert_eq!(
            named("Replicate_Wild_Ignore_Table", "shop.%").as_deref(),
            Some("replicate-wild-ignore-table=shop.%")
        );
        // CHANGE REPLICATION FILTER … = () has left it.
        assert_eq!(named("REPLICATE_DO_DB", ""), None);
    }
}
