//! The page at `/` of real members: which clients get it, what a browser may do with it, and its document `GET /ring`, with and without a
//! quorum.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::cluster::{http_get, http_get_within};

use crate::program::ring::Ring;

const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
/// Time limit of a request. It is longer than a member waits for the answers of other members.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the head and the body of the answer to a client that sends this `Accept` header.
fn get(address: SocketAddr, path: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn document(address: SocketAddr) -> Value {
    let answer = http_get_within(address, "/ring", PATIENCE).expect("an answer");
    assert_eq!(answer.status, 200);
    answer.json().expect("JSON")
}

#[test]
fn a_browser_gets_the_page_and_a_balancer_the_answer() {
    let ring = Ring::launch(&[
        "db-1 north database",
        "witness-1 north witness",
        "witness-2 north witness",
    ]);
    for at in 0..3 {
        let address = ring.http(at);
        let (head, body) = get(address, "/", BROWSER);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/html"), "{head}");
        assert!(
            head.contains("content-security-policy: default-src 'none'"),
            "{head}"
        );
        assert!(
            body.contains("<main") && !body.contains("<script>"),
            "{body}"
        );
        let (head, body) = get(address, "/", "*/*");
        let asked = http_get(address, "/primary").expect("an answer");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {}", asked.status)),
            "{head}"
        );
        assert_eq!(body, asked.body);
    }
    let (_, page) = get(ring.http(1), "/", BROWSER);
    for file in ["page/page.css", "page/page.js", "page/icon.svg"] {
        assert!(page.contains(file), "the page has {file}");
        let answer = http_get(ring.http(1), &format!("/{file}")).expect("an answer");
        assert_eq!(answer.status, 200, "{file}");
    }

    // A witness returns the same document of the ring as the leader.
    ring.wait("everybody is level", || {
        let seen = document(ring.http(1));
        let members = seen["members"].as_array().cloned().unwrap_or_default();
        members.iter().all(|member| member["lag_entries"] == 0)
    });
    let (head, _) = get(ring.http(1), "/ring", BROWSER);
    assert!(head.contains("content-type: application/json"), "{head}");
    let seen = document(ring.http(1));
    assert_eq!(seen["leader"], 1);
    assert_eq!(seen["seen_by"], "witness-1");
    assert_eq!(seen["quorum"]["ok"], true);
    assert_eq!(
        seen["voter_sets"],
        json!([{ "members": [1, 2, 3], "required": 2 }])
    );
    assert_eq!(
        seen["hops"],
        json!([{ "from": 1, "to": 2 }, { "from": 1, "to": 3 }])
    );
    let commit = seen["commit"][0].as_str().expect("a sentence");
    assert!(
        commit.starts_with("A commit waits for 2 of the 3 voters of region north"),
        "{commit}"
    );
    for member in seen["members"].as_array().expect("members") {
        assert_eq!(member["answers"], true, "{member}");
        assert_eq!(member["in_quorum"], true, "{member}");
        assert_eq!(member["region"], "north", "{member}");
        assert!(member["log_end"]["index"].is_u64(), "{member}");
    }
    let events = seen["events"].as_array().expect("events");
    let told = |what: &str| {
        let mut texts = events.iter().filter_map(|event| event["text"].as_str());
        texts.any(|text| text.starts_with(what))
    };
    assert!(
        told("`witness-1` started") && told("`db-1` leads in term"),
        "{events:?}"
    );
}

#[test]
fn without_a_quorum_a_member_shows_what_it_knows() {
    let mut ring = Ring::launch(&[
        "db-1 north database",
        "witness-1 north witness",
        "witness-2 north witness",
    ]);
    let left = ring.http(1);
    // The remaining member needs the ring's log first: without it, it does not have the voters.
    ring.wait("it has the ring's log", || {
        document(left)["members"][1]["log_end"]["index"].is_u64()
    });
    ring.kill(0);
    ring.kill(2);
    ring.wait("the others are missed", || {
        document(left)["quorum"]["ok"] == false
    });
    let seen = document(left);
    assert_eq!(seen["leader"], Value::Null);
    let cause = seen["quorum"]["cause"].as_str().expect("a cause");
    assert_eq!(cause, "1 of 3 voters answer and 2 are needed");
    let fix = seen["quorum"]["fix"].as_str().expect("what to do");
    assert!(
        fix.contains("`db-1`") && fix.contains("`witness-2`"),
        "{fix}"
    );
    let answers = |at: usize| seen["members"][at]["answers"].clone();
    assert_eq!([answers(0), answers(1), answers(2)], [false, true, false]);
    assert_eq!(seen["voter_sets"][0]["required"], 2);
    let (head, body) = get(left, "/", BROWSER);
    assert!(
        head.starts_with("HTTP/1.1 200") && body.contains("<main"),
        "{head}"
    );
    let (head, _) = get(left, "/", "*/*");
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    ring.wait("the silence is reported", || {
        let seen = document(left);
        let events = seen["events"].as_array().cloned().unwrap_or_default();
        let told = |what: &str| events.iter().any(|event| event["text"] == *what);
        told("`db-1` does not answer") && told("`db-1` lost the leadership; no leader is known")
    });
}
