//! The checks that look at the machine: files that must be readable, directories that must be
//! directories.

use std::path::Path;

use super::key::Kind;
use super::keys::KEYS;
use super::problem::Problems;
use super::values::Values;

/// Records every file and directory that cannot be used. `with_mysql` is whether this member reads
/// the `[mysql]` section.
pub(crate) fn check(values: &Values, with_mysql: bool, problems: &mut Problems) {
    for key in KEYS {
        if key.section() == "mysql" && !with_mysql {
            continue;
        }
        let Some(text) = values.text(key.path).filter(|text| !text.is_empty()) else {
            continue;
        };
        let path = Path::new(&text);
        let found = match key.kind {
            Kind::File => readable(path),
            Kind::Directory => directory(path),
            _ => continue,
        };
        if let Err((message, advice)) = found {
            problems.error(
                values.report_at(key.path),
                key.path,
                format!("`{}`: {message}", key.path),
                advice,
            );
        }
    }
}

type Finding = Result<(), (String, &'static str)>;

fn readable(path: &Path) -> Finding {
    let opened = std::fs::File::open(path).and_then(|file| file.metadata());
    match opened {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err((format!("{} is not a file", path.display()), "name a file")),
        Err(error) => Err((
            format!("{} cannot be read: {error}", path.display()),
            "check the path and who may read it",
        )),
    }
}

/// A directory that does not exist yet is made later; what stands in its place must not be
/// something else.
fn directory(path: &Path) -> Finding {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err((
            format!("{} is not a directory", path.display()),
            "name a directory, or one that does not exist yet",
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err((
            format!("{} cannot be reached: {error}", path.display()),
            "check the path and who may enter it",
        )),
    }
}
