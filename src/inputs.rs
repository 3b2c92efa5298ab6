//! What a command reads is never what it writes.

use anyhow::{Context as _, anyhow};
use faults::Plan;
use scenarios::file;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Refuses to write over a file that is read by the same command.
pub fn must_not_be(flag: &str, path: &Path, read: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<()> {
    let Ok(place) = fs::canonicalize(path) else { return Ok(()) };
    if !place.is_file() {
        return Ok(());
    }
    match read.into_iter().find(|read| fs::canonicalize(read).is_ok_and(|read| read == place)) {
        Some(read) if read == path => {
            Err(anyhow!("{} is an input of this run and would be lost; give {flag} another file", path.display()))
        }
        Some(read) => Err(anyhow!(
            "{} is {}, an input of this run, and would be lost; give {flag} another file",
            path.display(),
            read.display()
        )),
        None => Ok(()),
    }
}

/// Refuses to write a plan over a file that is there and holds something else.
pub fn must_be_a_plan_or_nothing(flag: &str, path: &Path) -> anyhow::Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let text = file::read_text(path, file::MOST_BYTES).unwrap_or_else(|_| "no text".to_owned());
    if text.is_empty() || Plan::from_toml(&text).is_ok() {
        return Ok(());
    }
    Err(anyhow!("it holds something else, which would be lost; give {flag} a new file, or one with a plan in it"))
        .with_context(|| format!("{} is there and is not a plan", path.display()))
}
