//! What keys mean together. Pure: nothing here looks at a file. A rule says nothing about a key
//! whose own value is already wrong.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::binlog_server;
use super::build::own_socket;
use super::external_mysqld;
use super::problem::Problems;
use super::quorum_rules;
use super::regions;
use super::values::Values;

/// What the operating system takes as the path of a unix socket, in bytes.
const LONGEST_SOCKET: usize = 107;

/// Records every broken rule.
pub(crate) fn check(values: &Values, members: &[Values], problems: &mut Problems) {
    unique(members, problems);
    own_entry(values, members, problems);
    votes(members, problems);
    quorum_rules::check(values, members, problems);
    regions::check(values, members, problems);
    timers(values, problems);
    tls(values, problems);
    if own_kind(values, members).as_deref() == Some("database") {
        mysql(values, problems);
    }
    listeners(values, members, problems);
    for key in ["data_dir", "logging.level", "mysql.user"] {
        if values.text(key).is_some_and(|text| text.trim().is_empty()) {
            problems.error(
                values.report_at(key),
                key,
                format!("`{key}` is empty"),
                "give it a value, or remove the line for its default",
            );
        }
    }
}

/// The kind of the member that this process is.
pub(crate) fn own_kind(values: &Values, members: &[Values]) -> Option<String> {
    own(values, members)?.text("members.kind")
}

fn own<'a>(values: &Values, members: &'a [Values]) -> Option<&'a Values> {
    let id = values.number("member.id")?;
    members
        .iter()
        .find(|member| member.number("members.id") == Some(id))
}

fn unique(members: &[Values], problems: &mut Problems) {
    for key in ["members.id", "members.name", "members.address"] {
        let mut seen: BTreeMap<String, &Values> = BTreeMap::new();
        for member in members {
            let number = member.number(key).map(|number| number.to_string());
            let Some(value) = number.or_else(|| member.text(key)) else {
                continue;
            };
            match seen.get(&value) {
                Some(first) => problems.error(
                    member.place_of(key),
                    key,
                    format!(
                        "`{key}` {value} is taken already, at {}",
                        first.place_of(key)
                    ),
                    "give every member its own",
                ),
                None => {
                    seen.insert(value, member);
                }
            }
        }
    }
    for member in members {
        let Some(address) = member.text("members.address") else {
            continue;
        };
        if address.is_empty() || address.ends_with(":0") {
            problems.error(
                member.place_of("members.address"),
                "members.address",
                format!("`members.address` \"{address}\" cannot be reached by the other members"),
                "write the host and the port at which this member is reached",
            );
        }
        let unspecified = ["0.0.0.0:", "[::]:", "*:"];
        if unspecified.iter().any(|prefix| address.starts_with(prefix)) {
            problems.error(
                member.place_of("members.address"),
                "members.address",
                format!("`members.address` \"{address}\" names no host"),
                "write the host that the other members connect to; where to listen is `member.listen`",
            );
        }
    }
}

fn own_entry(values: &Values, members: &[Values], problems: &mut Problems) {
    let Some(id) = values.number("member.id") else {
        return;
    };
    let ids: Vec<_> = members
        .iter()
        .map(|member| member.number("members.id"))
        .collect();
    // A member whose id could not be read may be the one; its own mistake is enough.
    if ids.is_empty() || ids.contains(&Some(id)) || ids.contains(&None) {
        return;
    }
    let known: Vec<_> = ids.iter().flatten().map(u64::to_string).collect();
    problems.error(
        values.report_at("member.id"),
        "member.id",
        format!("member {id} is not listed in [[members]]"),
        format!(
            "add its entry, or write one of the ids that are listed: {}",
            known.join(", ")
        ),
    );
}

fn votes(members: &[Values], problems: &mut Problems) {
    let Some(votes) = members
        .iter()
        .map(|m| m.bool("members.votes"))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let Some(first) = members.first() else { return };
    match votes.iter().filter(|votes| **votes).count() {
        0 => problems.error(
            &first.place,
            "members.votes",
            "no member votes",
            "let at least one vote, better three",
        ),
        2 => problems.warning(
            &first.place,
            "members.votes",
            "two members vote, so the loss of either stops every commit",
            "add a third voting member; a witness is enough",
        ),
        _ => {}
    }
    let kinds: Vec<_> = members
        .iter()
        .map(|member| member.text("members.kind"))
        .collect();
    if !kinds.contains(&None) && !kinds.contains(&Some("database".to_owned())) {
        problems.warning(
            &first.place,
            "members.kind",
            "no member is of kind `database`, so nothing will ever be written",
            "give the member beside the mysqld the kind `database`",
        );
    }
}

/// A heartbeat may leave a fifth of its interval late and one may be slow, so a shorter lease would
/// replace leaders that are well; a much longer one would leave the ring without a leader.
fn timers(values: &Values, problems: &mut Problems) {
    let (Some(heartbeat), Some(lease)) = (
        values.duration("raft.heartbeat"),
        values.duration("raft.lease"),
    ) else {
        return;
    };
    let (shortest, longest) = (heartbeat * 3 / 2, heartbeat * 20);
    if lease.is_zero() || (shortest..=longest).contains(&lease) {
        return;
    }
    problems.error(
        values.report_at("raft.lease"),
        "raft.lease",
        format!(
            "a `raft.lease` of {} ms does not go with a `raft.heartbeat` of {} ms",
            lease.as_millis(),
            heartbeat.as_millis()
        ),
        format!(
            "choose one from {} ms to {} ms, or remove the line for 1.5 times the heartbeat (60 ms more than it at least)",
            shortest.as_millis(),
            longest.as_millis()
        ),
    );
}

