//! Rules for combinations of keys. Pure: no rule reads a file. A rule skips a key
//! whose own value is already wrong, which `validation` reports first.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consensus::quorum;

use crate::config::build::own_socket;
use crate::config::problem::{Problems, listed, nearest};
use crate::config::sections;
use crate::config::validation::Values;

/// The longest path of a unix socket that the operating system accepts, in bytes.
const LONGEST_SOCKET: usize = 107;
/// Log files that are purged sooner are of no use to readers.
const SHORTEST_AGE: Duration = Duration::from_secs(60);

/// Checks the rules among the keys, and reports every broken one.
pub(crate) fn check(values: &Values, members: &[Values], problems: &mut Problems) {
    unique(members, problems);
    own_entry(values, members, problems);
    votes(members, problems);
    check_quorum(values, members, problems);
    sections::check_regions(values, members, problems);
    timers(values, problems);
    tls(values, problems);
    if own_kind(values, members).as_deref() == Some("database") {
        mysql(values, problems);
        nothing_is_applied(values, members, problems);
    }
    listeners(values, members, problems);
    log_limits(values, problems);
    sections::check_binlog_server(values, problems);
    sections::check_archive(values, problems);
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

/// The kind of this process's member.
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
    // A member whose id could not be read may be this one; its own mistake is enough.
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

/// A mysqld that does not apply the ring's log lacks transactions from the time of another primary.
fn nothing_is_applied(values: &Values, members: &[Values], problems: &mut Problems) {
    let own = values.number("member.id");
    let others = members.iter().any(|member| {
        member.text("members.kind").as_deref() == Some("database")
            && member.bool("members.votes") == Some(true)
            && member.number("members.id") != own
    });
    let (key, advice) = match (
        values.text("mysql.apply"),
        values.bool("mysql.manage_settings"),
    ) {
        (Some(apply), _) if apply == "off" => ("mysql.apply", "set it to \"rows\" or \"native\""),
        (_, Some(false)) => ("mysql.manage_settings", "set it to true"),
        _ => return,
    };
    if others {
        problems.warning(
            values.report_at(key),
            key,
            format!(
                "with this `{key}` the ring's log is not applied to this member's mysqld: once another one was the primary it lacks \
                 what was written there, and can never be the primary again"
            ),
            format!("{advice}; or, where no mysqld is to follow, make this member a witness"),
        );
    }
}

/// A heartbeat may be sent a fifth of its interval late, and one may be slow. So a shorter lease would
/// replace healthy leaders; a much longer one would leave the ring without a leader.
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

pub(super) fn tls(values: &Values, problems: &mut Problems) {
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
    let operator = ["tls.operator_certificate_file", "tls.operator_key_file"];
    for (one, other) in [(operator[0], operator[1]), (operator[1], operator[0])] {
        if given(&one) && values.text(other).is_some_and(|text| text.is_empty()) {
            problems.error(
                values.report_at(one),
                other,
                format!("`{one}` is given, but `{other}` is not"),
                "a certificate needs its key and a key its certificate",
            );
        }
    }
    if values.bool(PLAINTEXT) == Some(true) {
        problems.error(
            values.report_at(PLAINTEXT),
            PLAINTEXT,
            format!("`{PLAINTEXT}` is set, and so is `{present}`"),
            "keep one of them: members talk with TLS, or without",
        );
    }
}

const PLAINTEXT: &str = "tls.plaintext";

/// An address reachable from other hosts needs TLS, or `tls.plaintext`. Not checked for `witness tls init`, which runs before.
pub(crate) fn check_beyond_loopback(values: &Values, members: &[Values], problems: &mut Problems) {
    let without = values
        .text("tls.certificate_file")
        .is_some_and(|text| text.is_empty());
    if !without || values.bool(PLAINTEXT) != Some(false) {
        return;
    }
    let listens = ["member.listen", "http.listen", "binlog_server.listen"];
    let listening = listens
        .iter()
        .filter_map(|key| Some((*key, values.text(key)?, values.report_at(key))));
    let own = own(values, members);
    let others = members.iter().filter(|member| {
        own.is_none_or(|own| own.number("members.id") != member.number("members.id"))
    });
    let called = own.into_iter().chain(others).filter_map(|member| {
        let key = "members.address";
        Some((key, member.text(key)?, member.place_of(key)))
    });
    let mut reached = listening.chain(called);
    if let Some((key, address, at)) = reached.find(|(_, address, _)| beyond_loopback(address)) {
        problems.error(
            at,
            key,
            format!("`{key}` {address} is beyond loopback, and `[tls]` has no certificate"),
            format!("make certificates with `witness tls init` and name them in `[tls]`, or set `{PLAINTEXT} = true` to do without TLS"),
        );
    }
}

/// Whether an address, `HOST:PORT`, is on another host or reachable from one; false for an empty one.
fn beyond_loopback(address: &str) -> bool {
    let Some((host, _)) = address.rsplit_once(':') else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let numeric = host.parse::<IpAddr>();
    numeric.map_or(!host.eq_ignore_ascii_case("localhost"), |address| {
        !address.to_canonical().is_loopback()
    })
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
    sections::check_external_mysqld(values, problems);
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
    let command = values.list("mysql.mysqld").unwrap_or_default();
    let names = command.iter().map(|word| Path::new(word).file_name());
    let wrappers = ["mysqld_safe", "mysqld_multi", "mariadbd-safe"].map(OsStr::new);
    if let Some(wrapper) = names.flatten().find(|name| wrappers.contains(name)) {
        problems.error(
            values.report_at("mysql.mysqld"),
            "mysql.mysqld",
            format!(
                "`mysql.mysqld` runs {}, which starts mysqld again by itself: after a crash that mysqld would serve transactions that \
                 the ring lacks",
                wrapper.to_string_lossy()
            ),
            "write the command of mysqld itself, as in [\"/usr/sbin/mysqld\"]: the member starts it again",
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
    let given = |key| {
        values
            .text(key)
            .filter(|listen: &String| !listen.is_empty())
    };
    let own_address = || own(values, members).and_then(|own| own.text("members.address"));
    let own_calls = given("member.listen").or_else(own_address);
    let listeners = [
        (
            "member.listen",
            "the other members' calls are taken in",
            own_calls,
        ),
        ("http.listen", "HTTP is served", given("http.listen")),
        (
            "binlog_server.listen",
            "the binlog server is",
            given("binlog_server.listen"),
        ),
    ];
    for (at, (key, _, listen)) in listeners.iter().enumerate() {
        let Some(listen) = listen else { continue };
        let before = listeners.iter().take(at);
        let taken = before
            .filter_map(|(_, what, other)| Some((what, other.as_ref()?)))
            .find(|(_, other)| meet(listen, other));
        if let Some((what, _)) = taken {
            problems.error(
                values.report_at(key),
                key,
                format!("`{key}` is {listen}, where {what}"),
                "give it a port of its own",
            );
        }
    }
    if let Some(listen) = given("member.listen").filter(|listen| listen.ends_with(":0")) {
        problems.error(
            values.report_at("member.listen"),
            "member.listen",
            format!("`member.listen` is {listen}, a port that nobody knows"),
            "write the port at which the other members call this one",
        );
    }
}

/// Whether both cannot be bound: same port on the same host, or on all its addresses. Port 0 is different each time.
fn meet(one: &str, other: &str) -> bool {
    let (Some((host, port)), Some((other, other_port))) =
        (one.rsplit_once(':'), other.rsplit_once(':'))
    else {
        return false;
    };
    let is_every = |host: &str| matches!(host, "0.0.0.0" | "[::]" | "*" | "");
    let same_host = host == other || is_every(host) || is_every(other);
    port == other_port && port != "0" && same_host
}

/// Limits under which the member accepts, or keeps, no entries.
fn log_limits(values: &Values, problems: &mut Problems) {
    let limit = "log.disk_limit_bytes";
    if let (Some(bytes), Some(file)) = (values.number(limit), values.number("log.max_file_bytes"))
        && bytes > 0
        && bytes < file
    {
        problems.warning(
            values.report_at(limit),
            limit,
            format!(
                "`{limit}` is {bytes} bytes, less than one file of the log has (`log.max_file_bytes`, {file}): no file can be purged \
                 before new transactions are refused"
            ),
            "give the log room for some files, or 0 for no limit",
        );
    }
    let keep = "log.keep_for";
    if let Some(age) = values.duration(keep)
        && !age.is_zero()
        && age < SHORTEST_AGE
    {
        problems.warning(
            values.report_at(keep),
            keep,
            format!(
                "with a `{keep}` of {} ms files go as soon as they are closed: a replica or consumer that was away for a moment finds \
                 nothing to go on with",
                age.as_millis()
            ),
            "keep them for hours, better days; `0s` is never by age",
        );
    }
}

// The combination of `[quorum]` with the members' regions. Pure.

const POLICY: &str = "quorum.policy";
const REGIONS: &str = "quorum.regions";
const PREFERENCE: &str = "quorum.region_preference";

/// Checks `quorum.*` against the members, and reports every broken rule.
pub(crate) fn check_quorum(values: &Values, members: &[Values], problems: &mut Problems) {
    let Some(policy) = values.text(POLICY) else {
        return;
    };
    let Some(voters) = voters_by_region(members) else {
        return;
    };
    listed_once(values, problems);
    match (policy.as_str(), values.list(REGIONS)) {
        ("regions", Some(regions)) if regions.is_empty() => problems.error(
            values.report_at(POLICY),
            REGIONS,
            "`quorum.policy` is `regions`, but `quorum.regions` names none",
            "list the regions of which every commit needs a majority, or choose another policy",
        ),
        ("regions", Some(regions)) => {
            for region in regions {
                required(&region, &voters, values, problems);
            }
        }
        (_, Some(regions)) if !regions.is_empty() => problems.warning(
            values.report_at(REGIONS),
            REGIONS,
            format!("`quorum.regions` is not looked at with the policy `{policy}`"),
            "set `quorum.policy` to \"regions\", or remove the line",
        ),
        _ => {}
    }
    for region in values.list(PREFERENCE).unwrap_or_default() {
        if !voters.contains_key(&region) {
            problems.warning(
                values.report_at(PREFERENCE),
                PREFERENCE,
                format!("`{PREFERENCE}` names `{region}`, and no member runs there"),
                did_you_mean(&region, &voters),
            );
        }
    }
    if policy == "single-region-dynamic" {
        thin_regions(members, &voters, problems);
    }
    even_voters(&policy, &voters, values, problems);
}

/// A voter set with an even number of voters tolerates no more failures than with one voter less. A ring or region with two voters
/// already has a warning.
fn even_voters(
    policy: &str,
    voters: &BTreeMap<String, usize>,
    values: &Values,
    problems: &mut Problems,
) {
    let sets: Vec<(String, usize)> = match policy {
        "majority" => vec![("the ring".to_owned(), voters.values().sum())],
        _ => {
            let deciding = values.list(REGIONS).unwrap_or_default();
            let decides = |region: &String| policy != "regions" || deciding.contains(region);
            let voters = voters.iter().filter(|(region, _)| decides(region));
            let named = voters.map(|(region, count)| (format!("region `{region}`"), *count));
            named.collect()
        }
    };
    for (place, count) in sets.into_iter().filter(|(_, count)| *count > 2) {
        let Some(costs) = quorum::even_voters(count) else {
            continue;
        };
        problems.warning(
            values.report_at(POLICY),
            "members.votes",
            format!("{place} has an even number of voting members: {costs}"),
            "add a witness there, or set `votes = false` for one of them",
        );
    }
}

/// Number of voting members by region, including regions without any; `None` when one cannot be read.
fn voters_by_region(members: &[Values]) -> Option<BTreeMap<String, usize>> {
    let mut voters = BTreeMap::new();
    for member in members {
        let votes = member.bool("members.votes")?;
        *voters.entry(member.text("members.region")?).or_default() += usize::from(votes);
    }
    Some(voters)
}

fn listed_once(values: &Values, problems: &mut Problems) {
    for key in [REGIONS, PREFERENCE] {
        let mut seen = BTreeSet::new();
        for region in values.list(key).unwrap_or_default() {
            if !seen.insert(region.clone()) {
                problems.error(
                    values.report_at(key),
                    key,
                    format!("`{key}` names `{region}` twice"),
                    "name every region once",
                );
            }
        }
    }
}

fn required(
    region: &str,
    voters: &BTreeMap<String, usize>,
    values: &Values,
    problems: &mut Problems,
) {
    match voters.get(region) {
        None => problems.error(
            values.report_at(REGIONS),
            REGIONS,
            format!("`{REGIONS}` names `{region}`, and no member runs there"),
            did_you_mean(region, voters),
        ),
        Some(0) => problems.error(
            values.report_at(REGIONS),
            REGIONS,
            format!("`{REGIONS}` names `{region}`, and no member there votes"),
            "let members there vote, better three, or remove the region from the list",
        ),
        Some(_) => {}
    }
}

fn did_you_mean(region: &str, voters: &BTreeMap<String, usize>) -> String {
    let known = || voters.keys().map(String::as_str);
    match nearest(region, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the members' regions are {}", listed(known())),
    }
}

/// A region that may lead decides its commits alone, so it should tolerate the loss of one member.
fn thin_regions(members: &[Values], voters: &BTreeMap<String, usize>, problems: &mut Problems) {
    if voters.values().sum::<usize>() <= 2 {
        // Already reported for the ring as a whole.
        return;
    }
    for (region, count) in voters.iter().filter(|(_, count)| (1..3).contains(*count)) {
        let first = members.iter().find(|member| {
            member.text("members.region").as_ref() == Some(region)
                && member.text("members.kind").as_deref() == Some("database")
                && member.bool("members.votes") == Some(true)
                && member.number("members.priority") != Some(0)
        });
        let Some(first) = first else { continue };
        let (words, whom) = match count {
            1 => ("one voting member", "its"),
            _ => ("two voting members", "either's"),
        };
        problems.warning(
            &first.place,
            "members.votes",
            format!("region `{region}` has {words}, so {whom} loss stops every commit while that region leads"),
            "let three vote there, a witness is enough; or give its database member the priority 0",
        );
    }
}
