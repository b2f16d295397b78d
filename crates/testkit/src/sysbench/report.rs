//! What sysbench 1.0 prints at the end of a run, read back. Pure.

use anyhow::{Context, Result, ensure};

/// The result of one run. A latency is that of a whole transaction, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SysbenchReport {
    /// Transactions in all.
    pub transactions: u64,
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// Errors of the kind that it was told to ignore.
    pub ignored_errors: u64,
    /// Connections that were made again.
    pub reconnects: u64,
    /// The shortest latency.
    pub latency_min_ms: f64,
    /// The mean latency.
    pub latency_mean_ms: f64,
    /// The median. Percentiles come from sysbench's histogram, whose steps are below 2 %.
    pub latency_p50_ms: f64,
    /// 95 in a hundred are at most this long.
    pub latency_p95_ms: f64,
    /// 99 in a hundred are at most this long.
    pub latency_p99_ms: f64,
    /// The longest.
    pub latency_max_ms: f64,
    /// One line for each second, from which a stall can be seen.
    pub intervals: Vec<Interval>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Seconds since the start, at its end.
    pub second: u32,
    /// Transactions per second in it.
    pub transactions_per_second: f64,
    /// Errors per second in it.
    pub errors_per_second: f64,
}

impl SysbenchReport {
    /// Reads the output of a run with `--histogram=on`.
    ///
    /// # Errors
    /// When a line is missing: the run was cut short, or sysbench is another one.
    pub fn parse(text: &str) -> Result<Self> {
        let histogram: Vec<(f64, u64)> = text.lines().filter_map(bucket).collect();
        let (transactions, transactions_per_second) = count_and_rate(text, "transactions:")?;
        ensure!(transactions > 0, "sysbench finished no transaction at all");
        let percentile =
            |hundredth| percentile(&histogram, hundredth).context("sysbench printed no histogram");
        Ok(Self {
            transactions,
            transactions_per_second,
            ignored_errors: count_and_rate(text, "ignored errors:")?.0,
            reconnects: count_and_rate(text, "reconnects:")?.0,
            latency_min_ms: number(text, "min:")?,
            latency_mean_ms: number(text, "avg:")?,
            latency_p50_ms: percentile(50)?,
            latency_p95_ms: percentile(95)?,
            latency_p99_ms: percentile(99)?,
            latency_max_ms: number(text, "max:")?,
            intervals: text.lines().filter_map(interval).collect(),
        })
    }
}

/// `       0.677 |************************                 130`
fn bucket(line: &str) -> Option<(f64, u64)> {
    let (value, rest) = line.split_once('|')?;
    let count = rest.trim_start_matches(|c: char| c == '*' || c.is_whitespace());
    Some((value.trim().parse().ok()?, count.trim().parse().ok()?))
}

/// The upper value of the bucket that holds the percentile: [`nearest_rank`](crate::statistics::nearest_rank) of values that were
/// counted.
fn percentile(histogram: &[(f64, u64)], hundredth: u64) -> Option<f64> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = (all * hundredth).div_ceil(100);
    let mut seen = 0;
    histogram.iter().find_map(|(value, count)| {
        seen += count;
        (seen >= wanted).then_some(*value)
    })
}

