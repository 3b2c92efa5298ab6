//! The thorough forger at the two ceilings outside the ledger: the edge, and the credit of the provider's keys.

use crate::{
    forge::{Folder, recorded},
    semantic::{Forge, event},
};
use kernel::{
    id::UserId,
    record::Event,
    run::{self, Ending, HaltReason},
};
use scenarios::{
    checker::Status,
    fact::{Answered, EdgeCeiling, EdgeRefusal, Fact},
};
use std::sync::LazyLock;

/// A run in which every ceiling binds for somebody.
static BOUND: LazyLock<Folder> = LazyLock::new(|| {
    let all = ["edge", "quota", "halt", "memo", "reserve", "key-credit", "settle"];
    let binds = |folder: &Folder| {
        let ceilings = folder.result["figures"]["ceilings"].as_object().expect("counts");
        folder.verdict() == "pass" && all.iter().all(|ceiling| ceilings.contains_key(*ceiling))
    };
    (0..40).map(|seed| recorded("ceilings", seed, &[])).find(binds).expect("one of forty runs meets all seven")
});

/// What was changed, how, and the rule that finds it.
pub const FORGED: [(&str, Forge, &str); 11] = [
    (
        "a call past the ledger was charged over its key's limit",
        |f| {
            f.facts(|fact| match *fact {
                Fact::StrayRefused { user, asked, .. } => {
                    *fact = Fact::StrayCharged { user, cost: asked };
                    true
                }
                _ => false,
            })
        },
        "key-credit",
    ),
    (
        "a call past the ledger was refused of which enough was left",
        |f| {
            f.facts(|fact| match fact {
                Fact::StrayRefused { asked, left, .. } => {
                    *left = *asked;
                    true
                }
                _ => false,
            })
        },
        "key-credit",
    ),
    (
        "a call that was refused at the edge passed",
        |f| {
            f.facts(|fact| match *fact {
                Fact::EdgeRefused { user, address, at_ns, refusal } if refusal.ceiling == EdgeCeiling::Key => {
                    *fact = Fact::EdgePassed { user, address, at_ns };
                    true
                }
                _ => false,
            })
        },
        "edge",
    ),
    (
        "a call was refused that had room",
        |f| {
            f.facts(|fact| match *fact {
                Fact::EdgePassed { user, address, at_ns } => {
                    let refusal = EdgeRefusal { ceiling: EdgeCeiling::Key, limit: 600, asked: 1, left: 0, again_ns: 1 };
                    *fact = Fact::EdgeRefused { user, address, at_ns, refusal };
                    true
                }
                _ => false,
            })
        },
        "edge",
    ),
    (
        "a call went past the edge",
        |f| {
            f.facts(|fact| match fact {
                Fact::EdgePassed { user, .. } if *user == UserId(11) => {
                    *user = UserId(77);
                    true
                }
                _ => false,
            })
        },
        "edge",
    ),
    (
        "the edge's clock stood still",
        |f| {
            let mut first = None;
            f.facts(|fact| match fact {
                Fact::EdgePassed { at_ns, .. } => match first {
                    Some(before) if *at_ns > before + 30_000_000_000 => {
                        *at_ns = before;
                        true
                    }
                    _ => {
                        first.get_or_insert(*at_ns);
                        false
                    }
                },
                _ => false,
            });
        },
        "edge",
    ),
    (
        "an edge of other limits than the capsule's",
        |f| {
            f.facts(|fact| match fact {
                Fact::EdgeUp { per_key, .. } => {
                    *per_key += 1;
                    true
                }
                _ => false,
            })
        },
        "edge",
    ),
    (
        "a capsule of other limits than the edge's",
        |f| f.recapsule(|capsule| capsule.scenario.edge.as_mut().expect("an edge").per_address += 1),
        "edge",
    ),
    (
        "a refusal for credit with more left than is said",
        |f| {
            f.facts(|fact| match fact {
                Fact::TurnedAway { answered: Answered::NoCredit { left, .. }, .. } => {
                    left.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "key-credit",
    ),
    (
        "a key with less credit than was charged",
        |f| {
            f.facts(|fact| match fact {
                Fact::KeyCredit { limit } => {
                    limit.0 = 1;
                    true
                }
                _ => false,
            });
            f.recapsule(|capsule| capsule.scenario.provider.key_credit.as_mut().expect("a limit").0 = 1);
        },
        "key-credit",
    ),
    (
        "a run halted for want of credit that had none refused",
        |f| {
            event(f, |event| match event {
                Event::Run(run::Event::Ended { outcome: Ending::Halted(by), .. }) if *by == HaltReason::Owner => {
                    *by = HaltReason::Key;
                    true
                }
                _ => false,
            });
        },
        "key-credit",
    ),
];

#[test]
fn the_forger_is_found_at_the_edge_and_at_the_key() {
    assert_eq!(BOUND.broken(), Vec::<&str>::new());
    for (what, forge, rule) in FORGED {
        let mut folder = BOUND.clone();
        forge(&mut folder);
        let broken = folder.broken();
        assert!(broken.contains(&rule), "{what}: {rule} holds; {broken:?}");
        assert!(!broken.contains(&"history-hash") && !broken.contains(&"capsule"), "{what} is botched: {broken:?}");
    }
}

/// Which ceiling stopped how much is worked out again, number by number.
#[test]
fn what_each_ceiling_stopped_is_worked_out_again() {
    for ceiling in ["edge", "quota", "halt", "memo", "reserve", "key-credit", "settle"] {
        let mut folder = BOUND.clone();
        let stated = &mut folder.result["figures"]["ceilings"][ceiling];
        *stated = (stated.as_u64().expect("a count") + 1).into();
        let checked = folder.check().expect("it can be checked");
        let figure = checked.figures.iter().find(|figure| figure.name == "ceilings").expect("a figure");
        assert_eq!(figure.status, Status::Failed, "{ceiling}");
    }
}
