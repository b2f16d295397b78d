//! Base backups: copies of a database in the same storage as the log, which is replayed after them.
//!
//! A base backup is a mysqld data directory as one tar stream, cut into objects of some GiB, each of which is one zstd frame: `cat
//! base/NAME/data-* | zstd -dc | tar -x` unpacks it without this program. Its manifest is written last; without one it does not count.
//! Objects never change. A backup that an operator makes with another tool is a manifest without objects, with its place and its position
//! in the log.

mod contents;
mod download;
mod error;
mod manifest;
mod name;
mod retention;
mod survey;
mod unpack;
mod upload;

pub use self::contents::{Entry, EntryKind, assert_whole, list};
pub use self::download::{download, verify};
pub use self::error::BaseError;
pub use self::manifest::{
    BASE_VERSION, BaseForm, BaseManifest, BaseManifestError, Tar, data_object,
};
pub use self::name::{BASE_FOLDER, BaseName};
pub use self::retention::may_go;
pub use self::survey::{DamagedBase, Survey, free_name, look, remove_unfinished, survey};
#[doc(hidden)]
#[cfg(feature = "fuzzing")]
pub use self::unpack::read_tar;
pub use self::upload::{OBJECT_BYTES, Packed, UploadOptions, finish, upload};
