//! What the benches' pictures have in common; each bench is a program of its own below `benches/`.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend};

/// What is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The words and lines of a page, light or dark: a style sheet wins over the black that the library writes.
const STYLE: &str = "<style>text{fill:#24292f;font-family:system-ui,sans-serif}[stroke=\"#000000\"]{stroke:#57606a}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}[stroke=\"#000000\"]{stroke:#9198a1}}</style>";

/// Draws a picture that is readable on light and on dark pages and needs nothing but its file; `name` is for those who do not see it.
///
/// # Errors
/// When it cannot be drawn.
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
