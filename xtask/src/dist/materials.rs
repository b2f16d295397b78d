//! Writes the bill of materials (CycloneDX 1.5): every crate in the program, as cargo resolves it, with its license. Each license must
//! permit distribution.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::bounded_run;

use crate::dist::{FEATURES, TOOL_LIMIT};

/// Separator of the fields in a line of `cargo tree`. No name, version or license contains it.
const SEPARATOR: char = '|';

/// Licenses that require only attribution. The list in `deny.toml` is the same.
const ALLOWED: [&str; 9] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Returns the bill of materials of the packaged `witness`.
pub(super) fn of_witness(version: &str) -> Result<String> {
    let mut command = bounded_run::cargo();
    command.args([
        "tree",
        "--locked",
        "-p",
        "witness-bin",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    command
        .args(FEATURES)
        .args(["--format", &format!("{{p}}{SEPARATOR}{{l}}")]);
    let tree =
        bounded_run::run("cargo tree", command, Vec::new(), TOOL_LIMIT)?.into_text("cargo tree")?;
    let bill = bill(&tree, version);
    for component in bill["components"].as_array().into_iter().flatten() {
        let license = component["licenses"][0]["expression"].as_str();
        ensure!(
            license.is_some_and(is_allowed),
            "{} has a license that is not in the list of materials.rs and deny.toml: {license:?}",
            component["name"]
        );
    }
    let text = serde_json::to_string_pretty(&bill).context("the bill of materials is no JSON")?;
    Ok(text + "\n")
}

fn bill(tree: &str, version: &str) -> Value {
    let mut lines: Vec<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    let components: Vec<Value> = lines.iter().filter_map(|line| component(line)).collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "witness", "version": version } },
        "components": components,
    })
}

/// Returns the entry for a line `name v1.2.3 (/where)|license`. `None`: the crate is part of this workspace, so that its line has a folder.
fn component(line: &str) -> Option<Value> {
    let (package, license) = line.split_once(SEPARATOR)?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    if words.any(|word| word.starts_with("(/")) {
        return None;
    }
    // Older crates write `/` for OR.
    let expression = license.replace('/', " OR ");
    Some(json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
        "licenses": [{ "expression": expression }],
    }))
}

/// Returns whether the license expression can be met with allowed licenses only.
fn is_allowed(expression: &str) -> bool {
    let all = expression.split(" AND ");
    all.map(|part| part.trim_matches(['(', ')', ' ']))
        .all(|part| {
            let mut choices = part.split(" OR ");
            choices.any(|license| ALLOWED.contains(&license.trim()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_license_is_allowed_if_one_that_can_be_chosen_is() {
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("Apache-2.0 AND ISC", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND GPL-2.0-only", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression), allowed, "{expression}");
        }
    }

    #[test]
    fn the_list_is_that_of_deny_toml() {
        let file = std::fs::read_to_string(testkit::checkout().join("deny.toml")).unwrap();
        for license in ALLOWED {
            assert!(
                file.contains(&format!("\n    \"{license}\",\n")),
                "{license}"
            );
        }
        assert_eq!(file.matches("\n    \"").count(), ALLOWED.len());
    }

    #[test]
    fn crates_of_others_are_named_once_with_their_license() {
        let tree = "witness-bin v0.1.0 (/here/crates/witness-bin)|MIT OR Apache-2.0\nbytes v1.10.1|MIT\nbytes v1.10.1|MIT (*)\nserde_derive v1.0.2 (proc-macro)|MIT/Apache-2.0\n";
        let bill = bill(&tree.replace("MIT (*)", "MIT"), "7");
        let names: Vec<&str> = bill["components"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|component| component["name"].as_str())
            .collect();
        assert_eq!(names, ["bytes", "serde_derive"]);
        assert_eq!(
            bill["components"][1]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
    }
}