fn tls(values: &Values, problems: &mut Problems) {
    let keys = ["tls.certificate_file", "tls.key_file", "tls.ca_file"];
    let given = |key: &&str| values.text(key).is_some_and(|text| !text.is_empty());
    let Some(present) = keys.iter().find(|key| given(key)) else {
        return;
    };
    for key in keys {
        if values.text(key).is_some_and(|text| text.is_empty()) {
            problems.error(
                values.report_at(present),
                key,
                format!("`{present}` is given, but `{key}` is not"),
                "TLS between members needs certificate, key and authorities",
            );
        }
    }
}

fn mysql(values: &Values, problems: &mut Problems) {
    let empty = |key: &str| values.text(key).is_some_and(|text| text.is_empty());
    let verifies = values
        .text("mysql.tls")
        .filter(|mode| mode.starts_with("verify_"));
    if let Some(mode) = verifies
        && empty("mysql.tls_ca_file")
    {
        problems.error(
            values.report_at("mysql.tls"),
            "mysql.tls_ca_file",
            format!("`mysql.tls` is `{mode}`, but `mysql.tls_ca_file` is not given"),
            "name the file of the authorities that signed mysqld's certificate",
        );
    }
    let certificate = ["mysql.tls_certificate_file", "mysql.tls_key_file"];
    for (given, missing) in [
        (certificate[0], certificate[1]),
        (certificate[1], certificate[0]),
    ] {
        if values.text(given).is_some_and(|text| !text.is_empty()) && empty(missing) {
            problems.error(
                values.report_at(given),
                missing,
                format!("`{given}` is given, but `{missing}` is not"),
                "a certificate needs its key and a key its certificate",
            );
        }
    }
    if empty("mysql.socket") && empty("mysql.host") {
        problems.error(
            values.report_at("mysql.host"),
            "mysql.host",
            "neither `mysql.host` nor `mysql.socket` is given",
            "name one of them",
        );
    }
    let both = values
        .text("mysql.password")
        .is_some_and(|text| !text.is_empty())
        && values
            .text("mysql.password_file")
            .is_some_and(|text| !text.is_empty());
    if both {
        problems.error(
            values.report_at("mysql.password_file"),
            "mysql.password_file",
            "`mysql.password` and `mysql.password_file` are both given",
            "keep one of them",
        );
    }
    external_mysqld::check(values, problems);
    if values.text("mysql.mode").as_deref() != Some("child") {
        return;
    }
    let given = values
        .text("mysql.socket")
        .filter(|socket| !socket.is_empty());
    let socket = given.map(PathBuf::from).or_else(|| own_socket(values));
    if let Some(socket) = socket
        && socket.as_os_str().len() > LONGEST_SOCKET
    {
        problems.error(
            values.report_at("mysql.socket"),
            "mysql.socket",
            format!(
                "the path of the unix socket {} is too long",
                socket.display()
            ),
            format!("give `mysql.socket` a path of at most {LONGEST_SOCKET} bytes"),
        );
    }
    if values
        .list("mysql.mysqld")
        .is_some_and(|command| command.is_empty())
    {
        problems.error(
            values.report_at("mysql.mysqld"),
            "mysql.mysqld",
            "`mysql.mysqld` is empty, but the member has to start mysqld",
            "write the command, as in [\"/usr/sbin/mysqld\"], or set `mysql.mode` to \"attach\"",
        );
    }
    if empty("mysql.datadir") {
        problems.error(
            values.report_at("mysql.datadir"),
            "mysql.datadir",
            "`mysql.datadir` is missing, but the member has to start mysqld",
            "name mysqld's data directory, or set `mysql.mode` to \"attach\"",
        );
    }
}

fn listeners(values: &Values, members: &[Values], problems: &mut Problems) {
    let mut taken = Vec::new();
    let own_calls = "the other members' calls are taken in";
    let own_address = || own(values, members).and_then(|own| own.text("members.address"));
    let own_listen = values
        .text("member.listen")
        .filter(|listen| !listen.is_empty());
    taken.extend(
        own_listen
            .or_else(own_address)
            .map(|listen| (own_calls, listen)),
    );
    taken.extend(
        values
            .text("http.listen")
            .map(|http| ("HTTP is served", http)),
    );
    binlog_server::check(values, &taken, problems);
    let Some(http) = values.text("http.listen").filter(|http| !http.is_empty()) else {
        return;
    };
    let listen = values
        .text("member.listen")
        .filter(|listen| !listen.is_empty());
    let address = || own(values, members).and_then(|own| own.text("members.address"));
    if !http.ends_with(":0") && listen.or_else(address).as_deref() == Some(http.as_str()) {
        problems.error(
            values.report_at("http.listen"),
            "http.listen",
            format!("`http.listen` is {http}, where the other members' calls are taken in"),
            "give it a port of its own",
        );
    }
}
