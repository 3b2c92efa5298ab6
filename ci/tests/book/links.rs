//! Every page is in the summary, and every link within the repository leads to a file, and to a heading of it.

use crate::page::{Page, pages, root};
use std::path::Path;

#[test]
fn every_page_is_in_the_summary() {
    let summary = Page::read("docs/SUMMARY.md");
    let targets: Vec<String> = links(&summary).into_iter().map(|(_, target)| format!("docs/{target}")).collect();
    for page in pages().iter().filter(|page| page.name.starts_with("docs/") && page.name != summary.name) {
        let stands = targets.iter().filter(|target| **target == page.name).count();
        assert_eq!(stands, 1, "{} stands in docs/SUMMARY.md {stands} times; give it one line there", page.name);
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut lost = Vec::new();
    let mut followed = 0;
    for page in pages() {
        for (line, target) in links(&page).into_iter().filter(|(_, target)| !target.contains("://")) {
            followed += 1;
            let (file, heading) = target.split_once('#').map_or((target.as_str(), None), |(file, to)| (file, Some(to)));
            let here = Path::new(&page.name);
            let to = if file.is_empty() { here.to_owned() } else { here.with_file_name(file) };
            if !root().join(&to).exists() {
                lost.push(format!("{}:{line}: there is no {}", page.name, to.display()));
            } else if let Some(heading) = heading.filter(|heading| !headings(&to).iter().any(|slug| slug == heading)) {
                lost.push(format!("{}:{line}: {} has no heading #{heading}", page.name, to.display()));
            }
        }
    }
    assert!(followed > 50, "only {followed} links were found");
    assert!(lost.is_empty(), "{} links lead nowhere\n{}", lost.len(), lost.join("\n"));
}

/// The targets of a page's links outside of its blocks, with their lines.
fn links(page: &Page) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_block = false;
    for (index, line) in page.lines.iter().enumerate() {
        in_block ^= line.starts_with("```");
        let pieces = line.split("](").skip(1).filter(|_| !in_block);
        links.extend(pieces.filter_map(|piece| Some((index + 1, piece.split_once(')')?.0.to_owned()))));
    }
    links
}

/// A page's headings as links name them.
fn headings(page: &Path) -> Vec<String> {
    let page = Page::read(&page.display().to_string());
    let titles = page.lines.iter().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let letter = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => c.to_lowercase().next(),
        _ => None,
    };
    titles.map(|title| title.chars().filter_map(letter).collect()).collect()
}
