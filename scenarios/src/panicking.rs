//! Panics of what plays a run, caught with what they said, where, and whose code it was.
//!
//! A panic's payload does not say where it came from; the panic hook does. The hook set here keeps that for the thread on which
//! something is being [`caught`], and hands every other panic on to the hook that was there before.

use crate::invariant::Broken;
use std::{
    any::Any,
    backtrace::Backtrace,
    cell::{Cell, RefCell},
    fmt,
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    sync::Once,
};

/// Whose code panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The ledger under test, its store included.
    Kernel,
    /// A process of the cast: an agent, the provider, the owner.
    Cast,
    /// An invariant, or the reference model.
    Invariant,
    /// A workload, drawing its lists.
    Workload,
    /// The engine, the director, or whatever else of shakedown.
    Engine,
}

impl Whose {
    /// All of them.
    pub const ALL: [Whose; 5] = [Whose::Kernel, Whose::Cast, Whose::Invariant, Whose::Workload, Whose::Engine];

    /// What is reported as broken in a run in which it panics.
    pub const fn name(self) -> &'static str {
        match self {
            Whose::Kernel => "kernel-panic",
            Whose::Cast => "cast-panic",
            Whose::Invariant => "invariant-panic",
            Whose::Workload => "workload-panic",
            Whose::Engine => "engine-panic",
        }
    }

    /// By the file that a panic came out of; `None` if it is none of ours, such as a library's.
    fn of_file(file: &str) -> Option<Whose> {
        let file = format!("/{}", file.replace('\\', "/"));
        let ours = [
            ("/kernel/src/", Whose::Kernel),
            ("/scenarios/src/cast/", Whose::Cast),
            ("/scenarios/src/invariant/", Whose::Invariant),
            ("/scenarios/src/model/", Whose::Invariant),
            ("/scenarios/src/workload/", Whose::Workload),
            ("/scenarios/src/", Whose::Engine),
            ("/sim/src/", Whose::Engine),
        ];
        ours.into_iter().find(|(folder, _)| file.contains(folder)).map(|(_, whose)| whose)
    }

    /// By the innermost function of ours that led to a panic in a library.
    fn of_trace(trace: &str) -> Option<Whose> {
        let ours = [
            ("kernel::", Whose::Kernel),
            ("scenarios::cast::", Whose::Cast),
            ("scenarios::invariant::", Whose::Invariant),
            ("scenarios::model::", Whose::Invariant),
            ("scenarios::workload::", Whose::Workload),
            ("sim::", Whose::Engine),
        ];
        let is_here =
            |line: &&str| line.contains("scenarios::panicking") || line.contains("scenarios/src/panicking.rs");
        let functions = trace.lines().filter(|line| !is_here(line));
        // A function that was inlined goes by its bare name there, and its file tells.
        let by_file = |line: &str| line.trim_start().strip_prefix("at ").and_then(Whose::of_file);
        let by_name = |line: &str| ours.into_iter().find(|(path, _)| names(line, path)).map(|(_, whose)| whose);
        let of = |line: &str| by_file(line).or_else(|| by_name(line));
        functions.into_iter().find_map(of)
    }
}

/// Whether a line of a trace names something below `path`, which begins a word.
fn names(line: &str, path: &str) -> bool {
    let begins =
        |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':');
    line.match_indices(path).any(|(at, _)| begins(at))
}

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// Whose code it was.
    pub whose: Whose,
    /// File, line and column, if they are known.
    pub place: Option<String>,
    /// What it said.
    pub message: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(out, "panicked at {place}: {}", self.message),
            None => write!(out, "panicked: {}", self.message),
        }
    }
}

