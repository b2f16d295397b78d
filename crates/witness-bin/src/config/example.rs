//! The commented example and the reference table, both generated from the table of keys, so they are always current.

use std::fmt::Write as _;

use crate::config::key::Key;
use crate::config::keys::{KEYS, MEMBER_KEYS, MEMBERS, SECTIONS};
use crate::config::validation::default_text;

/// Keys with a default that a database member with peers on other hosts must still set.
const SHOWN: [&str; 5] = [
    "tls.certificate_file",
    "tls.key_file",
    "tls.ca_file",
    "mysql.datadir",
    "http.listen",
];

/// A configuration file with every key; keys at their default are comments. It validates where its certificates exist.
pub fn example() -> String {
    let mut out = String::from(
        "# Configuration of one ring member. Every key can also be given by its variable\n\
         # (data_dir: WITNESS_DATA_DIR) or its flag (--data-dir), which win over the file.\n",
    );
    for (section, meaning) in SECTIONS {
        if *section == MEMBERS {
            example_members(&mut out, meaning);
        } else {
            if !section.is_empty() {
                let _ = write!(out, "\n# {meaning}.\n[{section}]\n");
            }
            for key in KEYS.iter().filter(|key| key.section() == *section) {
                example_key(&mut out, key);
            }
        }
    }
    out
}

fn example_key(out: &mut String, key: &Key) {
    out.push('\n');
    for line in folded(&key.explanation(), 98) {
        let _ = writeln!(out, "# {line}");
    }
    let name = key.name();
    let _ = match (default_text(key), key.example) {
        (None, example) => writeln!(out, "{name} = {example}"),
        (Some(_), example) if SHOWN.contains(&key.path) => writeln!(out, "{name} = {example}"),
        (Some(default), "") => writeln!(out, "#{name} = {default}"),
        (Some(default), example) => writeln!(out, "#{name} = {default} # for example {example}"),
    };
}

fn example_members(out: &mut String, meaning: &str) {
    let _ = write!(out, "\n# {meaning}.\n#\n");
    for key in MEMBER_KEYS {
        let default = default_text(key)
            .map(|text| format!(" Default: {text}."))
            .unwrap_or_default();
        for line in folded(&format!("{}: {}{default}", key.name(), key.meaning), 98) {
            let _ = writeln!(out, "# {line}");
        }
    }
    let members = [
        (1, "db-1", "database"),
        (2, "witness-1", "witness"),
        (3, "witness-2", "witness"),
    ];
    for (id, name, kind) in members {
        let _ = write!(
            out,
            "\n[[members]]\nid = {id}\nname = \"{name}\"\nregion = \"north\"\n\
             kind = \"{kind}\"\naddress = \"10.0.0.{id}:7400\"\n",
        );
    }
}

/// The reference of every key as Markdown rows, by section.
pub fn reference() -> String {
    let mut out = String::new();
    for (section, meaning) in SECTIONS {
        let title = match *section {
            "" => "Top level".to_owned(),
            MEMBERS => "`[[members]]`".to_owned(),
            section => format!("`[{section}]`"),
        };
        let _ = write!(out, "### {title}\n\n{meaning}.\n\n");
        out.push_str("| key | values | default | meaning |\n|---|---|---|---|\n");
        for key in KEYS
            .iter()
            .chain(MEMBER_KEYS)
            .filter(|key| key.section() == *section)
        {
            let default = default_text(key).map_or("required".into(), |text| format!("`{text}`"));
            let _ = writeln!(
                out,
                "| `{}` | {} | {default} | {} |",
                key.path,
                key.kind.describe(),
                key.explanation()
            );
        }
        out.push('\n');
    }
    out
}

/// Wraps a sentence into lines of at most `width` characters.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].chars().count() + 1 + word.chars().count() <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
