//! Proxies are used again within seconds after two failovers in a row, and after the failure of a proxy.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Command;

#[test]
fn every_new_leader_sends_through_proxies_again() {
    for seed in 1..=12 {
        let mut simulator = Command::new(env!("CARGO_BIN_EXE_simulator"));
        simulator.args(["--scenario", "failovers", "--seed", &seed.to_string()]);
        let output = simulator.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let said: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert!(said["checker"].is_null(), "seed {seed}: {said}");
        // The only faults are the kills of three members.
        assert_eq!(said["counts"]["faults"], 3, "seed {seed}: {said}");
        let proxied = &said["counts"]["proxied"]["proxied_entries"];
        assert!(proxied.as_u64().unwrap() >= 20, "seed {seed}: {said}");
    }
}