/// `[ 1s ] thds: 2 tps: 2395.91 qps: … err/s: 5.99 reconn/s: 0.00`
fn interval(line: &str) -> Option<Interval> {
    let (second, rest) = line.strip_prefix("[ ")?.split_once("s ]")?;
    let after = |label: &str| -> Option<f64> {
        rest.split_once(label)?
            .1
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    Some(Interval {
        second: second.trim().parse().ok()?,
        transactions_per_second: after("tps:")?,
        errors_per_second: after("err/s:")?,
    })
}

/// `    transactions:                        4978   (2486.38 per sec.)`
fn count_and_rate(text: &str, label: &str) -> Result<(u64, f64)> {
    let (count, rate) = rest_of(text, label)?
        .split_once('(')
        .with_context(|| format!("sysbench's {label} has no rate"))?;
    let rate = rate.split_whitespace().next().unwrap_or_default();
    Ok((count.trim().parse()?, rate.parse()?))
}

fn number(text: &str, label: &str) -> Result<f64> {
    rest_of(text, label)?
        .trim()
        .parse()
        .with_context(|| format!("sysbench's {label} is no number"))
}

fn rest_of<'a>(text: &'a str, label: &str) -> Result<&'a str> {
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(label))
        .with_context(|| format!("sysbench printed no line `{label}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::nearest_rank;

    const OUTPUT: &str = "\
[ 1s ] thds: 2 tps: 95.91 qps: 575.42 (r/w/o: 0.00/383.62/191.81) lat (ms,95%): 1.25 err/s: 5.99 reconn/s: 0.00
[ 2s ] thds: 2 tps: 0.00 qps: 0.00 (r/w/o: 0.00/0.00/0.00) lat (ms,95%): 0.00 err/s: 0.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.500 |**                                       49
       1.000 |**************************************** 45
       2.000 |*                                        5
      40.000 |                                         1
 
SQL statistics:
    queries performed:
        read:                            0
        total:                           600
    transactions:                        100    (50.00 per sec.)
    queries:                             600    (300.00 per sec.)
    ignored errors:                      6      (3.00 per sec.)
    reconnects:                          1      (0.50 per sec.)

General statistics:
    total time:                          2.0017s

Latency (ms):
         min:                                    0.37
         avg:                                    1.13
         max:                                   39.43
         95th percentile:                        1.25
         sum:                                 1996.28
";

    #[test]
    fn a_report_is_read() {
        let report = SysbenchReport::parse(OUTPUT).unwrap();
        assert_eq!(
            (
                report.transactions,
                report.ignored_errors,
                report.reconnects
            ),
            (100, 6, 1)
        );
        assert_eq!(report.transactions_per_second, 50.0);
        assert_eq!(
            (
                report.latency_min_ms,
                report.latency_mean_ms,
                report.latency_max_ms
            ),
            (0.37, 1.13, 39.43)
        );
        assert_eq!(
            (
                report.latency_p50_ms,
                report.latency_p95_ms,
                report.latency_p99_ms
            ),
            (1.0, 2.0, 2.0)
        );
        assert_eq!(report.intervals.len(), 2);
        assert_eq!(
            report.intervals[0],
            Interval {
                second: 1,
                transactions_per_second: 95.91,
                errors_per_second: 5.99
            }
        );
    }

    #[test]
    fn a_percentile_of_a_histogram_is_that_of_its_values() {
        let histogram: Vec<_> = OUTPUT.lines().filter_map(bucket).collect();
        let values = histogram.iter().flat_map(|(value, count)| {
            let count = usize::try_from(*count).unwrap();
            std::iter::repeat_n(*value, count)
        });
        let values: Vec<f64> = values.collect();
        for hundredth in 1..=100 {
            let expected = nearest_rank(&values, hundredth);
            assert_eq!(percentile(&histogram, hundredth as u64), expected);
        }
    }

    #[test]
    fn a_report_that_was_cut_short_is_an_error() {
        for line in OUTPUT.lines().filter(|line| {
            ["transactions:", "avg:", "reconnects:"]
                .iter()
                .any(|label| line.contains(label))
        }) {
            assert!(
                SysbenchReport::parse(&OUTPUT.replace(line, "")).is_err(),
                "without {line:?}"
            );
        }
        let (before, _) = OUTPUT.split_once("       0.500").unwrap();
        let (_, after) = OUTPUT.split_once("SQL statistics").unwrap();
        assert!(
            SysbenchReport::parse(&format!("{before}SQL statistics{after}")).is_err(),
            "without the histogram"
        );
        assert!(
            SysbenchReport::parse(&OUTPUT.replace("        100    ", "        0      ")).is_err(),
            "without a transaction"
        );
    }
}
