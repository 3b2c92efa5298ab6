//! The thirteen ledgers that share the one log: which kinds of event each holds, and how these are written.
//!
//! The class of a kind is its ledger's. What is appended is checked against this table before a byte of it is written, and once
//! more when it is folded. No row of any ledger is ever changed or removed, and each carries the hash of its content; a mergeable
//! ledger's rows will be known by that hash alone, wherever they were written. A ledger that no event goes to yet is here all the
//! same, and empty: see `docs/decisions/0003-classes-of-events.md`.

use super::{Class, Event, Origin};
use crate::{admit, effect, id::RunId, lease, reserve, run};
use std::fmt;

/// A ledger: a part of the log that is written in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ledger {
    /// Runs from their spawn to their end.
    Runs,
    /// Attempts at units.
    Attempts,
    /// Forks of a run's history.
    Branches,
    /// Who may write.
    Leases,
    /// What the owner decided about live work.
    Orders,
    /// What the owner set: caps, slots, prices, quotas, tools.
    Settings,
    /// What is set aside and what was spent.
    Spend,
    /// Calls out of the ledger.
    Intents,
    /// What was answered to each request.
    Decisions,
    /// Quotes of sources, read again byte by byte.
    Anchors,
    /// Verdicts and grades.
    Verdicts,
    /// What runs found out that others may use.
    Knowledge,
    /// Raw bytes of what came in.
    Bodies,
}

impl Ledger {
    /// Every ledger.
    pub const ALL: [Ledger; 13] = [
        Ledger::Runs,
        Ledger::Attempts,
        Ledger::Branches,
        Ledger::Leases,
        Ledger::Orders,
        Ledger::Settings,
        Ledger::Spend,
        Ledger::Intents,
        Ledger::Decisions,
        Ledger::Anchors,
        Ledger::Verdicts,
        Ledger::Knowledge,
        Ledger::Bodies,
    ];

    /// Its name, its class, and what it holds, in one line.
    const fn described(self) -> (&'static str, Class, &'static str) {
        use Class::{Mergeable, Scarce, Sequenced};
        match self {
            Ledger::Runs => ("runs", Sequenced, "runs from their spawn to their end"),
            Ledger::Attempts => ("attempts", Sequenced, "attempts at the units of a run"),
            Ledger::Branches => ("branches", Sequenced, "forks of a run's history"),
            Ledger::Leases => ("leases", Scarce, "who may write, and until when"),
            Ledger::Orders => ("orders", Scarce, "what the owner decided about live work"),
            Ledger::Settings => ("settings", Scarce, "what the owner set: caps, slots, prices, quotas, tools"),
            Ledger::Spend => ("spend", Scarce, "what is set aside, and what was spent of it"),
            Ledger::Intents => ("intents", Scarce, "calls out of the ledger, written ahead"),
            Ledger::Decisions => ("decisions", Scarce, "what was answered to each request, once"),
            Ledger::Anchors => ("anchors", Sequenced, "quotes of sources, read again byte by byte"),
            Ledger::Verdicts => ("verdicts", Sequenced, "verdicts and grades of what a run made"),
            Ledger::Knowledge => ("knowledge", Mergeable, "what one run found out and any other may use"),
            Ledger::Bodies => ("bodies", Mergeable, "raw bytes of what came in, by their hash"),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.described().0
    }

    /// How its events are written.
    pub const fn class(self) -> Class {
        self.described().1
    }

    /// What it holds, in one line.
    pub const fn holds(self) -> &'static str {
        self.described().2
    }

    /// The kinds of event that go to it; none if nothing does yet.
    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |kind| kind.ledger() == self)
    }
}

macro_rules! kinds {
    ($($kind:ident $name:literal $ledger:ident $pattern:pat,)*) => {
        /// A kind of event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is the event of its name; see there")]
        pub enum Kind { $($kind),* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// The kind of an event.
            pub const fn of(event: &Event) -> Kind {
                match event { $($pattern => Kind::$kind),* }
            }

            /// Its name: the room, a dot, and what happened.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),* }
            }

            /// The ledger that it goes to.
            pub const fn ledger(self) -> Ledger {
                match self { $(Kind::$kind => Ledger::$ledger),* }
            }
        }
    };
}

