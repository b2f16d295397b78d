//! Base backups: copies of a database in the same storage as the log, behind which the log is replayed.
//!
//! A base backup is the data directory of a mysqld as one tar stream, cut into objects of some GiB of it, each of which is one zstd
//! frame: `cat base/NAME/data-* | zstd -dc | tar -x` unpacks it without this program. Its manifest is written last: what has none does
//! not count. Nothing is changed afterwards. A backup that an operator has made by other means is a manifest without objects, which
//! says where it is and up to where in the log.

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
pub use self::unpack::read_tar;
pub use self::upload::{OBJECT_BYTES, Packed, UploadOptions, finish, upload};
