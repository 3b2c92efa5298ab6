//! Scenario files and capsules: read as written, and refused with a remedy, whatever is in them.

use proptest::prelude::*;
use scenarios::{
    capsule::{Capsule, CapsuleError},
    catalogue::{self, CatalogueError},
    runner::{Choices, Provenance, play, spec},
};
use std::sync::LazyLock;

const CRASH: &str = include_str!("../catalogue/crash.toml");

/// A capsule as it is written.
static CAPSULE: LazyLock<String> = LazyLock::new(|| {
    let scenario = catalogue::find("crash").expect("shipped");
    let spec = spec(&scenario, u64::MAX, &Choices::default()).expect("a spec");
    let report = play(&spec).expect("playable").report;
    Capsule::of(&spec, &report, &Provenance::default()).to_toml().expect("writable")
});

#[test]
fn the_shipped_scenarios_are_in_order() {
    let all = catalogue::all();
    assert_eq!(all.iter().map(|scenario| scenario.name.as_str()).collect::<Vec<_>>(), catalogue::names());
    for scenario in all {
        let written = toml::to_string(&scenario).expect("writable");
        assert_eq!(catalogue::parse(&written, "copy").expect("readable"), scenario);
    }
}

#[test]
fn senseless_scenarios_are_refused_with_a_remedy() {
    let table = [
        ("agents = 4", "agents = 0", "sizes.agents: 0 is out of range; it is 1 to 65536"),
        ("agents = 4", "agents = -1", "line"),
        ("agents = 4", "agents = 99999999999999999999", "line"),
        ("for = \"3m\"", "for = \"5ms\"", "sizes.for"),
        ("for = \"3m\"", "for = \"forever\"", "line"),
        ("agents_per_user = 4", "agents_per_user = 0", "sizes.agents_per_user"),
        ("runs_per_agent = 2", "runs_per_agent = 100000000", "sizes.runs_per_agent"),
        ("unit = 100_000", "unit = 100_000_000_000_001", "caps.unit"),
        ("slots = 10", "slots = 0", "caps.slots"),
        ("speedup = 1", "speedup = 0", "provider.speedup"),
        ("lease = \"10s\"", "lease = \"0s\"", "ledger.lease"),
        ("batch_limit = 256", "batch_limit = 0", "ledger.batch_limit"),
        ("latency_min_ns = 100_000", "latency_min_ns = 300_001", "weather.latency_min_ns"),
        ("loss_ppm = 0", "loss_ppm = 1_000_001", "weather.loss_ppm"),
        ("sync_ns = 400_000", "sync_ns = 400_000_000_000", "disk.sync_ns"),
        ("most_per_kind = 8", "most_per_kind = 0", "swarm.most_per_kind"),
        ("\"kill\", ", "\"kill\", \"kill\", ", "swarm.kinds: `kill` is named twice"),
        ("\"kill\", ", "\"explode\", ", "line"),
        ("\"dense\"", "\"tense\"", "invariants: `tense` is not known; known are dense, "),
        ("\"dense\"", "\"tense\"", "rebuild, and a new one has its row in scenarios/src/invariant/mod.rs"),
        ("rows = []", "rows = [\"X9\"]", "rows: `X9` is not known"),
        ("heal_bound = \"45m\"", "heal_bound = \"0s\"", "heal_bound"),
        ("name = \"crash\"", "name = \"../crash\"", "name: a name is"),
        ("format = 1", "format = 2\nnew = 1", "scenario format 2, and this build reads format 1"),
        ("format = 1", "format = 1\nnew = 1", "unknown field `new`"),
        ("[disk]", "[disc]", "line"),
        ("[disk]", "[runaway]\nagent = 0\nevery = \"1s\"\n[disk]", "line"),
        (
            "[disk]",
            "[runaway]\nagent = 0\nevery = \"1s\"\nusage = { input_tokens = 0, output_tokens = 0 }\n[disk]",
            "runaway.usage.output_tokens: 0",
        ),
        (
            "[disk]",
            "[runaway]\nagent = 0\nevery = \"1ms\"\nusage = { input_tokens = 0, output_tokens = 1 }\n[disk]",
            "runaway.every",
        ),
        (
            "[disk]",
            "[runaway]\nagent = 0\nevery = \"1s\"\nusage = { input_tokens = 0, output_tokens = 1 }\n[disk]",
            "runaway: no credit limit stops it; set provider.key_credit",
        ),
    ];
    for (from, to, expect) in table {
        let text = CRASH.replacen(from, to, 1);
        assert_ne!(text, CRASH, "{from} is not in the file");
        let error = catalogue::parse(&text, "mine.toml").expect_err(to).to_string();
        assert!(error.contains(expect) && error.contains("mine.toml"), "{to}: {error}\nwithout: {expect}");
    }
}

