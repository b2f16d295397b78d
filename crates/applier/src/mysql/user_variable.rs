//! The literal of a user variable that a statement of the log needs. Pure.

use binlog_format::events::{UserVar, UserVarType, UserVarValue};

use super::decimal::decimal_text;
use super::quoting::{append_hex, append_name};

/// Appends the statement that sets it; `None` when its value cannot be read. `collation` is the name of a text's collation
/// with that of its character set.
pub(super) fn append_user_variable(
    variable: &UserVar<'_>,
    collation: Option<(&str, &str)>,
    out: &mut Vec<u8>,
) -> Option<()> {
    out.extend_from_slice(b"SET @");
    append_name(&variable.name, out);
    out.extend_from_slice(b":=");
    match &variable.value {
        None => out.extend_from_slice(b"NULL"),
        Some(value) => append_value(value, collation, out)?,
    }
    Some(())
}

fn append_value(
    value: &UserVarValue<'_>,
    collation: Option<(&str, &str)>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let bytes = value.bytes.as_ref();
    match value.value_type {
        UserVarType::String => {
            let (character_set, collation) = collation?;
            out.extend_from_slice(format!("_{character_set} ").as_bytes());
            append_hex(bytes, out);
            out.extend_from_slice(format!(" COLLATE {collation}").as_bytes());
        }
        UserVarType::Real => {
            let number = f64::from_le_bytes(bytes.try_into().ok()?);
            if !number.is_finite() {
                return None;
            }
            // With an exponent, or the server takes it for a DECIMAL.
            out.extend_from_slice(format!("{number:e}").as_bytes());
        }
        UserVarType::Int => {
            let number = i64::from_le_bytes(bytes.try_into().ok()?);
            let text = if value.unsigned {
                // As a literal it would have a sign unless it needs all bits.
                format!("CAST({} AS UNSIGNED)", number as u64)
            } else {
                number.to_string()
            };
            out.extend_from_slice(text.as_bytes());
        }
        UserVarType::Decimal => {
            let [precision, scale, digits @ ..] = bytes else {
                return None;
            };
            let text = decimal_text(usize::from(*precision), usize::from(*scale), digits)?;
            out.extend_from_slice(text.as_bytes());
            if *scale == 0 {
                out.push(b'.');
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
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
        use UserVarType::{Decimal, Int, Real, String};
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
