//! Wakers that are one word and never allocate.
//!
//! A waker's data pointer holds a task's word, `generation << 32 | index`; waking pushes the word onto this thread's
//! list, which the run that is [installed](install) there drains. A word whose task is gone, or is from another run,
//! matches no generation and is ignored.
#![allow(unsafe_code)]

use std::{
    cell::{Cell, RefCell},
    ptr,
    task::{RawWaker, RawWakerVTable, Waker},
};

struct Woken {
    installed: Cell<bool>,
    runs: Cell<u32>,
    words: RefCell<Vec<u64>>,
}

thread_local! {
    static WOKEN: Woken = const {
        Woken { installed: Cell::new(false), runs: Cell::new(0), words: RefCell::new(Vec::new()) }
    };
}

/// A run's hold on this thread's list of woken tasks; it ends when dropped.
pub(super) struct Installed {
    run: u32,
}

/// Takes this thread for one run.
///
/// # Panics
///
/// When a run is already being played on this thread.
pub(super) fn install() -> Installed {
    WOKEN.with(|woken| {
        assert!(
            !woken.installed.replace(true),
            "a native run is already being played on this thread; runs do not nest"
        );
        woken.words.borrow_mut().clear();
        woken.runs.set(woken.runs.get().wrapping_add(1));
        Installed { run: woken.runs.get() }
    })
}

impl Installed {
    /// Where this run's task generations begin: far from those of the thread's runs before, whose wakers may live on.
    pub(super) fn first_generation(&self) -> u32 {
        self.run.wrapping_mul(0x9e37_79b9)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        WOKEN.with(|woken| woken.installed.set(false));
    }
}

/// Makes the task ready.
#[inline]
pub(super) fn wake(word: u64) {
    // A waker may be dropped, and so woken, by a destructor of the thread's own locals.
    let _ = WOKEN.try_with(|woken| {
        if woken.installed.get() {
            woken.words.borrow_mut().push(word);
        }
    });
}

/// Moves what was woken since the last call into `into`, which is empty, in the order it was woken.
#[inline]
pub(super) fn take_woken(into: &mut Vec<u64>) {
    debug_assert!(into.is_empty());
    WOKEN.with(|woken| std::mem::swap(&mut *woken.words.borrow_mut(), into));
}

/// The waker of a task.
#[inline]
pub(super) fn waker(word: u64) -> Waker {
    // SAFETY: the data pointer is an integer that is never dereferenced, so every function of the table may be called
    // with it, from any thread, any number of times; cloning and dropping own nothing.
    unsafe { Waker::from_raw(raw(data(word))) }
}

const _: () = assert!(usize::BITS == 64, "a waker's data pointer holds a 64-bit word");

static TABLE: RawWakerVTable = RawWakerVTable::new(raw, wake_data, wake_data, ignore);

const fn raw(data: *const ()) -> RawWaker {
    RawWaker::new(data, &TABLE)
}

fn data(word: u64) -> *const () {
    ptr::without_provenance(word as usize)
}

fn wake_data(data: *const ()) {
    wake(data.addr() as u64);
}

fn ignore(_: *const ()) {}
