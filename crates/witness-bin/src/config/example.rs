//! Generates the commented example and the reference table from the tables of keys.

use std::fmt::Write as _;

use crate::config::key::{Key, Section};
use crate::config::sections::{MEMBERS, SECTIONS};
use crate::text::lines;

/// Returns a configuration file with every key; keys at their default are comments. The file is valid on a host that has its certificates.
pub fn example() -> String {
    let mut out = String::from(
        "# Configuration of one ring member. Every key can also be given by its variable\n\
         # (data_dir: WITNESS_DATA_DIR) or its flag (--data-dir), which win over the file.\n",
    );
    for section in SECTIONS {
        match section.name() {
            MEMBERS => {
                example_members(&mut out, section);
                continue;
            }
            "" => {}
            name => {
                let _ = write!(out, "\n# {}.\n[{name}]\n", section.meaning);
            }
        }
        for key in section.keys {
            example_key(&mut out, key);
        }
    }
    out
}

fn example_key(out: &mut String, key: &Key) {
    out.push('\n');
    *out += &lines("# ", folded(&key.explanation(), 98));
    let name = key.name();
    let _ = match (key.default, key.example) {
        (None, example) => writeln!(out, "{name} = {example}"),
        (Some(_), example) if key.shown => writeln!(out, "{name} = {example}"),
        (Some(default), "") => writeln!(out, "#{name} = {default}"),
        (Some(default), example) => writeln!(out, "#{name} = {default} # for example {example}"),
    };
}

fn example_members(out: &mut String, section: &Section) {
    let _ = write!(out, "\n# {}.\n#\n", section.meaning);
    for key in section.keys {
        let default = key
            .default
            .map(|text| format!(" Default: {text}."))
            .unwrap_or_default();
        let meaning = format!("{}: {}{default}", key.name(), key.meaning);
        *out += &lines("# ", folded(&meaning, 98));
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

/// Returns the reference of all keys as Markdown tables, one for each section.
pub fn reference() -> String {
    let mut out = String::new();
    for section in SECTIONS {
        let title = match section.name() {
            "" => "Top level".to_owned(),
            MEMBERS => "`[[members]]`".to_owned(),
            name => format!("`[{name}]`"),
        };
        let _ = write!(out, "### {title}\n\n{}.\n\n", section.meaning);
        out.push_str("| key | values | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys {
            let default = key.default;
            let default = default.map_or("required".into(), |text| format!("`{text}`"));
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
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let fits = |line: &&mut String| line.chars().count() + word.chars().count() < width;
        match lines.last_mut().filter(fits) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
