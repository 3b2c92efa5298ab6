//! The ladders of the table as plots in SVG: a plot a figure, a line a condition, a point a rung that has a number.
//!
//! Text stays text in a generic font family, so that neither drawing nor viewing needs a font of ours.

use crate::table::{Line, Table};
use plotters::{prelude::*, series::LineSeries};
use std::collections::BTreeMap;

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 540);

/// The font family of every text.
const FONT: &str = "sans-serif";

/// The colours of the conditions, in their order; told apart by people who do not see red from green.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// One plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// A file name for it.
    pub name: String,
    /// The plot.
    pub svg: String,
}

/// A plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot of {figure} cannot be drawn: {why}")]
pub struct PlotError {
    figure: String,
    why: String,
}

/// The points of one condition: size, and the number in the unit it is written in.
type Points = Vec<(f64, f64)>;

/// A plot for each figure whose ladder is climbed under stated conditions and that has a number at least.
pub fn plots(table: &Table) -> Result<Vec<Plot>, PlotError> {
    let mut plots = Vec::new();
    for lines in table.lines.chunk_by(|line, next| (&line.row, &line.figure) == (&next.row, &next.figure)) {
        if lines[0].under.is_none() || lines.iter().all(|line| line.raw.is_none()) {
            continue;
        }
        let line = &lines[0];
        let svg = plot(lines).map_err(|why| PlotError { figure: line.figure.clone(), why })?;
        plots.push(Plot { name: format!("{}-{}.svg", line.row.to_lowercase(), line.figure), svg });
    }
    Ok(plots)
}

/// The points of each condition, in the table's order. Of a range of counts it is the most.
fn series(lines: &[Line]) -> Vec<(&str, Points)> {
    let mut order: Vec<&str> = Vec::new();
    let mut points: BTreeMap<&str, Points> = BTreeMap::new();
    for line in lines {
        let under = line.under.as_deref().unwrap_or_default();
        if !order.contains(&under) {
            order.push(under);
        }
        if let (Some(size), Some([_, most])) = (line.rung, line.raw) {
            points.entry(under).or_default().push((size as f64, most as f64 / line.unit.scale() as f64));
        }
    }
    order.into_iter().map(|under| (under, points.remove(under).unwrap_or_default())).collect()
}

fn plot(lines: &[Line]) -> Result<String, String> {
    let series = series(lines);
    let mut svg = String::new();
    draw(&mut svg, lines, &series).map(|()| svg).map_err(|error| error.to_string())
}

fn draw(
    svg: &mut String,
    lines: &[Line],
    series: &[(&str, Points)],
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let line = &lines[0];
    let rungs = || lines.iter().filter_map(|line| line.rung).map(|rung| rung as f64);
    let (first, last) = (rungs().fold(f64::MAX, f64::min), rungs().fold(1.0, f64::max));
    let top = series.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.15 } else { 1.0 };
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let what = line.what.split(';').next().unwrap_or_default();
    let claims = lines.iter().find(|line| line.raw.is_some()).map_or("", |line| line.status.word());
    let title = format!("{} {what} ({claims})", line.row);
    let unit = if line.unit.word().is_empty() { "count" } else { line.unit.word() };
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d((first * 0.9..last * 1.1).log_scale().with_key_points(rungs().collect()), 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(220, 220, 220))
        .x_desc("agents (logarithmic)")
        .y_desc(unit)
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|number| number.to_string())
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .draw()?;
    for (index, (under, points)) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        // Where lines lie on each other, the earlier ones show at the edges of the later.
        let later = (series.len() - 1 - index) as u32;
        let style = colour.stroke_width(2 + 2 * later);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(*under)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4 + 2 * later as i32, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(160, 160, 160))
        .label_font((FONT, 14))
        .draw()?;
    area.present()
}
