//! What a record carries besides what it says of its member: read, kept, and written again.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What a record carries along for all of the ring: fields that only a later version knows, and those of this version
/// that say nothing of the member itself, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras(Option<Box<Fields>>);

/// Boxed, because a record travels inside of the engine's errors, and has none of them as a rule.
type Fields = (BTreeMap<String, Value>,);

impl Extras {
    /// What stands under a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.0.get(name)
    }

    /// Puts something under a name, in place of what was there.
    pub fn set(&mut self, name: &str, value: Value) {
        let fields = self.0.get_or_insert_with(Box::default);
        fields.0.insert(name.to_owned(), value);
    }
}

impl Serialize for Extras {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(fields) => fields.0.serialize(to),
            None => BTreeMap::<String, Value>::new().serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Extras {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = BTreeMap::deserialize(from)?;
        Ok(Self((!fields.is_empty()).then(|| Box::new((fields,)))))
    }
}

#[cfg(test)]
mod tests {
    use crate::member_record::MemberRecord;

    #[test]
    fn what_a_later_version_says_of_a_member_is_written_again() {
        let mut json = serde_json::to_value(MemberRecord::default()).unwrap();
        let fields = json.as_object_mut().unwrap();
        let rack = serde_json::json!({"row": 7, "lamps": [1.5]});
        fields.insert("rack".to_owned(), rack);
        let read: MemberRecord = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        assert_eq!(read, MemberRecord::default(), "it is the same member");
    }
}
