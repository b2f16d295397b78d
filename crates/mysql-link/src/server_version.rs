//! A MySQL version as numbers, so that 10.x and 26.x come after 9.x.

use std::fmt;
use std::str::FromStr;

/// `major.minor.patch` of a server. Suffixes as in `9.7.4-2` or `8.0.36-log` are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    /// First number: 8, 9, or a year as in 26.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number; 0 where a server announces none.
    pub patch: u16,
}

impl ServerVersion {
    /// The version of three numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// The first version whose variables, statements and status names say source and replica.
    pub const SOURCE_REPLICA_NAMES: Self = Self::new(8, 0, 26);

    /// The first version with tagged GTIDs.
    pub const TAGGED_GTIDS: Self = Self::new(8, 3, 0);

    /// From the number that events and `version` functions carry: 90704 is 9.7.4.
    pub const fn from_number(number: u32) -> Self {
        Self::new(
            (number / 10_000) as u16,
            (number / 100 % 100) as u16,
            (number % 100) as u16,
        )
    }

    /// Major and minor number.
    pub const fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }

    /// Whether it belongs to a series whose patch releases only mend: MySQL calls those LTS and replicates between their
    /// releases in both directions. 8.0 is none of them, its patch releases brought new statements and events.
    const fn is_long_term(self) -> bool {
        matches!(self.series(), (8, 4) | (9, 7))
    }
}

/// Whether a server of version `to` may become the primary behind one of version `from`: the primary moves from older to newer
/// and never back. What the newer one wrote (statements, collations, events, and with MySQL's words "unsupported") cannot be
/// expected to be understood by an older one, and an older primary would have to go on from it. Within a long-term series any
/// release may follow any other.
///
/// It answers for the two servers alone; that further followers are older than a new primary is for whoever chooses to weigh.
pub const fn may_take_over(from: ServerVersion, to: ServerVersion) -> bool {
    let ((from_major, from_minor), (to_major, to_minor)) = (from.series(), to.series());
    if from_major != to_major {
        return from_major < to_major;
    }
    if from_minor != to_minor {
        return from_minor < to_minor;
    }
    from.is_long_term() || from.patch <= to.patch
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for ServerVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()
            .unwrap_or_default();
        let mut parts = numbers.split('.').map(|part| part.parse::<u16>().ok());
        match (parts.next().flatten(), parts.next().flatten(), parts.next()) {
            (Some(major), Some(minor), patch) => {
                Ok(Self::new(major, minor, patch.flatten().unwrap_or(0)))
            }
            _ => Err(format!("`{text}` is not a MySQL version")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let parse = |text: &str| text.parse::<ServerVersion>().unwrap();
        assert_eq!(parse("9.7.4-2"), ServerVersion::new(9, 7, 4));
        assert_eq!(parse("8.0.36-log"), ServerVersion::new(8, 0, 36));
        assert_eq!(parse("26.1"), ServerVersion::new(26, 1, 0));
        assert_eq!(ServerVersion::from_number(90_704), parse("9.7.4"));
        assert!(parse("26.1.0") > parse("9.7.4"));
        assert!(parse("8.0.25") < ServerVersion::SOURCE_REPLICA_NAMES);
        assert!(parse("8.0.100") > ServerVersion::SOURCE_REPLICA_NAMES);
        assert!("mysql".parse::<ServerVersion>().is_err());
        assert!("8".parse::<ServerVersion>().is_err());
    }

    #[test]
    fn the_primary_moves_from_older_to_newer_and_never_back() {
        let parse = |text: &str| text.parse::<ServerVersion>().unwrap();
        for (from, to, back) in [
            // The last word: whether the way back is open, too.
            ("9.7.4", "9.7.4", true),
            ("8.4.3", "8.4.9", true),
            ("9.7.0", "9.7.4", true),
            ("8.0.30", "8.0.36", false),
            ("8.0.36", "8.4.0", false),
            ("8.4.9", "9.7.0", false),
            ("9.1.0", "9.2.0", false),
            ("9.7.4", "26.1.0", false),
        ] {
            let (older, newer) = (parse(from), parse(to));
            assert!(may_take_over(older, newer), "{from} to {to}");
            assert_eq!(may_take_over(newer, older), back, "{to} back to {from}");
        }
    }
}
