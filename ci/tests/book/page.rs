//! The pages: their text, their fenced blocks, and the comments above blocks and tables that say what they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A page of the book, or one of those beside it that point into it.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its path from the root of the repository.
    pub name: String,
    /// Its lines.
    pub lines: Vec<String>,
}

/// A fenced block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where its fence begins: page and line, for messages.
    pub place: String,
    /// The language of its fence.
    pub language: String,
    /// What the comment on the line above it says, if there is one.
    pub marker: Option<String>,
    /// Its lines, with what they include in place.
    pub lines: Vec<String>,
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The book's pages and README, CONTRIBUTING and ARCHITECTURE, in order.
pub fn pages() -> Vec<Page> {
    let mut names = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(PathBuf::from).to_vec();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder of the book can be read") {
            let entry = entry.expect("an entry of it can be read");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                names.push(path);
            }
        }
    }
    names.sort();
    names.iter().map(|name| Page::read(&name.display().to_string())).collect()
}

impl Page {
    /// The page at a path from the root.
    pub fn read(name: &str) -> Page {
        let text = fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Page { name: name.to_owned(), lines: text.lines().map(str::to_owned).collect() }
    }

    /// Its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (index, line) in self.lines.iter().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let above = index.checked_sub(1).and_then(|above| comment(&self.lines[above]));
                    let place = format!("{}:{}", self.name, index + 1);
                    let (language, marker) = (language.trim().to_owned(), above.map(str::to_owned));
                    open = Some(Block { place, language, marker, lines: Vec::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.lines.extend(self.included(line)),
                (None, None) => assert!(
                    !line.trim_start().starts_with("```"),
                    "{}:{}: a fence that is indented is not looked at; begin it at the margin",
                    self.name,
                    index + 1
                ),
            }
        }
        assert!(open.is_none(), "{}: a fenced block is not closed", self.name);
        blocks
    }

    /// The tables that a comment announces: what it says after `what`, where, and the first cell of each row.
    pub fn tables(&self, what: &str) -> Vec<(String, String, Vec<String>)> {
        let says =
            |line: &String| comment(line).and_then(|said| said.strip_prefix(what)).map(|said| said.trim().to_owned());
        let mut tables = Vec::new();
        for (index, said) in self.lines.iter().enumerate().filter_map(|(index, line)| Some((index, says(line)?))) {
            let below = self.lines[index + 1..].iter().skip_while(|line| line.is_empty());
            let rows: Vec<String> = below.take_while(|line| line.starts_with('|')).cloned().collect();
            assert!(rows.len() > 2, "{}:{}: no table stands below the comment", self.name, index + 1);
            tables.push((said, format!("{}:{}", self.name, index + 1), rows[2..].to_vec()));
        }
        tables
    }

    /// A line of a block, or the file that it includes.
    fn included(&self, line: &str) -> Vec<String> {
        let Some(path) = line.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")) else {
            return vec![line.to_owned()];
        };
        let beside = root().join(&self.name).with_file_name(path.trim());
        let text = fs::read_to_string(&beside).unwrap_or_else(|error| panic!("{}: {path}: {error}", self.name));
        text.lines().map(str::to_owned).collect()
    }
}

/// What an HTML comment that is a whole line says.
pub fn comment(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim())
}

/// The name in the first cell of a table's row, as it stands in its first code span.
pub fn name_in(row: &str) -> Option<&str> {
    row.strip_prefix("| `")?.split('`').next()
}

/// Whether `text` is as `pattern` says, in which `…` stands for anything.
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut left) = parts.next().and_then(|head| text.strip_prefix(head)) else { return false };
    let Some(last) = parts.next_back() else { return left.is_empty() };
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[test]
fn a_pattern_fits_what_it_says_and_nothing_else() {
    for (pattern, text, expect) in [
        ("pass", "pass", true),
        ("pass", "passes", false),
        ("history    …", "history    0f24", true),
        ("history    …", "parted     0f24", false),
        ("…", "", true),
        ("a…b…c", "a1b2c", true),
        ("a…b…c", "a1c2b", false),
        ("a…b…b", "a1b", false),
        ("felt-…", "healed-loss", false),
    ] {
        assert_eq!(fits(pattern, text), expect, "`{pattern}` and `{text}`");
    }
}
