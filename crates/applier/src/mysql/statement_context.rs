//! Returns the session settings that a statement of the log needs, as assignments. Pure. Modelled on the server's log format and on
//! `mysqlbinlog`. A variable that is not logged keeps the session's value.

use binlog_format::event::{EventFlags, EventHeader};
use binlog_format::events::{
    IntVar, IntVarKind, Query, Rand, SessionContext, UserVar, UserVarType, UserVarValue,
};

use crate::transaction::RowContext;

/// The default collation of utf8mb4 before 8.0: utf8mb4_general_ci.
const OLD_DEFAULT_COLLATION: u16 = 45;

/// Returns the assignments that a statement needs, as one SET statement. Those of [`before_all`] are not included, since the server
/// refuses them within a transaction.
pub(super) fn context_statement(
    header: &EventHeader,
    query: &Query<'_>,
    context: &SessionContext<'_>,
) -> Vec<u8> {
    let mut set = Assignments::default();
    let microseconds = context.microseconds.unwrap_or(0);
    let timestamp = format!("{}.{microseconds:06}", header.timestamp);
    set.put("timestamp", timestamp);
    if header.flags.contains(EventFlags::THREAD_SPECIFIC) {
        set.put("pseudo_thread_id", query.thread_id);
    }
    if let Some(options) = context.options {
        set.put("foreign_key_checks", u8::from(options.foreign_key_checks()));
        set.put("unique_checks", u8::from(options.unique_checks()));
        set.put("sql_auto_is_null", u8::from(options.sql_auto_is_null()));
    }
    set.put_logged("sql_mode", context.sql_mode);
    let auto = context.auto_increment;
    // The value 1 is not logged.
    let (increment, offset) = auto.map_or((1, 1), |auto| (auto.increment, auto.offset));
    set.put("auto_increment_increment", increment);
    set.put("auto_increment_offset", offset);
    set.put("lc_time_names", context.lc_time_names.unwrap_or(0));
    set.put_logged("time_zone", context.time_zone.map(text_literal));
    for (name, flag) in [
        ("sql_require_primary_key", context.sql_require_primary_key),
        ("default_table_encryption", context.default_table_encryption),
        ("enable_cascade_triggers", context.enable_cascade_triggers),
    ] {
        set.put_logged(name, flag.map(u8::from));
    }
    let utf8mb4 = context.default_collation_for_utf8mb4;
    let utf8mb4 = utf8mb4.unwrap_or(OLD_DEFAULT_COLLATION);
    set.put("default_collation_for_utf8mb4", utf8mb4);
    set.put_logged("collation_database", context.collation_database);
    // These are last: the session parses later text in the statement's character set.
    if let Some(sets) = context.character_sets {
        set.put("collation_connection", sets.connection);
        set.put("collation_server", sets.server);
        set.put("character_set_client", sets.client);
    }
    set.0.into_bytes()
}

/// Returns the assignments that rows need, as one SET statement.
pub(super) fn rows_statement(context: &RowContext) -> Vec<u8> {
    let mut set = Assignments::default();
    set.put("sql_mode", context.sql_mode);
    set.put("lc_time_names", context.lc_time_names);
    let zone = context.time_zone.as_deref().map(text_literal);
    set.put("time_zone", zone.as_deref().unwrap_or("DEFAULT"));
    set.0.into_bytes()
}

/// Returns the assignment that must precede a barrier's transaction, since the server refuses it within one (error 1766):
/// `explicit_defaults_for_timestamp`, which is logged with statements that create `TIMESTAMP` columns. The first value is correct
/// for all of the barrier's statements: the source's session could not change it within the transaction either.
pub(super) fn before_all<'a>(
    mut contexts: impl Iterator<Item = SessionContext<'a>>,
) -> Option<Vec<u8>> {
    let explicit = contexts.find_map(|context| context.explicit_defaults_for_timestamp)?;
    let mut set = Assignments::default();
    set.put("explicit_defaults_for_timestamp", u8::from(explicit));
    Some(set.0.into_bytes())
}

/// Returns the statement that sets the default schema; `None` if the log's statement needs no default schema.
pub(super) fn use_statement(header: &EventHeader, query: &Query<'_>) -> Option<Vec<u8>> {
    if query.schema.is_empty() || header.flags.contains(EventFlags::SUPPRESS_USE) {
        return None;
    }
    let mut out = b"USE ".to_vec();
    append_name(&query.schema, &mut out);
    Some(out)
}

/// Returns the statement that sets the number of an INTVAR event for the next statement.
pub(super) fn int_var_statement(number: &IntVar) -> Vec<u8> {
    let name = match number.kind {
        IntVarKind::LastInsertId => "last_insert_id",
        IntVarKind::InsertId => "insert_id",
    };
    format!("SET {name}={}", number.value).into_bytes()
}

