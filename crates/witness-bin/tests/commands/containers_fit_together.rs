//! All files in `containers/` describe the same members: the configuration, Compose, the manifests for Kubernetes, HAProxy and
//! Prometheus.

#![allow(
    clippy::unwrap_used,
    reason = "a file that is not as it should be fails the test"
)]

use std::fs;
use std::path::PathBuf;

use toml::{Table, Value};

use crate::program::{Scratch, witness};

fn read(path: &str) -> String {
    let path: PathBuf = testkit::checkout().join("containers").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fields of an entry of `[[members]]` that this test uses.
struct Member {
    id: i64,
    name: String,
    region: String,
    is_database: bool,
    host: String,
}

/// Returns the members of a configuration, and checks that the configuration is valid for each of them.
fn members(configuration: &str) -> Vec<Member> {
    let table: Table = configuration.parse().unwrap();
    let members = table["members"].as_array().unwrap().iter();
    let text = |member: &Value, key: &str| member[key].as_str().unwrap().to_owned();
    let members: Vec<Member> = members
        .map(|member| Member {
            id: member["id"].as_integer().unwrap(),
            name: text(member, "name"),
            region: text(member, "region"),
            is_database: text(member, "kind") == "database",
            host: text(member, "address")
                .rsplit_once(':')
                .unwrap()
                .0
                .to_owned(),
        })
        .collect();
    let scratch = Scratch::new();
    // The paths at which containers mount the certificates are replaced with the scratch directory.
    let here = format!("{}/", scratch.join("").display());
    let configuration = ["/etc/witness/tls/", "/etc/witness-tls/"]
        .iter()
        .fold(configuration.to_owned(), |text, place| {
            text.replace(place, &here)
        });
    scratch.write("witness.toml", &configuration);
    let made = witness(&scratch)
        .env("WITNESS_MEMBER_ID", &members[0].id.to_string())
        .args(["tls", "init", "--directory", "made"])
        .run();
    assert_eq!(made.code, 0, "{made}");
    let put = |file: &str, here: &str| {
        let made = scratch.join(&format!("made/{file}"));
        fs::copy(made, scratch.join(here)).unwrap();
    };
    put("ca.crt", "ca.crt");
    for member in &members {
        for end in ["crt", "key"] {
            put(&format!("{}.{end}", member.name), &format!("member.{end}"));
        }
        let run = witness(&scratch)
            .env("WITNESS_MEMBER_ID", &member.id.to_string())
            .args(["config", "check"])
            .run();
        assert_eq!(run.code, 0, "{}: {}", member.name, run.stderr);
    }
    assert_eq!(members.len(), 9);
    members
}

/// Returns the block of text that begins with this line and ends at the next empty line.
fn below<'t>(text: &'t str, line: &str) -> &'t str {
    let start = text.find(&format!("\n{line}\n"));
    let start = start.unwrap_or_else(|| panic!("there is no `{line}`"));
    let rest = &text[start + 1..];
    rest.split("\n\n").next().unwrap_or(rest)
}

#[test]
fn compose_haproxy_and_prometheus_know_the_members_of_the_configuration() {
    let compose = read("compose.yaml");
    let (haproxy, prometheus) = (
        read("haproxy/haproxy.cfg"),
        read("prometheus/prometheus.yml"),
    );
    for member in members(&read("witness.toml")) {
        let Member {
            id,
            name,
            host,
            region,
            ..
        } = &member;
        let service = below(&compose, &format!("  {name}:"));
        let service = service
            .split("\n  ")
            .take(16)
            .collect::<Vec<_>>()
            .join("\n");
        for wanted in [
            format!("WITNESS_MEMBER_ID: {id} "),
            format!("{region}: {{ ipv4_address: {host} }}"),
            format!("{name}:/var/lib/witness"),
            format!("./tls/{name}.crt:/etc/witness/tls/member.crt:ro"),
            format!("./tls/{name}.key:/etc/witness/tls/member.key:ro"),
        ] {
            assert!(
                service.contains(&wanted),
                "{name}: no `{wanted}`:\n{service}"
            );
        }
        assert!(prometheus.contains(&format!("- {host}:7480\n")), "{name}");
        let servers = haproxy
            .matches(&format!("server {name} {host}:3306 "))
            .count();
        assert_eq!(servers, if member.is_database { 2 } else { 0 }, "{name}");
    }
}

#[test]
fn the_manifests_of_kubernetes_make_the_members_of_their_configuration() {
    let map = read("kubernetes/configuration.yaml");
    let (_, configuration) = map.split_once("  witness.toml: |\n").unwrap();
    let lines = configuration.lines().map(|line| line.trim_start());
    let configuration: String = lines.map(|line| format!("{line}\n")).collect();
    let haproxy = read("kubernetes/haproxy.yaml");
    for member in members(&configuration) {
        let (set, ordinal) = member.name.rsplit_once('-').unwrap();
        let service = format!("{}.{set}.witness.svc", member.name);
        assert_eq!(member.host, service);
        let region = read(&format!("kubernetes/{}.yaml", member.region));
        let documents: Vec<&str> = region.split("\n---\n").collect();
        let of_kind = |kind: &str| {
            let named = format!("\n  name: {set}\n");
            let mut found = documents.iter().filter(|document| {
                document.contains(&format!("kind: {kind}\n")) && document.contains(&named)
            });
            found.next().unwrap_or_else(|| panic!("no {kind} {set}"))
        };
        assert!(of_kind("Service").contains("publishNotReadyAddresses: true"));
        let pods = of_kind("StatefulSet");
        let number = member.id.to_string();
        let prefix = number.strip_suffix(ordinal).unwrap();
        assert!(pods.contains(&format!("serviceName: {set}\n")));
        assert!(
            pods.contains(&format!("value: \"{prefix}$(ORDINAL)\"")),
            "{}",
            member.name
        );
        let replicas = pods.split_once("  replicas: ").unwrap().1.lines().next();
        let replicas: u32 = replicas.unwrap().parse().unwrap();
        assert!(
            ordinal.parse::<u32>().unwrap() < replicas,
            "{}",
            member.name
        );
        let servers = haproxy.matches(&format!(" {}:3306 ", member.host)).count();
        assert_eq!(
            servers,
            if member.is_database { 2 } else { 0 },
            "{}",
            member.name
        );
    }
}
