//! Shared code for the pictures of the benches. Each bench is a separate program below `benches/`.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend};

/// The drawing area.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A style sheet for text and lines on light and dark pages. It replaces the library's black.
const STYLE: &str = "<style>text{fill:#24292f;font-family:system-ui,sans-serif}[stroke=\"#000000\"]{stroke:#57606a}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}[stroke=\"#000000\"]{stroke:#9198a1}}</style>";

/// Draws a self-contained picture that is readable on light and dark pages. `name` is the text alternative
/// of the picture.
///
/// # Errors
/// If the picture cannot be drawn.
pub fn picture(
    (width, height): (u32, u32),
    name: &str,
    draw: impl FnOnce(&Area) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
    draw(&area)?;
    area.present()?;
    drop(area);
    let (head, rest) = svg.split_once('>').ok_or_else(|| anyhow!("no picture"))?;
    Ok(format!(
        "{head} role=\"img\" aria-label=\"{name}\">{STYLE}{rest}"
    ))
}
