//! Names of base backups: start time and member, so that a listing sorts by time.

use std::fmt;
use std::str::FromStr;

use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// Name prefix of all base backup objects.
pub const BASE_FOLDER: &str = "base/";
const MANIFEST: &str = "manifest.json";
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");
/// Last second whose name has the same length: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

/// Name of a base backup, as in `20261126T143816Z-3`. Ordered by start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BaseName {
    began_at: u64,
    member: MemberId,
}

impl BaseName {
    /// For a start time, in seconds since 1970, and a member. `None` after the year 9999.
    #[must_use]
    pub const fn new(began_at: u64, member: MemberId) -> Option<Self> {
        match began_at <= LAST {
            true => Some(Self { began_at, member }),
            false => None,
        }
    }

    /// Start time, in seconds since 1970.
    #[must_use]
    pub const fn began_at(&self) -> u64 {
        self.began_at
    }

    /// The member that took or registered it.
    #[must_use]
    pub const fn member(&self) -> MemberId {
        self.member
    }

    /// Prefix of all its objects' names, below the ring's folder.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{BASE_FOLDER}{self}/")
    }

    /// The name of its manifest, below the ring's folder.
    #[must_use]
    pub fn manifest(&self) -> String {
        format!("{}{MANIFEST}", self.folder())
    }

    /// The base backup to which an object's name belongs; `None` for other objects.
    #[must_use]
    pub fn of_object(object: &str) -> Option<Self> {
        let (name, rest) = object.strip_prefix(BASE_FOLDER)?.split_once('/')?;
        (!rest.is_empty()).then(|| name.parse().ok())?
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.began_at).map_err(|_| fmt::Error)?;
        let moment = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| fmt::Error)?;
        let moment = moment.format(MOMENT).map_err(|_| fmt::Error)?;
        write!(f, "{moment}-{}", self.member)
    }
}

impl FromStr for BaseName {
    type Err = String;

    /// Accepts exactly the output of [`fmt::Display`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || format!("`{text}` is no name of a base backup, as in 20261126T143816Z-3");
        let (moment, member) = text.split_once('-').ok_or_else(refused)?;
        let moment = PrimitiveDateTime::parse(moment, MOMENT).map_err(|_| refused())?;
        let seconds = moment.assume_utc().unix_timestamp();
        let began_at = u64::try_from(seconds).map_err(|_| refused())?;
        let member = MemberId(member.parse().map_err(|_| refused())?);
        let name = Self::new(began_at, member).ok_or_else(refused)?;
        match name.to_string() == text {
            true => Ok(name),
            false => Err(refused()),
        }
    }
}

impl From<BaseName> for String {
    fn from(name: BaseName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for BaseName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_says_which_base_backup_it_is(began_at in 0..=LAST, member: u64) {
            let name = BaseName::new(began_at, MemberId(member)).unwrap();
            prop_assert_eq!(name.to_string().parse(), Ok(name));
            prop_assert_eq!(BaseName::of_object(&name.manifest()), Some(name));
        }

        #[test]
        fn names_of_others_are_passed_over(text in ".*") {
            if let Ok(name) = text.parse::<BaseName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn names_sort_by_time(first in 0..=LAST, second in 0..=LAST) {
            let [one, other] = [first, second].map(|at| BaseName::new(at, MemberId(1)).unwrap());
            prop_assert_eq!(one.to_string().cmp(&other.to_string()), first.cmp(&second));
        }
    }

    #[test]
    fn a_name_is_the_moment_and_the_member() {
        let name = BaseName::new(1_795_703_896, MemberId(3)).unwrap();
        assert_eq!(name.to_string(), "20261126T143816Z-3");
        assert_eq!(name.manifest(), "base/20261126T143816Z-3/manifest.json");
        assert_eq!(BaseName::new(LAST + 1, MemberId(3)), None);
        for other in [
            "20261126T143816Z",
            "20261126T143816Z-03",
            "20261126T143816-3",
            "20261326T143816Z-3",
            "19691231T235959Z-3",
            "20261126T143816Z-3/",
        ] {
            assert!(other.parse::<BaseName>().is_err(), "{other}");
        }
        assert_eq!(BaseName::of_object("base/20261126T143816Z-3"), None);
        assert_eq!(BaseName::of_object("log/20261126T143816Z-3/x"), None);
    }
}