/// Returns the statement that sets the seeds of a RAND event for the next statement.
pub(super) fn rand_statement(rand: &Rand) -> Vec<u8> {
    let (first, second) = (rand.first_seed, rand.second_seed);
    format!("SET rand_seed1={first},rand_seed2={second}").into_bytes()
}

/// A SET statement under construction.
#[derive(Default)]
struct Assignments(String);

impl Assignments {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        let before = if self.0.is_empty() { "SET " } else { "," };
        self.0 += &format!("{before}{name}={value}");
    }

    fn put_logged(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }
}

// Literals of user variables for a statement of the log. Pure.

/// Appends the statement that sets a user variable. Returns `None` if its value cannot be read. `collation` has the names of the
/// character set and the collation of a text.
pub(super) fn append_user_variable(
    variable: &UserVar<'_>,
    collation: Option<(&str, &str)>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let value = match &variable.value {
        None => "NULL".to_owned(),
        Some(value) => value_literal(value, collation)?,
    };
    out.extend_from_slice(b"SET @");
    append_name(&variable.name, out);
    out.extend_from_slice(format!(":={value}").as_bytes());
    Some(())
}

fn value_literal(value: &UserVarValue<'_>, collation: Option<(&str, &str)>) -> Option<String> {
    let bytes = value.bytes.as_ref();
    Some(match value.value_type {
        UserVarType::String => {
            let (character_set, collation) = collation?;
            let text = hex_literal(bytes);
            format!("_{character_set} {text} COLLATE {collation}")
        }
        UserVarType::Real => {
            let number = f64::from_le_bytes(bytes.try_into().ok()?);
            // Without an exponent, the server would parse the number as a DECIMAL.
            number.is_finite().then(|| format!("{number:e}"))?
        }
        UserVarType::Int => {
            let number = i64::from_le_bytes(bytes.try_into().ok()?);
            match value.unsigned {
                // The server would parse a literal as a signed number, unless it needs all 64 bits.
                true => format!("CAST({} AS UNSIGNED)", number as u64),
                false => number.to_string(),
            }
        }
        UserVarType::Decimal => {
            let [precision, scale, digits @ ..] = bytes else {
                return None;
            };
            let text = decimal_text(usize::from(*precision), usize::from(*scale), digits)?;
            text + if *scale == 0 { "." } else { "" }
        }
    })
}

// Converts a DECIMAL from the binlog's format to text. Pure.
//
// Digits are stored in groups of nine, four bytes each, big-endian. An incomplete group, at the outer end of the integer or the
// fractional part, needs fewer bytes. The highest bit is inverted; in a negative number all bits are inverted.

/// The bytes of a group, by its number of digits.
const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const GROUP: usize = 9;