impl Panic {
    /// What a payload says, and where this thread's last panic was.
    pub fn told(payload: &(dyn Any + Send)) -> Panic {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied());
        let message = said.unwrap_or("a panic without words").to_owned();
        let last = LAST.with(RefCell::take);
        let (whose, place) = last.map_or((Whose::Engine, None), |(whose, place)| (whose, Some(place)));
        Panic { whose, place, message }
    }

    /// As what was broken, at `time_ns`.
    pub fn broken(&self, time_ns: u64) -> Broken {
        Broken { invariant: self.whose.name().to_owned(), message: self.to_string(), time_ns }
    }
}

thread_local! {
    /// How many calls of [`caught`] this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whose code the last panic in one of them was, and where.
    static LAST: RefCell<Option<(Whose, String)>> = const { RefCell::new(None) };
}

/// Does it; a panic is caught. Invariants and results that it had borrowed are as the panic left them.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    keep_places();
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    let done = catch_unwind(AssertUnwindSafe(work));
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    done.map_err(|payload| Panic::told(&*payload))
}

fn keep_places() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if DEPTH.with(Cell::get) == 0 {
                return before(panic);
            }
            let place = place(panic);
            LAST.with(|last| *last.borrow_mut() = place);
        }));
    });
}

fn place(panic: &PanicHookInfo<'_>) -> Option<(Whose, String)> {
    let at = panic.location()?;
    let traced = || Whose::of_trace(&Backtrace::force_capture().to_string());
    let whose = Whose::of_file(at.file()).or_else(traced).unwrap_or(Whose::Engine);
    Some((whose, at.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_whose_file_it_came_out_of_or_whose_function_called_a_library() {
        for (file, whose) in [
            ("kernel/src/reserve.rs", Some(Whose::Kernel)),
            ("/home/me/shakedown/kernel/src/store/redb.rs", Some(Whose::Kernel)),
            ("scenarios\\src\\cast\\agent.rs", Some(Whose::Cast)),
            ("scenarios/src/invariant/few_calls.rs", Some(Whose::Invariant)),
            ("scenarios/src/model/rules.rs", Some(Whose::Invariant)),
            ("scenarios/src/workload/burst.rs", Some(Whose::Workload)),
            ("scenarios/src/runner/director.rs", Some(Whose::Engine)),
            ("sim/src/native/executor.rs", Some(Whose::Engine)),
            ("/home/me/.cargo/registry/src/redb-4.0.0/src/db.rs", None),
        ] {
            assert_eq!(Whose::of_file(file), whose, "{file}");
        }
        let trace = "   3: core::result::unwrap_failed\n   4: redb::db::open\n   5: mykernel::no\n   \
                     6: <kernel::store::redb::RedbStore as kernel::store::Store>::commit\n   7: scenarios::cast::ledger::boot";
        assert_eq!(Whose::of_trace(trace), Some(Whose::Kernel));
        let others = "   4: mykernel::no\n   5: my::kernel::neither\n   6: scenarios::cast::ledger::boot";
        assert_eq!(Whose::of_trace(others), Some(Whose::Cast), "a path begins a word");
        let inlined = "   3: commit\n             at ./kernel/src/store/redb.rs:96:9\n   4: sim::native::play";
        assert_eq!(Whose::of_trace(inlined), Some(Whose::Kernel));
        assert_eq!(Whose::of_trace("   1: core::panicking::panic\n   2: scenarios::panicking::caught"), None);
    }

    #[test]
    fn what_is_caught_says_what_and_where_and_the_one_outside_is_not_taken_for_the_one_inside() {
        let outer = caught(|| {
            let inner = caught(|| -> u32 { panic!("inner {}", 1) }).expect_err("it panics");
            assert!(inner.place.as_ref().is_some_and(|place| place.contains("panicking.rs:")), "{inner:?}");
            assert_eq!(inner.message, "inner 1");
            let digit = "no digits".chars().find(char::is_ascii_digit);
            digit.expect("outer")
        });
        let outer = outer.expect_err("it panics");
        assert_eq!(outer.message, "outer");
        assert!(outer.to_string().contains("panicking.rs:"), "{outer}");
        assert_eq!(caught(|| 7), Ok(7));
    }
}
