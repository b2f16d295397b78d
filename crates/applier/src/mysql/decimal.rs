//! DECIMAL as binlogs have it, as text. Pure.
//!
//! Digits stand in groups of nine, four bytes each, big-endian; what does not fill a group, at the outer ends of both
//! parts, takes fewer bytes. The highest bit is turned around, and all bits are in a negative number.

use std::fmt::Write;

/// Bytes that so many digits of a group take.
const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const GROUP: usize = 9;

/// The text of a value of `precision` digits, `scale` of them behind the point; `None` when the bytes are no such value.
pub(super) fn decimal_text(precision: usize, scale: usize, bytes: &[u8]) -> Option<String> {
    let whole = precision.checked_sub(scale)?;
    if precision > 65 || precision == 0 {
        return None;
    }
    let negative = bytes.first()? & 0x80 == 0;
    let flip = if negative { 0xff } else { 0 };
    let mut plain: Vec<u8> = bytes.iter().map(|byte| byte ^ flip).collect();
    *plain.first_mut()? ^= 0x80;

    let groups_of = |digits: usize| std::iter::repeat_n(GROUP, digits / GROUP);
    let whole_groups = std::iter::once(whole % GROUP).chain(groups_of(whole));
    let scale_groups = groups_of(scale).chain(std::iter::once(scale % GROUP));
    let mut rest = plain.as_slice();
    let mut take = |digits: usize, out: &mut String| -> Option<()> {
        let (group, behind) = rest.split_at_checked(*BYTES.get(digits)?)?;
        rest = behind;
        let number = group
            .iter()
            .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        if digits > 0 {
            write!(out, "{number:0digits$}").ok()?;
        }
        Some(())
    };
    let (mut before, mut behind) = (String::new(), String::new());
    whole_groups
        .into_iter()
        .try_for_each(|digits| take(digits, &mut before))?;
    scale_groups
        .into_iter()
        .try_for_each(|digits| take(digits, &mut behind))?;
    if !rest.is_empty() || before.len() != whole || behind.len() != scale {
        return None;
    }
    let before = match before.trim_start_matches('0') {
        "" => "0",
        trimmed => trimmed,
    };
    let sign = if negative { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    Some(format!("{sign}{before}{point}{behind}"))
}

#[cfg(test)]
mod tests {
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
    fn what_is_no_decimal_is_told() {
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