/// Returns the text of a value of `precision` digits, `scale` of them after the point; `None` if the bytes are no such value.
pub(super) fn decimal_text(precision: usize, scale: usize, bytes: &[u8]) -> Option<String> {
    let whole = precision.checked_sub(scale)?;
    if precision > 65 || precision == 0 {
        return None;
    }
    let negative = bytes.first()? & 0x80 == 0;
    let flip = if negative { 0xff } else { 0 };
    let mut plain: Vec<u8> = bytes.iter().map(|byte| byte ^ flip).collect();
    *plain.first_mut()? ^= 0x80;

    let full = |digits: usize| std::iter::repeat_n(GROUP, digits / GROUP);
    let between = full(whole).chain(full(scale));
    let groups = [whole % GROUP].into_iter().chain(between);
    let (mut rest, mut digits) = (plain.as_slice(), String::new());
    for group in groups.chain([scale % GROUP]).filter(|group| *group > 0) {
        let (number, after) = rest.split_at_checked(*BYTES.get(group)?)?;
        rest = after;
        let bytes = number.iter();
        let number = bytes.fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        digits += &format!("{number:0group$}");
    }
    // If the number of a group is too large, it has too many digits.
    if !rest.is_empty() || digits.len() != precision {
        return None;
    }
    let (before, fraction) = digits.split_at(whole);
    let before = match before.trim_start_matches('0') {
        "" => "0",
        trimmed => trimmed,
    };
    let sign = if negative { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    Some(format!("{sign}{before}{point}{fraction}"))
}

// Names and texts within statements, in any character set. Pure.

/// Appends a name between backquotes.
pub(super) fn append_name(name: &[u8], out: &mut Vec<u8>) {
    let times = |byte: u8| if byte == b'`' { 2 } else { 1 };
    out.push(b'`');
    out.extend(
        name.iter()
            .flat_map(|byte| std::iter::repeat_n(*byte, times(*byte))),
    );
    out.push(b'`');
}

/// Returns bytes as a hexadecimal literal, which has the same meaning in every `sql_mode`.
fn hex_literal(bytes: &[u8]) -> String {
    format!("X'{}'", hex::encode(bytes))
}

/// Returns a text in UTF-8 as a literal.
pub(super) fn text_literal(text: impl AsRef<[u8]>) -> String {
    format!("_utf8mb4 {}", hex_literal(text.as_ref()))
}

#[cfg(test)]
mod tests {
    use binlog_format::event::EventType;
    use binlog_format::events::AutoIncrement;
    use binlog_format::events::CharacterSets;
    use binlog_format::events::SessionOptions;

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
    fn exactly_the_logged_variables_are_assigned() {
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
    fn rows_get_the_session_variables_that_affect_them() {
        let context = RowContext::default();
        assert_eq!(
            text(rows_statement(&context)),
            "SET sql_mode=0,lc_time_names=0,time_zone=DEFAULT"
        );
        let context = RowContext {
            sql_mode: 0x20_0000,
            time_zone: Some(b"-08:00"[..].into()),
            lc_time_names: 4,
        };
        assert_eq!(
            text(rows_statement(&context)),
            "SET sql_mode=2097152,lc_time_names=4,time_zone=_utf8mb4 X'2d30383a3030'"
        );
    }

    #[test]
    fn variables_fixed_in_a_transaction_are_assigned_before_it() {
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

#[cfg(test)]
mod user_variable_tests {
    use super::*;

    fn set(name: &str, value: Option<(UserVarType, &[u8], bool)>) -> Option<String> {
        let variable = UserVar {
            name: name.as_bytes().into(),
            value: value.map(|(value_type, bytes, unsigned)| UserVarValue {
                value_type,
                collation: 8,
                bytes: bytes.into(),
                unsigned,
            }),
        };
        let mut out = Vec::new();
        append_user_variable(&variable, Some(("latin1", "latin1_swedish_ci")), &mut out)?;
        String::from_utf8(out).ok()
    }

    #[test]
    fn every_type_has_its_literal() {
        use UserVarType::Decimal;
        use UserVarType::Int;
        use UserVarType::Real;
        use UserVarType::String;
        for (value, expected) in [
            (None, "NULL"),
            (
                Some((String, &b"a'\\"[..], false)),
                "_latin1 X'61275c' COLLATE latin1_swedish_ci",
            ),
            (
                Some((String, b"", false)),
                "_latin1 X'' COLLATE latin1_swedish_ci",
            ),
            (Some((Real, &1.5_f64.to_le_bytes(), false)), "1.5e0"),
            (Some((Real, &(-1e300_f64).to_le_bytes(), false)), "-1e300"),
            (Some((Int, &(-3_i64).to_le_bytes(), false)), "-3"),
            (
                Some((Int, &u64::MAX.to_le_bytes(), true)),
                "CAST(18446744073709551615 AS UNSIGNED)",
            ),
            (Some((Decimal, &[2, 2, 0x85], false)), "0.05"),
            (Some((Decimal, &[1, 0, 0x87], false)), "7."),
        ] {
            assert_eq!(set("v", value).unwrap(), format!("SET @`v`:={expected}"));
        }
        assert_eq!(set("a`b", None).unwrap(), "SET @`a``b`:=NULL");
        assert_eq!(set("v", Some((Int, &[1], false))), None);
        assert_eq!(set("v", Some((Real, &f64::NAN.to_le_bytes(), false))), None);
        assert_eq!(set("v", Some((Decimal, &[1], false))), None);
    }
}

#[cfg(test)]
mod decimal_tests {
    use super::*;

    #[test]
    fn the_documented_examples_and_their_negatives() {
        // 1234567890.1234 as DECIMAL(14,4).
        let bytes = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        assert_eq!(decimal_text(14, 4, &bytes).unwrap(), "1234567890.1234");
        let negative = bytes.map(|byte| byte ^ 0xff);
        assert_eq!(decimal_text(14, 4, &negative).unwrap(), "-1234567890.1234");
        assert_eq!(decimal_text(1, 0, &[0x87]).unwrap(), "7");
        assert_eq!(decimal_text(2, 2, &[0x80 | 5]).unwrap(), "0.05");
        assert_eq!(decimal_text(9, 0, &[0x80, 0, 0, 0]).unwrap(), "0");
    }

    #[test]
    fn invalid_decimals_are_refused() {
        for (precision, scale, bytes) in [
            (2, 3, &[0x80][..]),
            (1, 0, &[]),
            (1, 0, &[0x80, 0]),
            (0, 0, &[0x80]),
            (66, 0, &[0x80; 30]),
            // More than nine digits in a group.
            (9, 0, &[0xff, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(decimal_text(precision, scale, bytes), None);
        }
    }
}

#[cfg(test)]
mod quoting_tests {
    use super::*;

    #[test]
    fn names_and_texts_are_escaped() {
        let mut name = Vec::new();
        append_name("a`;é".as_bytes(), &mut name);
        assert_eq!(name, "`a``;é`".as_bytes());
        assert_eq!(text_literal("'\\"), "_utf8mb4 X'275c'");
    }
}
