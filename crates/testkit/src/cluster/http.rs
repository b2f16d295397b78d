//! HTTP requests to a member, each on a connection of its own. The time limit includes connecting and reading the whole answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ureq::Agent;
use ureq::http::Response;

const LIMIT: Duration = Duration::from_secs(5);
/// A promotion takes less than a second; on a busy machine it takes longer.
const ORDER_LIMIT: Duration = Duration::from_secs(30);

/// A member's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The target of a redirect.
    pub location: Option<String>,
    /// The body as text.
    pub body: String,
}

impl HttpAnswer {
    /// Parses the body as JSON.
    ///
    /// # Errors
    /// If the body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {}", self.body))
    }
}

/// Sends a GET request.
///
/// # Errors
/// If no answer arrives within some seconds.
pub fn http_get(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    http_get_within(address, path, LIMIT)
}

/// As [`http_get`], with another limit.
///
/// # Errors
/// If no answer arrives within the limit.
pub fn http_get_within(address: SocketAddr, path: &str, limit: Duration) -> Result<HttpAnswer> {
    answer(agent(limit).get(url(address, path)).call())
}

/// Sends a GET request with a query.
///
/// # Errors
/// If no answer arrives within some seconds.
pub(super) fn http_get_query(
    address: SocketAddr,
    path: &str,
    query: &[(&str, &str)],
) -> Result<HttpAnswer> {
    let request = agent(LIMIT).get(url(address, path));
    answer(request.query_pairs(query.iter().copied()).call())
}

/// Sends a HEAD request.
///
/// # Errors
/// If no answer arrives within some seconds.
pub fn http_head(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    answer(agent(LIMIT).head(url(address, path)).call())
}

/// Sends an OPTIONS request.
///
/// # Errors
/// If no answer arrives within some seconds.
pub fn http_options(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    answer(agent(LIMIT).options(url(address, path)).call())
}

/// Sends a POST request without a body.
///
/// # Errors
/// If no answer arrives within some seconds.
pub fn http_post(address: SocketAddr, path: &str) -> Result<HttpAnswer> {
    answer(agent(LIMIT).post(url(address, path)).send_empty())
}

/// Sends a command: a POST request with a token and a body.
///
/// # Errors
/// If no answer arrives within half a minute.
pub fn http_order(address: SocketAddr, path: &str, token: &str, body: &str) -> Result<HttpAnswer> {
    let request = agent(ORDER_LIMIT).post(url(address, path));
    answer(
        request
            .header("Authorization", format!("Bearer {token}"))
            .send(body),
    )
}

/// Creates an HTTP client that ignores proxies of the environment. It returns redirects instead of following them.
fn agent(limit: Duration) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None);
    config.build().into()
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}

fn answer(response: Result<Response<ureq::Body>, ureq::Error>) -> Result<HttpAnswer> {
    let mut response = response?;
    let location = response.headers().get("Location");
    let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into());
    Ok(HttpAnswer {
        status: response.status().as_u16(),
        location,
        body: response.body_mut().read_to_string()?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_is_status_and_body_and_silence_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let once = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Read to the end: unread bytes would reset the connection before the client has read the answer.
            let mut lines = BufReader::new(&mut stream).lines();
            while !lines.next().unwrap().unwrap().is_empty() {}
            let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 7\r\n\r\n{\"x\":1}";
            stream.write_all(answer.as_bytes()).unwrap();
            listener
        });
        let answer = http_get(address, "/status").unwrap();
        assert_eq!(
            (answer.status, answer.json().unwrap()["x"].as_u64()),
            (503, Some(1))
        );
        let _silent = once.join().unwrap();
        http_get_within(address, "/status", Duration::from_millis(50)).unwrap_err();
    }
}
