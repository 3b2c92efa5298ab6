//! One simulated file: what the page cache holds, what the platter holds, and which pages differ.
//!
//! Pages are shared copy on write between the two views, the undo log and any copy of the disk, so that a sync moves
//! pointers and not bytes. An absent page reads as zeros, and so does every byte at or past a view's length.

use super::survival::Survival;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

/// What is copied on write, and what a sync moves.
pub(super) const PAGE_BYTES: usize = 4096;
/// What a power cut leaves whole: a sector is old or new, never a mixture.
pub(super) const SECTOR_BYTES: usize = 512;

type Page = [u8; PAGE_BYTES];
static ZEROS: Page = [0; PAGE_BYTES];

#[derive(Clone, Default)]
struct View {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// A file's cached and durable views. Pages outside `dirty` are equal in both.
#[derive(Clone, Default)]
pub(super) struct Pages {
    cached: View,
    durable: View,
    dirty: BTreeSet<u64>,
}

/// What a write or a change of length replaced in the page cache.
pub(super) struct Edited {
    len: u64,
    pages: Vec<Replaced>,
}

struct Replaced {
    index: u64,
    page: Option<Arc<Page>>,
    newly_dirty: bool,
}

/// What a sync replaced on the platter.
pub(super) struct Synced {
    len: u64,
    dirty: BTreeSet<u64>,
    pages: Vec<Option<Arc<Page>>>,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.cached.len
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if end_of(offset, into.len())? > self.cached.len {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the read does"));
        }
        for (index, within, span) in spans(offset, into.len()) {
            let bytes = self.cached.page(index);
            let len = span.len();
            into[span].copy_from_slice(&bytes[within..within + len]);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) -> io::Result<Edited> {
        let mut edited = Edited { len: self.cached.len, pages: Vec::new() };
        if from.is_empty() {
            return Ok(edited);
        }
        let end = end_of(offset, from.len())?;
        for (index, within, span) in spans(offset, from.len()) {
            let page = if let Ok(whole) = Page::try_from(&from[span.clone()]) {
                whole
            } else {
                let mut page = *self.cached.page(index);
                page[within..within + span.len()].copy_from_slice(&from[span]);
                page
            };
            edited.pages.push(self.replace(index, Some(Arc::new(page))));
        }
        self.cached.len = self.cached.len.max(end);
        Ok(edited)
    }

    pub(super) fn set_len(&mut self, len: u64) -> Edited {
        let mut edited = Edited { len: self.cached.len, pages: Vec::new() };
        let (keeps_whole, keeps_bytes) = (len / PAGE_BYTES as u64, (len % PAGE_BYTES as u64) as usize);
        let cut: Vec<u64> = self.cached.pages.range(keeps_whole..).map(|(&index, _)| index).collect();
        for index in cut {
            let kept = (index == keeps_whole && keeps_bytes > 0).then(|| {
                let mut page = *self.cached.page(index);
                page[keeps_bytes..].fill(0);
                Arc::new(page)
            });
            edited.pages.push(self.replace(index, kept));
        }
        self.cached.len = len;
        edited
    }

    pub(super) fn sync(&mut self) -> Synced {
        let dirty = std::mem::take(&mut self.dirty);
        let pages = dirty.iter().map(|index| self.durable.put(*index, self.cached.pages.get(index).cloned())).collect();
        let len = std::mem::replace(&mut self.durable.len, self.cached.len);
        Synced { len, dirty, pages }
    }

    /// Takes back the newest edit.
    pub(super) fn unedit(&mut self, edited: Edited) {
        for replaced in edited.pages.into_iter().rev() {
            self.cached.put(replaced.index, replaced.page);
            if replaced.newly_dirty {
                self.dirty.remove(&replaced.index);
            }
        }
        self.cached.len = edited.len;
    }

    /// Takes back a sync after which nothing was edited.
    pub(super) fn unsync(&mut self, synced: Synced) {
        debug_assert!(self.dirty.is_empty(), "edits later than the sync are taken back before it");
        for (&index, page) in synced.dirty.iter().zip(synced.pages) {
            self.durable.put(index, page);
        }
        self.durable.len = synced.len;
        self.dirty = synced.dirty;
    }

    /// Loses power: each unsynced sector, and the length, is old or new as `survival` says.
    ///
    /// A sector wholly past the cached length was cut off and not overwritten: it keeps its old bytes, which show
    /// only if the old length survives as well.
    pub(super) fn cut(&mut self, survival: &mut Survival<'_>) {
        if self.dirty.is_empty() && self.durable.len == self.cached.len {
            return;
        }
        let len = if survival.survives() { self.cached.len } else { self.durable.len };
        for index in std::mem::take(&mut self.dirty) {
            let sectors = survival.sectors();
            let mut page = *self.durable.page(index);
            for sector in 0..PAGE_BYTES / SECTOR_BYTES {
                let start = sector * SECTOR_BYTES;
                let overwritten = index * PAGE_BYTES as u64 + (start as u64) < self.cached.len;
                if overwritten && sectors & (1 << sector) != 0 {
                    let bytes = start..start + SECTOR_BYTES;
                    page[bytes.clone()].copy_from_slice(&self.cached.page(index)[bytes]);
                }
            }
            self.durable.put(index, Some(Arc::new(page)));
        }
        // The survivor of both views may be shorter than a page that was put: cutting it keeps the bytes past it zero.
        self.durable.len = len;
        self.cached = self.durable.clone();
        self.set_len(len);
        self.sync();
    }

    fn replace(&mut self, index: u64, page: Option<Arc<Page>>) -> Replaced {
        Replaced { index, page: self.cached.put(index, page), newly_dirty: self.dirty.insert(index) }
    }
}

impl View {
    fn page(&self, index: u64) -> &Page {
        self.pages.get(&index).map_or(&ZEROS, Arc::as_ref)
    }

    fn put(&mut self, index: u64, page: Option<Arc<Page>>) -> Option<Arc<Page>> {
        match page {
            Some(page) => self.pages.insert(index, page),
            None => self.pages.remove(&index),
        }
    }
}

fn end_of(offset: u64, len: usize) -> io::Result<u64> {
    offset
        .checked_add(len as u64)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the range ends past the largest offset"))
}

/// Splits a range of a file by pages: page index, first byte within it, and the bytes of the caller's buffer.
fn spans(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let span = done..len.min(done + PAGE_BYTES - within);
        done = span.end;
        Some((at / PAGE_BYTES as u64, within, span))
    })
}
