//! With the engine's `change_membership`, and functions built on it, a leader can change the voters before it has committed an entry of its
//! own term. Then two leaders can commit independently. So no code may call these functions: memberships must be appended with
//! `append_membership`, which checks its preconditions.

use std::fs;
use std::path::{Path, PathBuf};

/// Calls that bypass these preconditions.
const FORBIDDEN: [&str; 3] = [".change_membership(", ".add_learner(", "ChangeMembers::"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_crate_calls_the_unguarded_membership_change() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for member in fs::read_dir(crates).unwrap() {
        let folder = member.unwrap().path().join("src");
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    assert!(
        files
            .iter()
            .any(|file| file.ends_with("consensus/src/member.rs")),
        "{files:?}"
    );
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for call in FORBIDDEN {
            assert!(!text.contains(call), "{} uses {call}", file.display());
        }
    }
}
