//! Checks of this host: the files and directories in the configuration. A check, a start and a reload all use them, so none
//! accepts what another rejects.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::config::build::Config;
use crate::config::problem::{Place, Problems};
use crate::config::sections::Sections;
use crate::config::value::Kind;
use crate::http::unusable_tokens;

/// The widest permissions for files of secrets: the owner writes, the group reads.
const WIDEST_MODE: u32 = 0o640;

/// Reports every file and directory that cannot be used. `with_mysql` is whether this member uses
/// the `[mysql]` section.
pub(crate) fn check_files(sections: &Sections, with_mysql: bool, problems: &mut Problems) {
    for entry in sections.entries() {
        let (key, at, text) = (entry.key, entry.at, entry.text);
        if text.is_empty() || key.section() == "mysql" && !with_mysql {
            continue;
        }
        let path = Path::new(text);
        let found = match key.kind {
            Kind::File => readable(path).map(|_| None),
            Kind::SecretFile => {
                let is_wide = |mode: &u32| mode & !WIDEST_MODE & 0o777 != 0;
                readable(path).map(|mode| Some(mode).filter(is_wide))
            }
            Kind::Directory => directory(path).map(|()| None),
            _ => continue,
        };
        let name = key.path;
        match found {
            Ok(None) => {}
            Ok(Some(mode)) => problems.warning(
                at,
                name,
                format!("`{name}`: {text} has mode {mode:04o}, wider than {WIDEST_MODE:04o}"),
                format!("run: chmod 0600 {text} (or 0640 for a group that reads it)"),
            ),
            Err((message, advice)) => {
                problems.error(at, name, format!("`{name}`: {message}"), advice);
            }
        }
    }
}

/// Reports every secret and certificate that a running member could not use.
pub(crate) fn check_credentials(config: &Config, problems: &mut Problems) {
    let entries = config.sections.entries();
    let of_member = member::unusable_files(&config.member).into_iter();
    let of_http = config.http.iter().flat_map(unusable_tokens);
    for unusable in of_member.chain(of_http) {
        let (key, why) = (unusable.key, unusable.why);
        let advice = "put what is missing into the file, or name another file";
        let entry = entries.iter().find(|entry| entry.key.path == key);
        let at = entry.map_or(&Place::Default, |entry| entry.at);
        problems.error(at, key, format!("`{key}`: {why}"), advice);
    }
}

type Finding<T> = Result<T, (String, &'static str)>;

/// The permissions of a readable regular file. Opening anything else, such as a FIFO, might block.
fn readable(path: &Path) -> Finding<u32> {
    let metadata = std::fs::metadata(path);
    let opened = metadata.and_then(|metadata| match metadata.is_file() {
        true => std::fs::File::open(path).map(|_| Some(metadata)),
        false => Ok(None),
    });
    match opened {
        Ok(Some(metadata)) => Ok(metadata.permissions().mode() & 0o7777),
        Ok(None) => Err((
            format!("{} is not a regular file", path.display()),
            "name a file",
        )),
        Err(error) => Err((
            format!("{} cannot be read: {error}", path.display()),
            "check the path and who may read it",
        )),
    }
}

/// A missing directory is created later; its path must not be taken by anything else.
fn directory(path: &Path) -> Finding<()> {
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
