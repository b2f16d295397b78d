//! The session that a statement of the log needs, as assignments. Pure. What a server writes into its log and `mysqlbinlog`
//! makes of it was the model; what is not written keeps the session's own value.

use std::fmt::Write;

use binlog_format::event::{EventFlags, EventHeader};
use binlog_format::events::{IntVar, IntVarKind, Query, Rand, SessionContext};

use super::quoting::{append_hex, append_name};

/// The collation that text literals and tables had by default before 8.0 gave it a name of its own: utf8mb4_general_ci.
const OLD_DEFAULT_COLLATION: u16 = 45;

/// The assignments that a statement needs, as one SET statement; without [`before_all`], which is refused inside of a
/// transaction.
pub(super) fn context_statement(
    header: &EventHeader,
    query: &Query<'_>,
    context: &SessionContext<'_>,
) -> Vec<u8> {
    let mut set = Assignments::default();
    let microseconds = context.microseconds.unwrap_or(0);
    set.put(
        "timestamp",
        format_args!("{}.{microseconds:06}", header.timestamp),
    );
    if header.flags.contains(EventFlags::THREAD_SPECIFIC) {
        set.put("pseudo_thread_id", query.thread_id);
    }
    if let Some(options) = context.options {
        set.put("foreign_key_checks", u8::from(options.foreign_key_checks()));
        set.put("unique_checks", u8::from(options.unique_checks()));
        set.put("sql_auto_is_null", u8::from(options.sql_auto_is_null()));
    }
    if let Some(sql_mode) = context.sql_mode {
        set.put("sql_mode", sql_mode);
    }
    // Not written when they have these values.
    let (increment, offset) = context
        .auto_increment
        .map_or((1, 1), |auto| (auto.increment, auto.offset));
    set.put("auto_increment_increment", increment);
    set.put("auto_increment_offset", offset);
    set.put("lc_time_names", context.lc_time_names.unwrap_or(0));
    if let Some(zone) = context.time_zone {
        set.name("time_zone");
        append_hex_text(zone, &mut set.text);
    }
    if let Some(required) = context.sql_require_primary_key {
        set.put("sql_require_primary_key", u8::from(required));
    }
    if let Some(encryption) = context.default_table_encryption {
        set.put("default_table_encryption", u8::from(encryption));
    }
    if let Some(triggers) = context.enable_cascade_triggers {
        set.put("enable_cascade_triggers", u8::from(triggers));
    }
    let utf8mb4 = context.default_collation_for_utf8mb4;
    set.put(
        "default_collation_for_utf8mb4",
        utf8mb4.unwrap_or(OLD_DEFAULT_COLLATION),
    );
    if let Some(number) = context.collation_database {
        set.put("collation_database", number);
    }
    // Last: from here on the session reads its text as the statement is written.
    if let Some(sets) = context.character_sets {
        set.put("collation_connection", sets.connection);
        set.put("collation_server", sets.server);
        set.put("character_set_client", sets.client);
    }
    set.text
}

/// What has to be assigned before a barrier's transaction begins, since the server refuses it inside of one (1766):
/// `explicit_defaults_for_timestamp`, which statements bring that make `TIMESTAMP` columns. The first value serves all of
/// the barrier's statements: the source's session could not change it within the transaction either.
pub(super) fn before_all<'a>(
    mut contexts: impl Iterator<Item = SessionContext<'a>>,
) -> Option<Vec<u8>> {
    let explicit = contexts.find_map(|context| context.explicit_defaults_for_timestamp)?;
    let mut set = Assignments::default();
    set.put("explicit_defaults_for_timestamp", u8::from(explicit));
    Some(set.text)
}

/// The statement that makes a schema the default one; `None` when the statement needs none.
pub(super) fn use_statement(header: &EventHeader, query: &Query<'_>) -> Option<Vec<u8>> {
    if query.schema.is_empty() || header.flags.contains(EventFlags::SUPPRESS_USE) {
        return None;
    }
    let mut out = b"USE ".to_vec();
    append_name(&query.schema, &mut out);
    Some(out)
}

/// The statement that gives an INTVAR event's number to the next one.
pub(super) fn int_var_statement(number: &IntVar) -> Vec<u8> {
    let name = match number.kind {
        IntVarKind::LastInsertId => "last_insert_id",
        IntVarKind::InsertId => "insert_id",
    };
    format!("SET {name}={}", number.value).into_bytes()
}

/// The statement that gives a RAND event's seeds to the next one.
pub(super) fn rand_statement(rand: &Rand) -> Vec<u8> {
    format!(
        "SET rand_seed1={},rand_seed2={}",
        rand.first_seed, rand.second_seed
    )
    .into_bytes()
}