kinds! {
    HaltSet "admit.halt-set" Orders Event::Admit(admit::Event::HaltSet { .. }),
    QuotaSet "admit.quota-set" Settings Event::Admit(admit::Event::QuotaSet { .. }),
    Granted "lease.granted" Leases Event::Lease(lease::Event::Granted { .. }),
    Renewed "lease.renewed" Leases Event::Lease(lease::Event::Renewed { .. }),
    Yielded "lease.yielded" Leases Event::Lease(lease::Event::Yielded { .. }),
    Expired "lease.expired" Leases Event::Lease(lease::Event::Expired { .. }),
    Decided "effect.decided" Decisions Event::Effect(effect::Event::Decided { .. }),
    ToolRegistered "effect.tool-registered" Settings Event::Effect(effect::Event::ToolRegistered { .. }),
    Intended "effect.intended" Intents Event::Effect(effect::Event::Intended { .. }),
    Dispatched "effect.dispatched" Intents Event::Effect(effect::Event::Dispatched { .. }),
    Committed "effect.committed" Intents Event::Effect(effect::Event::Committed { .. }),
    CapSet "reserve.cap-set" Settings Event::Reserve(reserve::Event::CapSet { .. }),
    SlotsSet "reserve.slots-set" Settings Event::Reserve(reserve::Event::SlotsSet { .. }),
    PriceSet "reserve.price-set" Settings Event::Reserve(reserve::Event::PriceSet(_)),
    Reserved "reserve.reserved" Spend Event::Reserve(reserve::Event::Reserved { .. }),
    Settled "reserve.settled" Spend Event::Reserve(reserve::Event::Settled { .. }),
    Released "reserve.released" Spend Event::Reserve(reserve::Event::Released { .. }),
    Spawned "run.spawned" Runs Event::Run(run::Event::Spawned { .. }),
    AttemptStarted "run.attempt-started" Attempts Event::Run(run::Event::AttemptStarted { .. }),
    AttemptEnded "run.attempt-ended" Attempts Event::Run(run::Event::AttemptEnded { .. }),
    Ended "run.ended" Runs Event::Run(run::Event::Ended { .. }),
    AttemptQueued "run.attempt-queued" Attempts Event::Run(run::Event::AttemptQueued { .. }),
    Recalled "run.recalled" Attempts Event::Run(run::Event::Recalled { .. }),
    Suspended "run.suspended" Runs Event::Run(run::Event::Suspended { .. }),
    Resumed "run.resumed" Orders Event::Run(run::Event::Resumed { .. }),
    Cancelled "run.cancelled" Orders Event::Run(run::Event::Cancelled { .. }),
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// An event that would be written as its ledger does not let it be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongClass {
    /// It is of another class.
    #[error("{kind} goes to the ledger {}, which is {right:?}, and is offered as {offered:?}", kind.ledger().name())]
    Class {
        /// What it is.
        kind: Kind,
        /// The class of its ledger.
        right: Class,
        /// What it was offered as.
        offered: Class,
    },
    /// A sequenced event that does not say where in its run it stands, nor who writes it under which fence.
    #[error("{kind} is sequenced, and names no writer, fence, branch and position in its run")]
    NoOrigin {
        /// What it is.
        kind: Kind,
    },
    /// An event that is not sequenced, and says that it stands in a run.
    #[error("{kind} is {class:?}, and says that it stands in run {run}; only what is sequenced does")]
    HasOrigin {
        /// What it is.
        kind: Kind,
        /// Its class.
        class: Class,
        /// The run it names.
        run: RunId,
    },
    /// A sequenced event that is said to stand in another run than its own.
    #[error("{kind} is of run {own}, and says that it stands in run {run}")]
    OtherRun {
        /// What it is.
        kind: Kind,
        /// Its own run.
        own: RunId,
        /// The run it names.
        run: RunId,
    },
}

/// Whether an event may be written as `class` at `origin`.
pub fn check(event: &Event, class: Class, origin: Option<&Origin>) -> Result<(), WrongClass> {
    let kind = Kind::of(event);
    let right = kind.ledger().class();
    if class != right {
        return Err(WrongClass::Class { kind, right, offered: class });
    }
    match (right, origin) {
        (Class::Sequenced, None) => Err(WrongClass::NoOrigin { kind }),
        (Class::Sequenced, Some(&Origin { run, .. })) => match event {
            Event::Run(event) if event.run() != run => Err(WrongClass::OtherRun { kind, own: event.run(), run }),
            _ => Ok(()),
        },
        (Class::Mergeable | Class::Scarce, Some(&Origin { run, .. })) => {
            Err(WrongClass::HasOrigin { kind, class, run })
        }
        (Class::Mergeable | Class::Scarce, None) => Ok(()),
    }
}