#[test]
fn unknown_names_are_refused_with_what_is_known() {
    let error = catalogue::find("flet").expect_err("unknown").to_string();
    assert!(
        error.contains("did you mean `fleet`?")
            && error.contains("fleet, contention, edge-of-cap, partition, crash, producers, zombies, day, thrash"),
        "{error}"
    );
    assert!(matches!(catalogue::find("zzz"), Err(CatalogueError::Unknown { nearest: None, .. })));
    assert!(matches!(catalogue::find("no/such.toml"), Err(CatalogueError::Unreadable { .. })));
}

#[test]
fn a_users_own_file_goes_by_its_path() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue/crash.toml");
    assert_eq!(catalogue::find(path).expect("readable"), catalogue::find("crash").expect("shipped"));
}

#[test]
fn capsules_read_back_and_damaged_ones_are_refused_with_a_remedy() {
    let capsule = Capsule::from_toml(&CAPSULE).expect("readable");
    assert_eq!(capsule.seed, u64::MAX);
    assert_eq!(&capsule.to_toml().expect("writable"), &*CAPSULE);
    let table = [
        ("format = 1", "format = 2", "capsule format 2 is not known"),
        ("bugs = []", "bugs = [\"gremlin\"]", "no planted bug `gremlin` in this build; known are skip-fence"),
        ("engine = \"native\"", "engine = \"steam\"", "line 2"),
        ("store = \"redb\"", "store = \"memory\"", "store and scenario.store differ"),
        ("seed = \"18446744073709551615\"", "seed = \"18446744073709551616\"", "seed"),
        ("agents = 4", "agents = 5", "it has lists for 4 agents, and there are 5"),
        ("verdict = \"pass\"", "", "verdict"),
    ];
    for (from, to, expect) in table {
        let changed = CAPSULE.replacen(from, to, 1);
        assert_ne!(&changed, &*CAPSULE, "{from} is not in the file");
        assert!(Capsule::from_toml(&changed).is_err(), "{to}");
        let (_digest, text) = changed.split_once('\n').expect("a capsule has lines");
        let error = Capsule::from_toml(text).expect_err(to).to_string();
        assert!(error.contains(expect), "{to}: {error}\nwithout: {expect}");
    }
    let cut = &CAPSULE[..CAPSULE.len() / 2];
    assert!(Capsule::from_toml(cut).is_err());
    let other_hash = CAPSULE.replacen("history_hash = \"", "history_hash = \"0", 1);
    assert!(matches!(Capsule::from_toml(&other_hash), Err(CapsuleError::Changed)));
}

#[test]
fn a_capsule_is_saved_whole() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("capsule.toml");
    let capsule = Capsule::from_toml(&CAPSULE).expect("readable");
    for _ in 0..2 {
        capsule.save(&path).expect("saved, over the one before too");
        assert_eq!(Capsule::load(&path).expect("readable"), capsule);
    }
    assert!(matches!(capsule.save(&root.path().join("no/such")), Err(CapsuleError::File { doing: "write", .. })));
    assert!(matches!(Capsule::load(root.path()), Err(CapsuleError::File { doing: "read", .. })));
}

/// The text with one byte changed, and cut.
fn damaged(text: &str, at: usize, byte: u8) -> [String; 2] {
    let mut bytes = text.as_bytes().to_vec();
    let at = at % bytes.len();
    bytes[at] = byte;
    [String::from_utf8_lossy(&bytes).into_owned(), String::from_utf8_lossy(&bytes[..at]).into_owned()]
}

proptest! {
    #[test]
    fn any_text_is_a_scenario_or_refused(text in "\\PC*") {
        let _ = catalogue::parse(&text, "any");
        let _ = catalogue::find(&text);
        let _ = Capsule::from_toml(&text);
    }

    #[test]
    fn any_damage_to_a_scenario_is_read_or_refused(at: usize, byte: u8) {
        for text in damaged(CRASH, at, byte) {
            if let Ok(scenario) = catalogue::parse(&text, "any") {
                scenario.check().expect("what is read is in order");
                let _ = spec(&scenario, 0, &Choices::default());
            }
        }
    }

    #[test]
    fn any_damage_to_a_capsule_is_read_or_refused(at: usize, byte: u8) {
        for text in damaged(&CAPSULE, at, byte) {
            let _ = Capsule::from_toml(&text);
        }
    }
}
