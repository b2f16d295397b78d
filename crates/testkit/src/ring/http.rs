//! The few lines of HTTP that a test needs to ask a member.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

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
