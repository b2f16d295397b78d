//! Draws the p99 of the lag over the rate, with one panel for each load.

use anyhow::Result;
use plotters::prelude::*;
use testkit::mysqld::workload::Workload;
use witness_benches::{Area, picture};

use super::Follower;
use super::summary::{Run, Summary};

const SIZE: (u32, u32) = (760, 620);
const FONT: &str = "sans-serif";
/// The range of lags in the pictures, in milliseconds. Values outside are drawn at the edge.
const LAGS: std::ops::Range<f64> = 5.0..200_000.0;

pub(super) fn draw(summary: &Summary) -> Result<String> {
    let mut workloads: Vec<Workload> = summary.runs().iter().map(|run| run.workload).collect();
    workloads.dedup();
    let name = "The lag of a follower over the rate of its primary";
    picture(SIZE, name, |area| {
        let title = "Lag of a follower (p99), by what its primary commits";
        let area = area.titled(title, (FONT, 17))?;
        let panels = area.split_evenly((workloads.len().div_ceil(2), 2));
        for (&workload, panel) in workloads.iter().zip(&panels) {
            let runs = summary.runs().iter();
            let runs: Vec<&Run> = runs.filter(|run| run.workload == workload).collect();
            draw_panel(panel, workload, &runs)?;
        }
        Ok(())
    })
}

fn draw_panel(area: &Area, workload: Workload, runs: &[&Run]) -> Result<()> {
    let rates = runs.iter().flat_map(|run| run.all_points());
    let highest = rates.map(|point| point.per_second).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(workload.key(), (FONT, 15))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..highest * 1.1, LAGS.log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.2))
        .label_style((FONT, 13))
        .x_labels(5)
        .x_label_formatter(&|rate| format!("{rate:.0}"))
        .x_desc("transactions/s")
        .y_label_formatter(&|ms| match *ms {
            ms if ms < 1e3 => format!("{ms:.0} ms"),
            ms => format!("{:.0} s", ms / 1e3),
        })
        .draw()?;
    // Points above this line are rates with which the follower does not keep up.
    let limit = [(0.0, 1000.0), (highest * 1.1, 1000.0)];
    chart.draw_series(LineSeries::new(limit, BLACK.mix(0.6)))?;
    for run in runs {
        let colour = match run.follower {
            Follower::Native => RGBColor(0xd4, 0x76, 0x2c),
            Follower::Ours => RGBColor(0x2d, 0xa4, 0x4e),
        };
        let points = run.all_points().into_iter();
        let points = points.map(|point| {
            let lag = point.lag_ms.p99.clamp(LAGS.start, LAGS.end);
            (point.per_second, lag)
        });
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(run.follower.key())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}
