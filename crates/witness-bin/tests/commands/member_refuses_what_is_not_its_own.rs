//! A member does not start on a data directory that belongs to another member, is in use, or is damaged. It
//! starts if the damage can be repaired without a loss.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Child;
use std::time::Duration;

use crate::program::played::{configure, played};
use crate::program::{Run, Scratch, witness};
use rustix::process::{Pid, Signal, kill_process};
use testkit::wait::eventually;

fn start(scratch: &Scratch) -> Child {
    witness(scratch).args(["run"]).spawn()
}

/// Waits until the member has printed these words, and returns all output until then.
fn wait_for(child: &mut Child, words: &str) -> String {
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    while !said.contains(words) {
        let read = lines.read_line(&mut said).expect("a line");
        assert!(read > 0, "it ended without saying `{words}`:\n{said}");
    }
    child.stderr = Some(lines.into_inner());
    said
}

fn terminate(child: Child) -> i32 {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    output.status.code().unwrap_or(-1)
}

fn refused(scratch: &Scratch) -> Run {
    witness(scratch).args(["run"]).run()
}

/// The member may not write in a directory of its data, for example because root has copied it. The files that a start opens may still
/// belong to the member.
#[test]
fn a_log_or_a_hard_state_in_which_it_may_not_write() {
    for kept in ["log", "meta"] {
        let scratch = Scratch::new();
        let copy = played().copy("witness-1", &scratch);
        configure(&scratch, 1, &copy);
        let path = copy.join(kept);
        fs::set_permissions(&path, Permissions::from_mode(0o555)).expect("its mode");
        let run = witness(&scratch).args(["run"]);
        let run = run.without_the_rights_of_root().run();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its mode");
        assert_eq!(run.code, 4, "{run}");
        let expected = format!("cannot write in {}", path.display());
        assert!(run.stderr.contains(&expected), "{run}");
        assert!(
            run.stderr.contains("`chown -R` the data directory"),
            "{run}"
        );
    }
}

#[test]
fn a_foreign_identity() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 3, &copy);
    let run = refused(&scratch);
    assert_eq!(run.code, 4, "{run}");
    assert!(
        run.stderr
            .contains("belongs to member 2 `witness-1` of ring `demo`"),
        "{run}"
    );
    assert!(
        run.stderr
            .contains("the configuration says member 3 `witness-2`"),
        "{run}"
    );
}

#[test]
fn a_directory_in_use() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    let mut first = start(&scratch);
    wait_for(&mut first, "started");
    configure(&scratch, 2, &copy);
    let run = refused(&scratch);
    assert_eq!(run.code, 4, "{run}");
    let expected = format!("is in use by the process with the pid {}", first.id());
    assert!(run.stderr.contains(&expected), "{run}");
    assert_eq!(terminate(first), 0);
}

#[test]
fn a_changed_byte_in_a_closed_file() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    let path = copy.join("log/binlog.000001");
    let file = OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the file");
    file.write_all_at(b"\xff\xff", 20_000).expect("the damage");
    let run = refused(&scratch);
    assert_eq!(run.code, 7, "{run}");
    assert!(run.stderr.contains("binlog.000001 at offset 1"), "{run}");
    let mut damaged = [0; 2];
    let file = fs::File::open(&path).expect("the file");
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut damaged, 20_000).expect("two bytes");
    assert_eq!(
        &damaged, b"\xff\xff",
        "nothing is repaired without an order"
    );
}

#[test]
fn an_end_that_is_gone() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    let path = copy.join("log/binlog.000002");
    let size = fs::metadata(&path).expect("the file").len();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(size / 2))
        .expect("a cut");
    let run = refused(&scratch);
    assert_eq!(run.code, 7, "{run}");
    assert!(
        run.stderr.contains("acknowledged entries are gone"),
        "{run}"
    );
}

#[test]
fn a_lost_identity() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    fs::remove_file(copy.join("identity")).expect("the identity");
    let run = refused(&scratch);
    assert_eq!(run.code, 7, "{run}");
    assert!(
        run.stderr
            .contains("identity is missing, but the directory holds a log"),
        "{run}"
    );
}

#[test]
fn a_log_that_is_gone_with_its_hard_state() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    let child = start(&scratch);
    let begun = || {
        let identity = fs::read_to_string(copy.join("identity"));
        identity.is_ok_and(|identity| identity.contains("log_begun"))
    };
    eventually("it has noted its log", Duration::from_secs(60), begun).expect("a note");
    // The exit code is not checked: the member may not have started so far that SIGTERM stops it cleanly.
    terminate(child);
    for part in ["log", "meta"] {
        fs::remove_dir_all(copy.join(part)).expect(part);
    }
    configure(&scratch, 2, &copy);
    let run = refused(&scratch);
    assert_eq!(run.code, 7, "{run}");
    assert!(run.stderr.contains("no longer has a log"), "{run}");
    assert!(run.stderr.contains("under a new number"), "{run}");
    assert!(!copy.join("log").exists(), "no new log is made");
}

#[test]
fn a_snapshot_that_a_full_disk_left_half_made() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    let half_made = copy.join("meta/snap.FFFFFFFFFFFFFFFF.generating");
    fs::write(&half_made, b"").expect("a file");
    let mut child = start(&scratch);
    wait_for(&mut child, "the log is open");
    assert_eq!(terminate(child), 0);
    assert!(!half_made.exists());
    // A complete snapshot that is damaged is an error.
    fs::write(copy.join("meta/snap.FFFFFFFFFFFFFFFF"), b"damage").expect("a file");
    configure(&scratch, 2, &copy);
    let run = refused(&scratch);
    assert_eq!(run.code, 7, "{run}");
    assert!(run.stderr.contains("log verify"), "{run}");
    assert!(!run.stderr.contains("process"), "{run}");
}

#[test]
fn a_missing_index_is_made_again() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    configure(&scratch, 2, &copy);
    let index = copy.join("log/binlog.index");
    let before = fs::read(&index).expect("the index");
    fs::remove_file(&index).expect("the index");
    let mut child = start(&scratch);
    let said = wait_for(&mut child, "the log is open");
    assert!(said.contains("index missing"), "{said}");
    assert_eq!(terminate(child), 0);
    assert_eq!(fs::read(&index).expect("the index"), before);
}

#[test]
fn a_port_that_is_taken() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    configure(&scratch, 2, &copy);
    let run = witness(&scratch)
        .args(["run", "--member-listen", &address])
        .run();
    assert_eq!(run.code, 1, "{run}");
    assert!(
        run.stderr
            .contains(&format!("`member.listen` {address} cannot be listened at")),
        "{run}"
    );
}
