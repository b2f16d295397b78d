//! A single member answers over HTTP and to `witness status`, before and after its ring is created.

use std::time::Duration;

use crate::program::alone::Alone;
use crate::program::{Scratch, witness};
use rustix::process::{Pid, Signal, kill_process};
use testkit::cluster::{http_get, http_head, http_options};
use testkit::wait::eventually;

/// The member that the test queries.
struct Member(Alone);

impl Member {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        Self(Alone::start(scratch, "", &[], arguments))
    }

    fn get(&self, path: &str) -> (u16, String) {
        let answer = http_get(self.0.http, path).expect("an answer");
        (answer.status, answer.body)
    }

    /// Waits until a path is answered with this status code.
    fn wait_for(&self, path: &str, code: u16) {
        let what = format!("{path} answers {code}");
        let answered = eventually(&what, Duration::from_secs(20), || {
            match http_get(self.0.http, path) {
                Ok(answer) if answer.status == code => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        answered.expect("that answer");
    }

    fn terminate(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0.child), Signal::TERM).expect("a signal");
        self.0.child.wait().expect("its end").code()
    }
}

#[test]
fn a_witness_that_leads_alone_answers_every_page() {
    let scratch = Scratch::new();
    let member = Member::start(&scratch, &["--bootstrap"]);
    member.wait_for("/readiness", 200);
    for (path, code) in [
        ("/liveness", 200),
        ("/health", 200),
        ("/witness", 200),
        ("/leader", 200),
        ("/config", 200),
        ("/read-only", 503),
        ("/primary", 503),
        ("/read-write", 503),
        ("/replica", 503),
        ("/nothing", 404),
        ("/check/archiver/mysql/alone", 200),
        ("/check/archiver/mysql/other", 404),
        ("/check/archiver/memcached/alone", 404),
    ] {
        assert_eq!(member.get(path).0, code, "{path}");
    }
    assert!(member.get("/primary").1.contains("it is a witness"));
    // OPTIONS is HAProxy's default for health checks.
    for (path, code) in [
        ("/leader", 200),
        ("/primary", 503),
        ("/replica?lag=1s", 503),
    ] {
        let asked = http_options(member.0.http, path).expect("an answer");
        assert_eq!(asked.status, code, "{path}");
    }
    let head = http_head(member.0.http, "/health").expect("an answer");
    assert_eq!((head.status, head.body.as_str()), (200, ""));

    let path = "/check/archiver/mysql/alone";
    let check: serde_json::Value = serde_json::from_str(&member.get(path).1).expect("JSON");
    let expected =
        serde_json::json!({ "StatusCode": 200, "Message": "", "Value": 0.0, "Threshold": 1.0 });
    assert_eq!(check, expected);
    let head = http_head(member.0.http, path).expect("an answer");
    assert_eq!((head.status, head.body.as_str()), (200, ""));

    let status: serde_json::Value = serde_json::from_str(&member.get("/status").1).expect("JSON");
    assert_eq!(
        (&status["role"], &status["serving"]),
        (&"leader".into(), &true.into())
    );
    assert_eq!(status["log"]["file"], "binlog.000001");
    let cluster: serde_json::Value = serde_json::from_str(&member.get("/cluster").1).expect("JSON");
    assert_eq!(cluster["members"][0]["role"], "leader");
    let config: serde_json::Value = serde_json::from_str(&member.get("/config").1).expect("JSON");
    assert_eq!(config["members"][0]["name"], "only");
    assert_eq!(config["rules"], status["rules"]);
    let metrics = member.get("/metrics").1;
    let line = "witness_serving{ring=\"alone\",member=\"only\",region=\"here\"} 1.0";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
    for metric in [
        "process_cpu_seconds_total ",
        "process_open_fds ",
        "process_resident_memory_bytes ",
    ] {
        let line = metrics.lines().find_map(|line| line.strip_prefix(metric));
        let value: f64 = line.and_then(|value| value.parse().ok()).expect(metric);
        assert!(value > 0.0, "{metric}{value}");
    }

    let run = witness(&scratch).args(["status"]).run();
    assert_eq!(run.code, 0, "{run}");
    let first = "The quorum answers, `only` leads ring `alone`; it tolerates 0 more failures: ";
    assert!(run.stdout.starts_with(first), "{run}");
    assert_eq!(member.terminate(), Some(0));
    let run = witness(&scratch).args(["log", "verify", "d"]).run();
    assert_eq!(run.code, 0, "{run}");
}

#[test]
fn a_member_that_waits_for_its_ring_is_alive_and_not_ready_and_can_be_stopped() {
    let scratch = Scratch::new();
    let member = Member::start(&scratch, &[]);
    member.wait_for("/liveness", 200);
    let (code, body) = member.get("/readiness");
    assert_eq!(code, 503);
    assert!(
        body.contains("waits for its ring to be bootstrapped"),
        "{body}"
    );
    let run = witness(&scratch).args(["status"]).run();
    assert_eq!(run.code, 3, "{run}");
    assert!(run.stdout.contains("the ring is not bootstrapped"), "{run}");
    assert!(run.stdout.contains("witness bootstrap"), "{run}");
    assert_eq!(member.terminate(), Some(0));
}

#[test]
fn a_ring_that_exists_ignores_bootstrap() {
    let scratch = Scratch::new();
    let member = Member::start(&scratch, &["--bootstrap"]);
    member.wait_for("/readiness", 200);
    let ring = |member: &Member| {
        let status: serde_json::Value =
            serde_json::from_str(&member.get("/status").1).expect("JSON");
        status["ring"]["id"].clone()
    };
    let first = ring(&member);
    assert!(first.is_string());
    assert_eq!(member.terminate(), Some(0));
    let again = Member::start(&scratch, &["--bootstrap"]);
    again.wait_for("/readiness", 200);
    assert_eq!(ring(&again), first);
    assert_eq!(again.terminate(), Some(0));
}
