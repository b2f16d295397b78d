//! Finds files of a crate that import each other. An import is a path that begins with `crate` or `super`. A `pub use` only re-exports a
//! name, and does not count as an import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::limits::size::lines;

/// The path of a module within its crate.
type Module = Vec<String>;

/// Returns the product's modules that import each other, directly or through other modules.
pub(super) fn files_in_cycles(
    root: &Path,
    files: &[PathBuf],
) -> Result<BTreeMap<String, Vec<String>>> {
    let mut crates: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for file in files {
        let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
        let ["crates", name, "src", inside @ ..] = parts.as_slice() else {
            continue;
        };
        let text = fs::read_to_string(root.join(file))?;
        let modules = crates.entry((*name).to_owned()).or_default();
        modules.insert(module(inside), text);
    }
    let mut found = BTreeMap::new();
    for (name, modules) in crates {
        let cycle = in_cycles(&imports(&modules));
        if !cycle.is_empty() {
            let cycle = cycle.iter().map(|module| module.join("::")).collect();
            found.insert(name, cycle);
        }
    }
    Ok(found)
}

/// Returns the module of a file such as `a/b.rs` or `a/b/mod.rs`. The crate's root is the empty path.
fn module(inside: &[&str]) -> Module {
    let mut module: Module = inside.iter().map(|part| (*part).to_owned()).collect();
    let file = module.pop().unwrap_or_default();
    match file.trim_end_matches(".rs") {
        "mod" | "lib" | "main" => {}
        name => module.push(name.to_owned()),
    }
    module
}

/// Returns, for each module, the modules from which it imports.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let of = |(module, text): (&Module, &String)| {
        let mut imported = BTreeSet::new();
        let code = lines(text).collect::<Vec<_>>().join("\n");
        for path in paths(&code, module) {
            let longest = (0..=path.len())
                .rev()
                .map(|length| &path[..length])
                .find(|prefix| modules.contains_key(*prefix));
            // Imports from the crate's root do not count, because the root only re-exports names.
            if let Some(longest) = longest.filter(|longest| !longest.is_empty()) {
                imported.insert(longest.to_vec());
            }
        }
        imported.remove(module);
        (module.clone(), imported)
    };
    modules.iter().map(of).collect()
}

/// Returns the paths in a module's code that refer to the module's own crate.
fn paths(code: &str, module: &Module) -> Vec<Module> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let begin = statement.rfind("use ").filter(|begin| {
            let line = statement[..*begin].rsplit('\n').next().unwrap_or_default();
            line.trim().is_empty() || line.trim_start().starts_with("pub")
        });
        let Some(begin) = begin else {
            rest.push_str(statement);
            continue;
        };
        let (before, tree) = statement.split_at(begin);
        rest.push_str(before);
        if !before.ends_with("pub ") && !before.ends_with("pub(crate) ") {
            let tree = tree.trim_start_matches("use ").trim_end_matches(';');
            found.extend(names(tree).iter().map(|name| path(name, module)));
        }
    }
    for word in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(word) {
            let before = rest[..at].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
                found.push(path(&rest[at..], module));
            }
        }
    }
    found
}

/// Returns the full names in a tree of imports, such as `a::{b, c::d}`.
fn names(tree: &str) -> Vec<String> {
    fn expand(prefix: &str, tree: &str, names: &mut Vec<String>) {
        let mut depth = 0_usize;
        let branches = tree.split(|c| {
            depth = match c {
                '{' => depth + 1,
                '}' => depth.saturating_sub(1),
                _ => depth,
            };
            c == ',' && depth == 0
        });
        for branch in branches.map(str::trim).filter(|branch| !branch.is_empty()) {
            match branch.split_once('{') {
                Some((head, inner)) => {
                    let inner = inner.trim_end();
                    let inner = inner.strip_suffix('}').unwrap_or(inner);
                    expand(&format!("{prefix}{head}"), inner, names);
                }
                None => names.push(format!("{prefix}{branch}")),
            }
        }
    }
    let mut found = Vec::new();
    expand("", tree, &mut found);
    found.retain(|name| name.starts_with("crate::") || name.starts_with("super::"));
    found
}

fn path(text: &str, module: &Module) -> Module {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let mut path = Module::new();
    for part in text[..end.unwrap_or(text.len())].split("::") {
        match part {
            "self" => {}
            "crate" => path.clear(),
            "super" if path.is_empty() => path = module[..module.len().saturating_sub(1)].to_vec(),
            "super" => drop(path.pop()),
            "" => {}
            part => path.push(part.to_owned()),
        }
    }
    path
}

/// Returns the modules that import themselves through other modules.
fn in_cycles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Module> {
    let leads_back = |start: &&Module| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Module> = imports[*start].iter().collect();
        while let Some(module) = next.pop() {
            if module == *start {
                return true;
            }
            if seen.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        false
    };
    imports.keys().filter(leads_back).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_import_each_other_are_found() {
        let modules = [
            ("a", "use crate::{b::{C, D}, x};\npub use self::e::F;"),
            ("a::e", "use super::G;"),
            ("b", "fn f() -> crate::c::H { todo!() }"),
            ("c", "use super::a::I;"),
            (
                "d",
                "pub use crate::a::I;\n#[cfg(test)]\nmod tests { use crate::d; }",
            ),
            ("", "mod a;"),
        ];
        let module = |path: &str| -> Module {
            path.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let modules = modules.map(|(path, text)| (module(path), text.to_owned()));
        let found = in_cycles(&imports(&modules.into()));
        assert_eq!(found, ["a", "b", "c"].map(module));
    }

    #[test]
    fn a_file_is_the_module_of_its_path() {
        assert_eq!(module(&["a", "b.rs"]), ["a", "b"]);
        assert_eq!(module(&["a", "mod.rs"]), ["a"]);
        assert!(module(&["lib.rs"]).is_empty());
    }
}
