//! Writes tables of the results of the server's GTID set functions: for single texts, and for pairs of sets.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;
use testkit::mysqld::MysqlClient;

const U: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

/// Texts that a server accepts or refuses. `U` is replaced by a UUID, `\n` by a line break.
const TEXTS: &[&str] = &[
    "",
    " ",
    ",",
    "U:1",
    "U:1-5",
    "U:5-1",
    "U:0",
    "U:0-3",
    "U:1-0",
    "U:5-1:7",
    "U:1-5:tag:1-3:_x:7",
    "U:tag",
    "U:tag:",
    "U",
    "U:",
    "U: tag : 1 - 3",
    "U:TAG:1:2:3",
    "U:1::2",
    ",,U:1,,",
    "{U}:1",
    "3e11fa4771ca11e19e33c80aa9429562:1",
    "{3e11fa4771ca11e19e33c80aa9429562}:1",
    "3e11fa4771ca-11e1-9e33-c80aa9429562:1",
    "3E11FA47-71CA-11E1-9E33-C80AA9429562:3",
    "U:9223372036854775806",
    "U:9223372036854775807",
    "U:9223372036854775808",
    "U:1-9223372036854775806",
    "U:1-9223372036854775807",
    "U:99999999999999999999",
    "U:tag:1:1-3",
    "U:5:1-2",
    "U:tag1:tag2:1",
    "U:01",
    "U:9tag:1",
    "U:tag:5-1",
    "+U:1",
    "U:a2345678901234567890123456789012:1",
    "U:a23456789012345678901234567890123:1",
    "U:1,U:2",
    "U:b:1,U:a:2:c:1,U:4",
    "U:1 ,\\n U:2",
    "U:1-",
    "U:-1",
    "U:1-2-3",
    "U:t-a:1",
    "urn:uuid:U:1",
    "U:1;U:2",
    "U:1:t:2:t:4",
    "U:1-0x5",
    "U :3",
    "U:tag:1:",
    "U:1:",
    "U:1:,U:2",
    "U:+1",
    "U:1-+3",
    "U:1:_:2",
    "U:1-3:2-9:9:11",
    "U:1 2",
    "U:ta g:1",
    "3e11fa47-71ca-11e1-9e33-c80aa942956:1",
    "3e11fa47-71ca-11e1-9e33-c80aa94295622:1",
    "zz11fa47-71ca-11e1-9e33-c80aa9429562:1",
    "\\tU:1\\n,\\n",
    "U:1,V:1",
    "V:3:x:1,U:2",
];
const V: &str = "00000000-0000-0000-0000-000000000001";

/// Number of compared pairs.
const PAIRS: u64 = 150;

pub(crate) fn write(client: &MysqlClient, target: &Path) -> Result<()> {
    fs::write(target.join("gtid_texts.tsv"), texts(client)?)?;
    fs::write(target.join("gtid_pairs.tsv"), pairs(client)?)?;
    Ok(())
}

/// A table of texts, each with the server's result or `ERROR`.
fn texts(client: &MysqlClient) -> Result<String> {
    let mut table = String::new();
    for template in TEXTS {
        let text = template.replace('U', U).replace('V', V);
        let read = match client.value(&format!(
            "SELECT REPLACE(GTID_SUBTRACT('{text}', ''), '\\n', '')"
        )) {
            Ok(read) => read,
            Err(error) if error.to_string().contains("1772") => "ERROR".into(),
            Err(error) => return Err(error),
        };
        writeln!(table, "{text}\t{read}")?;
    }
    Ok(table)
}

/// A table of pairs of sets, with their difference, and whether the second set contains the first.
fn pairs(client: &MysqlClient) -> Result<String> {
    let mut random = Sequence(1);
    let mut table = String::new();
    for _ in 0..PAIRS {
        let (left, right) = (random.gtid_set(), random.gtid_set());
        let answer = client.sql(&format!(
            "SELECT REPLACE(GTID_SUBTRACT('{left}', ''), '\\n', ''), REPLACE(GTID_SUBTRACT('{right}', ''), '\\n', ''), \
             REPLACE(GTID_SUBTRACT('{left}', '{right}'), '\\n', ''), GTID_SUBSET('{left}', '{right}')"
        ))?;
        for row in answer.0 {
            writeln!(table, "{left}\t{right}\t{}", row.join("\t"))?;
        }
    }
    Ok(table)
}

/// Generates the same numbers in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn gtid_set(&mut self) -> String {
        let items = (0..self.below(5)).map(|_| {
            let source = if self.below(2) == 0 { U } else { V };
            let tag = ["", ":red", ":blue"][self.below(3) as usize];
            let first = 1 + self.below(20);
            match self.below(3) {
                0 => format!("{source}{tag}:{first}"),
                1 => format!("{source}{tag}:{first}-{}", first + self.below(9)),
                _ => format!(
                    "{source}{tag}:{first}-{}:{}",
                    first + self.below(4),
                    1 + self.below(30)
                ),
            }
        });
        items.collect::<Vec<_>>().join(",")
    }
}
