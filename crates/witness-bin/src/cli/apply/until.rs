//! `--until` on the command line.

use applier::source::Until;
use binlog_format::gtid::GtidSet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A GTID set or a time.
pub(super) fn parse(text: &str) -> Result<Until, String> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(Until::Time(time.into()));
    }
    match text.parse::<GtidSet>() {
        Ok(gtids) if !gtids.is_empty() => Ok(Until::Gtids(gtids)),
        Ok(_) => Err("an empty GTID set; leave the flag out to apply everything".to_owned()),
        Err(error) => Err(format!(
            "`{text}` is neither a time such as 2026-11-20T10:00:00Z nor a GTID set: {error}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sets_are_told_apart() {
        let time = parse("1970-01-01T00:01:00+00:00").unwrap();
        let minute = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(60);
        assert_eq!(time, Until::Time(minute));
        let set = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-5";
        assert_eq!(parse(set), Ok(Until::Gtids(set.parse().unwrap())));
        assert!(parse("yesterday").unwrap_err().contains("neither"));
        assert!(parse("").is_err());
    }
}
