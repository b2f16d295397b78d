//! A set of GTIDs in a member's view.

use std::fmt;

use binlog_format::gtid::GtidSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A set of GTIDs that is formatted only when written. Health checks and members read the view every second for other fields, and a set of
/// a million intervals is ten megabytes of text or more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidText(pub GtidSet);

impl fmt::Display for GtidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for GtidText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for GtidText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_text_in_json() {
        let text = "\"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-40:50\"";
        let read: GtidText = serde_json::from_str(text).unwrap();
        assert_eq!(read.0.count(), 41);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert!(serde_json::from_str::<GtidText>("\"no set\"").is_err());
    }
}
