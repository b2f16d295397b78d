//! Keys of a member's view that were renamed in version 0.1 and are written under both names until 0.2, so that scripts for either
//! go on working, and members and commands of both versions understand each other.

use serde_json::Value;

/// Where a renamed key stands, its name of today, and its former one.
const FORMER: [(&[&str], &str, &str); 6] = [
    (&[], "members", "roster"),
    (&[], "replication_routes", "travel"),
    (&["log"], "disk_full", "disk_refuses"),
    (&["mysql"], "write_fence", "gate"),
    (&["mysql"], "demotion", "giving_way"),
    (&["mysql"], "errant", "not_the_rings"),
];

/// Writes what was renamed under its former name as well.
pub(super) fn add(view: &mut Value) {
    for (path, now, former) in FORMER {
        if let Some(object) = object_at(view, path)
            && let Some(value) = object.get(now).cloned()
        {
            object.insert(former.to_owned(), value);
        }
    }
}

/// Gives what a member of an older version wrote the name of today, and drops what a newer one wrote under both.
pub(super) fn translate(view: &mut Value) {
    for (path, now, former) in FORMER {
        if let Some(object) = object_at(view, path)
            && let Some(value) = object.remove(former)
        {
            object.entry(now).or_insert(value);
        }
    }
}

fn object_at<'a>(
    view: &'a mut Value,
    path: &[&str],
) -> Option<&'a mut serde_json::Map<String, Value>> {
    let mut at = view;
    for name in path {
        at = at.get_mut(name)?;
    }
    at.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::super::sample::database_leader;
    use super::super::view::{MemberView, NotTheRings};
    use super::*;

    fn sample() -> MemberView {
        let mut view = database_leader();
        view.log.disk_full = true;
        let mysql = view.mysql.as_mut().unwrap();
        mysql.demotion = Some("in 5 s".to_owned());
        mysql.errant = Some(NotTheRings {
            transactions: 1,
            gtids: "a:1".to_owned(),
        });
        view
    }

    #[test]
    fn a_view_has_both_names_and_is_read_from_either() {
        let view = sample();
        let both = serde_json::to_value(&view).unwrap();
        let read = |value: &Value| {
            let text = serde_json::to_vec(value).unwrap();
            serde_json::from_slice::<MemberView>(&text).unwrap()
        };
        assert_eq!(read(&both), view);
        let (mut by_former, mut by_now) = (both.clone(), both.clone());
        for (path, now, former) in FORMER {
            let without = |value: &mut Value, name: &str| {
                object_at(value, path).unwrap().remove(name).unwrap()
            };
            let (old, new) = (without(&mut by_now, former), without(&mut by_former, now));
            assert_eq!(old, new, "{former}");
            assert!(!new.is_null(), "{now} is in the sample");
        }
        assert_eq!(read(&by_former), view, "as an older version writes it");
        assert_eq!(read(&by_now), view, "as a later version writes it");
    }

    #[test]
    fn a_witness_has_no_mysqld_under_any_name() {
        let mut view = sample();
        view.mysql = None;
        let value = serde_json::to_value(&view).unwrap();
        assert_eq!(value["mysql"], Value::Null);
        assert_eq!(serde_json::from_value::<MemberView>(value).unwrap(), view);
    }
}
