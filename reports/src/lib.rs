//! Records, rows and the measured / not-measured table.
//!
//! - [`record`]: one measurement or count as one JSON line, raw: histograms and counts, never a percentile or a verdict.
//! - [`row`]: what the table is about: nine rows of `rows.toml`, each with figures, targets and sources.
//! - [`table`]: rows and records become a table; each figure's status is worked out afresh at every rendering.
//! - [`render`]: the table as text of a stated width, as Markdown and as CSV; as JSON it is its own serialisation.
//! - [`plot`]: its ladders as SVG.
//!
//! What is deliberately not here: nothing is measured, no clock is read and no file is opened. The crate knows no engine, no
//! scenario and no kernel, and depends on none of them. A status is never stored.

pub mod plot;
pub mod record;
pub mod render;
pub mod row;
pub mod table;
