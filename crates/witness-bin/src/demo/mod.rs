//! The main job, shown: a ring under load, members that crash and come back, and at the end the proof
//! that nothing acknowledged is missing anywhere.

mod embedded;
mod mysql;
mod proof;
mod screen;
mod story;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

pub use crate::demo::story::Story;
use crate::terminal::{Exit, Failure};

/// How a demonstration is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoOptions {
    /// Around a real mysqld instead of the embedded database.
    pub mysql: bool,
    /// Where the members' files go and stay; a temporary directory otherwise.
    pub data_dir: Option<PathBuf>,
    /// How long the load runs between two events.
    pub pause: Duration,
    /// Nothing is shown but the report.
    pub silent: bool,
}

/// Plays a demonstration to its end and answers with its report.
///
/// # Errors
/// When it cannot be played; a report that shows a loss is no error here.
pub async fn demonstrate(options: &DemoOptions) -> Result<Story, Failure> {
    let place = Place::for_files(options.data_dir.as_deref())?;
    if options.mysql {
        mysql::demonstrate(options, &place.path()).await
    } else {
        embedded::demonstrate(options, place.path()).await
    }
}

/// Where Linux begins to hand ports out, if nobody changed it. Members go down and come back during a demonstration, so their ports
/// come from below: one of those that the kernel hands out could be somebody's connection by then.
const HANDED_OUT_FROM: u16 = 32_768;
const LOWEST: u16 = 10_000;

/// Addresses of loopback that nobody listens at now.
fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], Failure> {
    // Any start will do; two demonstrations at once should not go through the same ports in step.
    let start = LOWEST + std::process::id() as u16 % (HANDED_OUT_FROM - LOWEST);
    // Each is held until the last is found.
    let mut held = (start..HANDED_OUT_FROM)
        .chain(LOWEST..start)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let listeners: Vec<TcpListener> = held.by_ref().take(N).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().flat_map(TcpListener::local_addr).collect();
    addresses.try_into().map_err(|_| {
        Failure::error(format!(
            "no {N} free ports between {LOWEST} and {HANDED_OUT_FROM} on 127.0.0.1; end what listens there"
        ))
    })
}

/// Where the members' files are: named by the operator and kept, or temporary.
enum Place {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn for_files(named: Option<&Path>) -> Result<Self, Failure> {
        let Some(named) = named else {
            return Ok(Self::Temporary(
                tempfile::Builder::new().prefix("witness-demo-").tempdir()?,
            ));
        };
        std::fs::create_dir_all(named)?;
        if std::fs::read_dir(named)?.next().is_some() {
            return Err(Failure::new(
                Exit::Refused,
                format!("{} is not empty", named.display()),
                "name a directory that does not exist yet, or an empty one",
            ));
        }
        Ok(Self::Kept(named.canonicalize()?))
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Kept(path) => path.clone(),
            Self::Temporary(directory) => directory.path().to_owned(),
        }
    }
}