fn append_hex_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"_utf8mb4 ");
    append_hex(text, out);
}

/// A SET statement that grows.
#[derive(Default)]
struct Assignments {
    text: Vec<u8>,
}

impl Assignments {
    fn name(&mut self, name: &str) {
        let before = if self.text.is_empty() { "SET " } else { "," };
        self.text.extend_from_slice(before.as_bytes());
        self.text.extend_from_slice(name.as_bytes());
        self.text.push(b'=');
    }

    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{value}");
        self.text.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::event::EventType;
    use binlog_format::events::{AutoIncrement, CharacterSets, SessionOptions};

    use super::*;

    fn header(flags: EventFlags) -> EventHeader {
        EventHeader {
            timestamp: 1_700_000_000,
            event_type: EventType::Query,
            server_id: 1,
            event_size: 19,
            log_pos: 0,
            flags,
        }
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn everything_that_was_logged_is_assigned_and_nothing_else() {
        let query = Query {
            thread_id: 9,
            schema: b"a`b"[..].into(),
            ..Query::default()
        };
        let bare = context_statement(
            &header(EventFlags::NONE),
            &query,
            &SessionContext::default(),
        );
        assert_eq!(
            text(bare),
            "SET timestamp=1700000000.000000,auto_increment_increment=1,auto_increment_offset=1,lc_time_names=0,\
             default_collation_for_utf8mb4=45"
        );
        let context = SessionContext {
            options: Some(SessionOptions(1 << 26 | 1 << 14)),
            sql_mode: Some(0x20_0000),
            auto_increment: Some(AutoIncrement {
                increment: 10,
                offset: 3,
            }),
            character_sets: Some(CharacterSets {
                client: 8,
                connection: 255,
                server: 45,
            }),
            time_zone: Some(b"+02:00"),
            lc_time_names: Some(4),
            collation_database: Some(63),
            microseconds: Some(1_234),
            explicit_defaults_for_timestamp: Some(false),
            default_collation_for_utf8mb4: Some(255),
            sql_require_primary_key: Some(true),
            default_table_encryption: Some(false),
            enable_cascade_triggers: Some(true),
            ..SessionContext::default()
        };
        let all = context_statement(&header(EventFlags::THREAD_SPECIFIC), &query, &context);
        assert_eq!(
            text(all),
            "SET timestamp=1700000000.001234,pseudo_thread_id=9,foreign_key_checks=0,unique_checks=1,sql_auto_is_null=1,\
             sql_mode=2097152,auto_increment_increment=10,auto_increment_offset=3,lc_time_names=4,\
             time_zone=_utf8mb4 X'2b30323a3030',sql_require_primary_key=1,default_table_encryption=0,enable_cascade_triggers=1,default_collation_for_utf8mb4=255,collation_database=63,\
             collation_connection=255,collation_server=45,character_set_client=8"
        );
    }

    #[test]
    fn what_no_transaction_may_change_is_assigned_before_it() {
        let with = |explicit_defaults_for_timestamp| SessionContext {
            explicit_defaults_for_timestamp,
            ..SessionContext::default()
        };
        let before = |all: &[Option<bool>]| before_all(all.iter().copied().map(with)).map(text);
        assert_eq!(before(&[None, None]), None);
        assert_eq!(
            before(&[None, Some(false), None]).as_deref(),
            Some("SET explicit_defaults_for_timestamp=0")
        );
        assert_eq!(
            before(&[Some(true)]).as_deref(),
            Some("SET explicit_defaults_for_timestamp=1")
        );
    }

    #[test]
    fn the_default_schema_is_used_unless_the_statement_needs_none() {
        let query = Query {
            schema: b"a`b"[..].into(),
            ..Query::default()
        };
        let used = use_statement(&header(EventFlags::NONE), &query).map(text);
        assert_eq!(used.as_deref(), Some("USE `a``b`"));
        assert_eq!(
            use_statement(&header(EventFlags::SUPPRESS_USE), &query),
            None
        );
        assert_eq!(
            use_statement(&header(EventFlags::NONE), &Query::default()),
            None
        );
    }

    #[test]
    fn numbers_for_the_next_statement() {
        let number = |kind| text(int_var_statement(&IntVar { kind, value: 7 }));
        assert_eq!(number(IntVarKind::InsertId), "SET insert_id=7");
        assert_eq!(number(IntVarKind::LastInsertId), "SET last_insert_id=7");
        let rand = Rand {
            first_seed: 1,
            second_seed: 2,
        };
        assert_eq!(text(rand_statement(&rand)), "SET rand_seed1=1,rand_seed2=2");
    }
}
