//! What a member has and says: its binlog files as bytes, and its answers over HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, Result};

/// The files of one `log/` folder: every `binlog.*`, the index included.
#[derive(Clone, PartialEq, Eq)]
pub struct LogFiles {
    folder: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

/// Where two members' files part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstDifference {
    file: String,
    offset: Option<usize>,
    lengths: (Option<usize>, Option<usize>),
}

impl LogFiles {
    /// Reads them.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for entry in
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("binlog.") {
                files.insert(
                    name,
                    fs::read(entry.path())
                        .with_context(|| format!("cannot read {}", entry.path().display()))?,
                );
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            files,
        })
    }

    /// The paths of the binlog files, oldest first, without the index.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files
            .keys()
            .filter(|name| *name != "binlog.index")
            .map(|name| self.folder.join(name))
            .collect()
    }

    /// All bytes together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// The first byte, in file order, that the other has not or has otherwise.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<FirstDifference> {
        let names = self.files.keys().chain(other.files.keys());
        let mut names: Vec<&String> = names.collect();
        names.sort();
        names.dedup();
        names.into_iter().find_map(|name| {
            let (mine, theirs) = (self.files.get(name), other.files.get(name));
            let lengths = (mine.map(Vec::len), theirs.map(Vec::len));
            let (Some(mine), Some(theirs)) = (mine, theirs) else {
                return Some(FirstDifference {
                    file: name.clone(),
                    offset: None,
                    lengths,
                });
            };
            (mine != theirs).then(|| {
                let offset = mine
                    .iter()
                    .zip(theirs)
                    .position(|(a, b)| a != b)
                    .unwrap_or(mine.len().min(theirs.len()));
                FirstDifference {
                    file: name.clone(),
                    offset: Some(offset),
                    lengths,
                }
            })
        })
    }
}

impl fmt::Debug for LogFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files, {} bytes in {}",
            self.files.len(),
            self.bytes(),
            self.folder.display()
        )
    }
}

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(
                f,
                "{} at offset {offset} (lengths {:?})",
                self.file, self.lengths
            ),
            None => write!(f, "only one has {}", self.file),
        }
    }
}

// The few lines of HTTP that a test needs to ask a member.

const LIMIT: Duration = Duration::from_secs(5);
/// A promotion takes less than a second, and longer on a machine that is busy.
const ORDER_LIMIT: Duration = Duration::from_secs(30);

/// A member's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl HttpAnswer {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {}", self.body))
    }
}

/// A GET request on a connection of its own.
///
/// # Errors
/// When nobody answers within some seconds.
pub fn http_get(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    request("GET", address, path, LIMIT)
}

/// The same with another limit.
///
/// # Errors
/// When nobody answers within it.
pub fn http_get_within(address: SocketAddr, path: &str, limit: Duration) -> Result<HttpAnswer> {
    request("GET", address, path, limit)
}

/// A POST request without a body, on a connection of its own.
///
/// # Errors
/// When nobody answers within some seconds.
pub fn http_post(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    request("POST", address, path, LIMIT)
}

/// An order: a POST request with a token and a body.
///
/// # Errors
/// When nobody answers within half a minute.
pub fn http_order(address: SocketAddr, path: &str, token: &str, body: &str) -> Result<HttpAnswer> {
    let rest = format!("Authorization: Bearer {token}\r\n\r\n{body}");
    exchange("POST", address, path, ORDER_LIMIT, body.len(), &rest)
}

fn request(method: &str, address: SocketAddr, path: &str, limit: Duration) -> Result<HttpAnswer> {
    exchange(method, address, path, limit, 0, "\r\n")
}

/// `rest` is everything behind the headers that every request has.
fn exchange(
    method: &str,
    address: SocketAddr,
    path: &str,
    limit: Duration,
    length: usize,
    rest: &str,
) -> Result<HttpAnswer> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n{rest}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    parse(&answer).with_context(|| format!("not an HTTP answer: {answer:?}"))
}

fn parse(answer: &str) -> Option<HttpAnswer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(HttpAnswer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> LogFiles {
        let files = files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.as_bytes().to_vec()))
            .collect();
        LogFiles {
            folder: PathBuf::new(),
            files,
        }
    }

    #[test]
    fn a_difference_names_file_and_offset() {
        let left = files(&[("binlog.000001", "same"), ("binlog.000002", "abcd")]);
        assert_eq!(left.first_difference(&left), None);
        let right = files(&[("binlog.000001", "same"), ("binlog.000002", "abXd")]);
        assert!(
            left.first_difference(&right)
                .unwrap()
                .to_string()
                .starts_with("binlog.000002 at offset 2")
        );
        let shorter = files(&[("binlog.000001", "same"), ("binlog.000002", "ab")]);
        assert!(
            left.first_difference(&shorter)
                .unwrap()
                .to_string()
                .starts_with("binlog.000002 at offset 2")
        );
        let fewer = files(&[("binlog.000001", "same")]);
        assert_eq!(
            left.first_difference(&fewer).unwrap().to_string(),
            "only one has binlog.000002"
        );
    }
}

#[cfg(test)]
mod http_tests {
    use super::*;

    #[test]
    fn an_answer_is_status_and_body() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\n{\"x\":1}").unwrap();
        assert_eq!(
            (answer.status, answer.json().unwrap()["x"].as_u64()),
            (503, Some(1))
        );
        assert_eq!(parse("nonsense"), None);
    }
}
