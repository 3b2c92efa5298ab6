//! The simulated disk against a naive model that keeps whole files as byte vectors and replays whole prefixes.

use super::{simulated::Offloaded, *};
use crate::Stream;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Unequal on purpose, so that a wrong stamp shows.
const SPEC: DiskSpec = DiskSpec { read_ns: 20, write_ns: 5, sync_ns: 400 };
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Op {
    Open(&'static str, Open),
    List,
    Read(&'static str, u64, usize),
    Write(&'static str, u64, Vec<u8>),
    SetLen(&'static str, u64),
    Sync(&'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    SyncDir,
}

impl Op {
    fn cost_ns(&self) -> u64 {
        match self {
            Op::Open(_, Open::Existing) | Op::List | Op::Read(..) => SPEC.read_ns,
            Op::Open(_, Open::New) | Op::Write(..) | Op::SetLen(..) | Op::Rename(..) | Op::Remove(_) => SPEC.write_ns,
            Op::Sync(_) | Op::SyncDir => SPEC.sync_ns,
        }
    }
}

/// What an operation answered, in a form both sides can give.
type Answer = Result<Vec<u8>, io::ErrorKind>;

/// Runs one operation on a disk, over the handles that earlier ones opened; without its handle an operation is left out.
fn perform(disk: &Disk, files: &mut BTreeMap<&'static str, File>, op: &Op) -> Option<Answer> {
    let nothing = |()| Vec::new();
    let answer = match op {
        Op::Open(name, how) => disk.open(name, *how).map(|file| {
            files.insert(name, file);
            Vec::new()
        }),
        Op::List => disk.list().map(|names| names.join("/").into_bytes()),
        Op::Read(name, offset, len) => {
            let mut into = vec![0; *len];
            files.get(name)?.read_at(*offset, &mut into).map(|()| into)
        }
        Op::Write(name, offset, from) => files.get(name)?.write_at(*offset, from).map(nothing),
        Op::SetLen(name, len) => files.get(name)?.set_len(*len).map(nothing),
        Op::Sync(name) => files.get(name)?.sync().map(nothing),
        Op::Rename(from, to) => {
            let renamed = disk.rename(from, to).map(nothing);
            if renamed.is_ok() && from != to {
                files.remove(to);
                let moved = files.remove(from);
                files.extend(moved.map(|file| (*to, file)));
            }
            renamed
        }
        Op::Remove(name) => {
            files.remove(name);
            disk.remove(name).map(nothing)
        }
        Op::SyncDir => disk.sync_dir().map(nothing),
    };
    Some(answer.map_err(|error| error.kind()))
}

#[derive(Clone, Default, Debug)]
struct Model {
    files: Vec<ModelFile>,
    names: BTreeMap<&'static str, usize>,
    durable_names: BTreeMap<&'static str, usize>,
    pending: Vec<(usize, Option<&'static str>)>,
}

#[derive(Clone, Default, Debug)]
struct ModelFile {
    cached: Vec<u8>,
    durable: Vec<u8>,
}

impl Model {
    fn apply(&mut self, op: &Op) -> Answer {
        let named = |model: &Model, name: &str| model.names.get(name).copied().ok_or(io::ErrorKind::NotFound);
        match op {
            Op::Open(name, Open::Existing) => drop(named(self, name)?),
            Op::Open(name, Open::New) => {
                if self.names.contains_key(name) {
                    return Err(io::ErrorKind::AlreadyExists);
                }
                self.names.insert(name, self.files.len());
                self.pending.push((self.files.len(), Some(name)));
                self.files.push(ModelFile::default());
            }
            Op::List => return Ok(self.names.keys().copied().collect::<Vec<_>>().join("/").into_bytes()),
            Op::Read(name, offset, len) => {
                let cached = &self.files[named(self, name)?].cached;
                let range = *offset as usize..*offset as usize + len;
                return cached.get(range).map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof);
            }
            Op::Write(name, offset, from) => {
                let file = named(self, name)?;
                let cached = &mut self.files[file].cached;
                let start = *offset as usize;
                if !from.is_empty() {
                    cached.resize(cached.len().max(start + from.len()), 0);
                    cached[start..start + from.len()].copy_from_slice(from);
                }
            }
            Op::SetLen(name, len) => {
                let file = named(self, name)?;
                self.files[file].cached.resize(*len as usize, 0);
            }
            Op::Sync(name) => {
                let file = named(self, name)?;
                self.files[file].durable = self.files[file].cached.clone();
            }
            Op::Rename(from, to) => {
                let file = named(self, from)?;
                if from != to {
                    self.names.remove(from);
                    self.names.insert(to, file);
                    self.pending.push((file, Some(to)));
                }
            }
            Op::Remove(name) => {
                let file = named(self, name)?;
                self.names.remove(name);
                self.pending.push((file, None));
            }
            Op::SyncDir => {
                self.durable_names = self.names.clone();
                self.pending.clear();
            }
        }
        Ok(Vec::new())
    }

    fn cached(&self) -> BTreeMap<String, Vec<u8>> {
        self.names.iter().map(|(name, file)| ((*name).to_owned(), self.files[*file].cached.clone())).collect()
    }

    /// Every set of names a power cut may leave.
    fn possible_names(&self) -> BTreeSet<BTreeMap<&'static str, usize>> {
        self.pending.iter().fold(BTreeSet::from([self.durable_names.clone()]), |outcomes, (file, name)| {
            let survived = outcomes.iter().map(|names| {
                let mut names: BTreeMap<_, _> =
                    names.iter().filter(|(_, named)| *named != file).map(|(name, file)| (*name, *file)).collect();
                names.extend(name.map(|name| (name, *file)));
                names
            });
            survived.chain(outcomes.iter().cloned()).collect()
        })
    }
}

impl ModelFile {
    fn may_become(&self, left: &[u8]) -> bool {
        let padded = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        let is = |side: &[u8], at: usize| (at..left.len().min(at + 512)).all(|at| left[at] == padded(side, at));
        (left.len() == self.cached.len() || left.len() == self.durable.len())
            && (0..left.len()).step_by(512).all(|sector| is(&self.cached, sector) || is(&self.durable, sector))
    }
}

/// All that a process would find if it looked now.
fn contents(disk: &Disk) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &String| {
        let file = disk.open(name, Open::Existing).unwrap();
        let mut bytes = vec![0xEE; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    };
    disk.list().unwrap().into_iter().map(|name| (name.clone(), read(&name))).collect()
}

/// A disk and its model, driven side by side as the engine would drive them.
struct Pair {
    disk: SimDisk,
    files: BTreeMap<&'static str, File>,
    base: Model,
    model: Model,
    /// What was done since `base`, each with its start and end.
    log: Vec<(u64, u64, Op)>,
    settled: u64,
    now_ns: u64,
    cursor_ns: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            disk: SimDisk::new(SPEC),
            files: BTreeMap::new(),
            base: Model::default(),
            model: Model::default(),
            log: Vec::new(),
            settled: 0,
            now_ns: 0,
            cursor_ns: 0,
        }
    }

    /// One offloaded closure, `after_ns` after the last one began.
    fn offload(&mut self, after_ns: u64, ops: &[Op]) -> Option<Felled> {
        self.now_ns += after_ns;
        self.cursor_ns = self.cursor_ns.max(self.now_ns);
        self.disk.begin_offload(self.now_ns);
        let mut expected_finish_ns = self.now_ns;
        for op in ops {
            let Some(answer) = perform(&self.disk.disk(), &mut self.files, op) else { continue };
            assert_eq!(answer, self.model.apply(op), "{op:?}");
            let start_ns = self.cursor_ns;
            self.cursor_ns += op.cost_ns();
            expected_finish_ns = self.cursor_ns;
            self.log.push((start_ns, self.cursor_ns, op.clone()));
        }
        let Offloaded { finish_ns, felled } = self.disk.end_offload();
        assert_eq!(finish_ns, felled.map_or(expected_finish_ns, |felled| felled.at_ns));
        felled
    }

    /// Forgets in the model what had not ended at `t_ns`.
    fn replay_until(&mut self, t_ns: u64) {
        let kept = self.log.iter().take_while(|(_, end_ns, _)| *end_ns <= t_ns).count();
        self.keep(kept, t_ns);
    }

    fn keep(&mut self, kept: usize, t_ns: u64) {
        self.model = self.base.clone();
        for (_, _, op) in &self.log[..kept] {
            let _ = self.model.apply(op);
        }
        self.settled += kept as u64;
        self.base = self.model.clone();
        self.log.clear();
        self.files.clear();
        (self.now_ns, self.cursor_ns) = (t_ns, t_ns);
    }

    fn kill(&mut self, t_ns: u64) {
        self.disk.kill(t_ns);
        self.replay_until(t_ns);
        self.check_cached();
    }

    fn power_cut(&mut self, t_ns: u64, draws: &mut Stream) {
        self.disk.power_cut(t_ns, draws);
        self.replay_until(t_ns);
        let left = contents(&self.disk.image());
        let possible = self.model.possible_names();
        let names = possible.into_iter().find(|names| {
            names.len() == left.len()
                && names
                    .iter()
                    .all(|(name, file)| left.get(*name).is_some_and(|left| self.model.files[*file].may_become(left)))
        });
        let names = names.unwrap_or_else(|| panic!("no subset leaves {:?}", left.keys().collect::<Vec<_>>()));
        for (name, file) in &names {
            let bytes = left[*name].clone();
            self.base.files[*file] = ModelFile { cached: bytes.clone(), durable: bytes };
        }
        self.base.names = names.clone();
        self.base.durable_names = names;
        self.base.pending.clear();
        self.model = self.base.clone();
    }

    fn check_cached(&self) {
        assert_eq!(contents(&self.disk.image()), self.model.cached());
        assert_eq!(self.disk.operations(), self.settled + self.log.len() as u64);
    }
}

fn names() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMES[..])
}

fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..13_000, (0u64..26).prop_map(|sector| sector * 512), (0u64..4).prop_map(|page| page * 4096)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let one = prop_oneof![
        3 => names().prop_map(|name| vec![Op::Open(name, Open::New)]),
        1 => names().prop_map(|name| vec![Op::Open(name, Open::Existing)]),
        1 => Just(vec![Op::List]),
        2 => (names(), offsets(), 0usize..6000).prop_map(|(name, at, len)| vec![Op::Read(name, at, len)]),
        8 => (names(), offsets(), prop_oneof![0usize..6000, Just(512), Just(4096), Just(8192)], 1u8..).prop_map(
            |(name, at, len, byte)| vec![Op::Open(name, Open::Existing), Op::Write(name, at, vec![byte; len])]
        ),
        3 => (names(), offsets()).prop_map(|(name, len)| vec![Op::SetLen(name, len)]),
        3 => names().prop_map(|name| vec![Op::Sync(name)]),
        1 => (names(), names()).prop_map(|(from, to)| vec![Op::Rename(from, to)]),
        1 => names().prop_map(|name| vec![Op::Remove(name)]),
        2 => Just(vec![Op::SyncDir]),
    ];
    proptest::collection::vec(one, 0..14).prop_map(|ops| ops.concat())
}

fn offloads() -> impl Strategy<Value = Vec<(u64, Vec<Op>)>> {
    proptest::collection::vec((prop_oneof![Just(0u64), 0u64..1_500], ops()), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn crashes_leave_what_the_model_allows(
        lives in proptest::collection::vec((offloads(), 0u64..3_000, any::<bool>()), 1..5),
        seed in any::<u64>(),
    ) {
        let mut draws = Stream::keyed(seed, &[]);
        let mut pair = Pair::new();
        for (offloads, crash_after_ns, power_cut) in lives {
            for (after_ns, ops) in offloads {
                pair.offload(after_ns, &ops);
                pair.check_cached();
            }
            let t_ns = pair.now_ns + crash_after_ns;
            if power_cut { pair.power_cut(t_ns, &mut draws) } else { pair.kill(t_ns) }
        }
    }

    /// At each operation in turn: the closures notice nothing, and after the kill all before it happened and nothing else.
    #[test]
    fn felling_at_each_operation_keeps_just_those_before_it(offloads in offloads()) {
        let mut whole = Pair::new();
        for (after_ns, ops) in &offloads {
            whole.offload(*after_ns, ops);
        }
        for nth in 1..=whole.log.len() {
            let mut pair = Pair::new();
            pair.disk.arm_fell(nth as u64, false);
            let felled = offloads.iter().find_map(|(after_ns, ops)| pair.offload(*after_ns, ops)).unwrap();
            prop_assert_eq!(felled, Felled { at_ns: whole.log[nth - 1].0, power_cut: false });
            pair.disk.kill(felled.at_ns);
            pair.keep(nth - 1, felled.at_ns);
            pair.check_cached();
        }
    }

    #[test]
    fn both_disks_answer_alike(ops in ops()) {
        let folder = tempfile::tempdir().unwrap();
        let real = Disk::at(folder.path()).unwrap();
        let mut files = BTreeMap::new();
        let mut pair = Pair::new();
        for op in &ops {
            prop_assert_eq!(perform(&real, &mut files, op), {
                pair.disk.begin_offload(0);
                let answer = perform(&pair.disk.disk(), &mut pair.files, op);
                pair.disk.end_offload();
                answer
            }, "{:?}", op);
        }
        prop_assert_eq!(real.operations(), pair.disk.operations());
        prop_assert_eq!(contents(&real), contents(&pair.disk.image()));
    }
}

/// Runs `work` as an offload at `now_ns` and gives back its end.
fn offload(disk: &SimDisk, now_ns: u64, work: impl FnOnce(&Disk)) -> u64 {
    disk.begin_offload(now_ns);
    work(&disk.disk());
    disk.end_offload().finish_ns
}

/// What is left of `work` after a power cut at its end, over many draws.
fn leavings(work: impl Fn(&Disk)) -> BTreeSet<BTreeMap<String, Vec<u8>>> {
    leavings_before_the_end(0, work)
}

fn leavings_before_the_end(short_ns: u64, work: impl Fn(&Disk)) -> BTreeSet<BTreeMap<String, Vec<u8>>> {
    let left = |seed| {
        let disk = SimDisk::new(SPEC);
        let end_ns = offload(&disk, 0, &work);
        disk.power_cut(end_ns - short_ns, &mut Stream::keyed(seed, &[7]));
        contents(&disk.image())
    };
    (0..200).map(left).collect()
}

fn left(files: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

fn write_new(disk: &Disk, name: &str, bytes: &[u8]) -> File {
    let file = disk.open(name, Open::New).unwrap();
    file.write_at(0, bytes).unwrap();
    file
}

#[test]
fn a_power_cut_leaves_every_outcome_that_is_allowed_and_no_other() {
    type Case = (&'static str, fn(&Disk), Vec<BTreeMap<String, Vec<u8>>>);
    let cases: Vec<Case> = vec![
        (
            "neither the name nor the content was synced",
            |disk| drop(write_new(disk, "a", b"new")),
            vec![left(&[]), left(&[("a", b"")]), left(&[("a", b"\0\0\0")]), left(&[("a", b"new")])],
        ),
        (
            "a synced file has no name until the directory is synced",
            |disk| write_new(disk, "a", b"new").sync().unwrap(),
            vec![left(&[]), left(&[("a", b"new")])],
        ),
        (
            "all was synced",
            |disk| {
                write_new(disk, "a", b"new").sync().unwrap();
                disk.sync_dir().unwrap();
            },
            vec![left(&[("a", b"new")])],
        ),
        (
            "publishing by rename keeps the old file or the new one",
            |disk| {
                write_new(disk, "a", b"old").sync().unwrap();
                disk.sync_dir().unwrap();
                write_new(disk, "b", b"new").sync().unwrap();
                disk.rename("b", "a").unwrap();
            },
            vec![left(&[("a", b"old")]), left(&[("a", b"old"), ("b", b"new")]), left(&[("a", b"new")])],
        ),
        (
            "a removal that was not synced",
            |disk| {
                write_new(disk, "a", b"old").sync().unwrap();
                disk.sync_dir().unwrap();
                disk.remove("a").unwrap();
            },
            vec![left(&[]), left(&[("a", b"old")])],
        ),
        (
            "a cut of the length shows the old tail or no tail",
            |disk| {
                let file = write_new(disk, "a", &[7; 5000]);
                file.sync().unwrap();
                disk.sync_dir().unwrap();
                file.set_len(4096).unwrap();
            },
            vec![left(&[("a", &[7; 5000])]), left(&[("a", &[7; 4096])])],
        ),
    ];
    for (what, work, mut allowed) in cases {
        allowed.sort();
        assert_eq!(leavings(work).into_iter().collect::<Vec<_>>(), allowed, "{what}");
    }
}

#[test]
fn a_power_cut_tears_pages_at_sectors_and_also_keeps_them_whole() {
    let outcomes = leavings(|disk| {
        let file = write_new(disk, "a", &[1; 8192]);
        file.sync().unwrap();
        disk.sync_dir().unwrap();
        file.write_at(0, &[2; 8192]).unwrap();
    });
    let pages: Vec<&[u8]> = outcomes.iter().map(|left| &left["a"][..]).collect();
    assert!(pages.iter().all(|bytes| bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0]))));
    let reordered = [[1; 4096], [2; 4096]].concat();
    assert!(pages.contains(&&reordered[..]), "the second page whole without the first");
    assert!(pages.iter().any(|bytes| bytes[..4096].iter().any(|byte| *byte != bytes[0])), "a torn first page");
}

#[test]
fn a_sync_cut_short_is_as_if_it_had_not_begun() {
    let unsynced = |disk: &Disk| {
        let file = write_new(disk, "a", &[1; 1024]);
        disk.rename("a", "b").unwrap();
        file
    };
    let neither = leavings(|disk| drop(unsynced(disk)));
    assert!(neither.len() > 4);
    let cut_short = [
        leavings_before_the_end(1, |disk| unsynced(disk).sync().unwrap()),
        leavings_before_the_end(1, |disk| {
            unsynced(disk);
            disk.sync_dir().unwrap();
        }),
    ];
    assert_eq!(cut_short, [neither.clone(), neither]);
}

#[test]
fn a_sync_repeated_after_a_kill_cut_it_short_makes_all_durable() {
    for seed in 0..40 {
        let disk = SimDisk::new(SPEC);
        let end_ns = offload(&disk, 0, |disk| {
            let file = write_new(disk, "a", b"new");
            disk.sync_dir().unwrap();
            file.sync().unwrap();
        });
        disk.kill(end_ns - 1);
        let end_ns = offload(&disk, end_ns, |disk| disk.open("a", Open::Existing).unwrap().sync().unwrap());
        disk.power_cut(end_ns, &mut Stream::keyed(seed, &[]));
        assert_eq!(contents(&disk.image()), left(&[("a", b"new")]));
    }
}

#[test]
fn a_felled_node_sees_nothing_but_success_and_leaves_nothing() {
    let disk = SimDisk::new(SPEC);
    disk.arm_fell(2, true);
    disk.begin_offload(1_000);
    let file = write_new(&disk.disk(), "a", b"new");
    let mut read = [0; 3];
    file.read_at(0, &mut read).unwrap();
    disk.disk().rename("a", "b").unwrap();
    assert_eq!((read, file.len().unwrap()), (*b"new", 3));
    let at_ns = 1_000 + SPEC.write_ns;
    let felled = Some(Felled { at_ns, power_cut: true });
    assert_eq!(disk.end_offload(), Offloaded { finish_ns: at_ns, felled });
    let late = offload(&disk, 1_001, |disk| disk.remove("b").unwrap());
    assert_eq!(late, at_ns, "no result is due before the node is down");
    disk.kill(at_ns);
    assert_eq!((contents(&disk.image()), disk.operations()), (left(&[("a", b"")]), 1));
    assert_eq!(offload(&disk, at_ns, |disk| disk.remove("a").unwrap()), at_ns + SPEC.write_ns);
}

#[test]
fn a_disarmed_disk_fells_nobody() {
    let disk = SimDisk::new(SPEC);
    disk.arm_fell(1, false);
    disk.disarm();
    disk.begin_offload(0);
    disk.disk().list().unwrap();
    assert_eq!(disk.end_offload().felled, None);
}

#[test]
fn offloads_queue_for_the_disk_and_those_without_operations_do_not() {
    let disk = SimDisk::new(SPEC);
    let first_ns = offload(&disk, 0, |disk| disk.sync_dir().unwrap());
    assert_eq!(first_ns, SPEC.sync_ns);
    assert_eq!(offload(&disk, 1, |disk| drop(disk.list().unwrap())), first_ns + SPEC.read_ns);
    assert_eq!(offload(&disk, 2, |_| {}), 2);
}

#[test]
fn a_length_read_behind_an_operation_ahead_is_due_when_that_ends() {
    let disk = SimDisk::new(SPEC);
    disk.begin_offload(0);
    let file = write_new(&disk.disk(), "a", b"new");
    let written_ns = disk.end_offload().finish_ns;
    let read_ns = offload(&disk, 1, |_| assert_eq!(file.len().unwrap(), 3));
    assert_eq!(read_ns, written_ns);
}

#[test]
fn a_removed_file_serves_its_handles_and_is_then_freed() {
    let disk = SimDisk::new(SPEC);
    disk.begin_offload(0);
    let file = write_new(&disk.disk(), "a", b"new");
    disk.disk().remove("a").unwrap();
    disk.disk().sync_dir().unwrap();
    let mut ns = disk.end_offload().finish_ns;
    let mut read = [0; 3];
    ns = offload(&disk, ns, |_| file.read_at(0, &mut read).unwrap());
    assert_eq!((read, disk.files()), (*b"new", 1));
    drop(file);
    offload(&disk, ns, |_| {});
    assert_eq!(disk.files(), 0);
}

#[test]
fn an_image_is_apart_from_its_disk_and_takes_no_time() {
    let disk = SimDisk::new(SPEC);
    offload(&disk, 0, |disk| drop(write_new(disk, "a", b"new")));
    let image = disk.image();
    image.open("a", Open::Existing).unwrap().write_at(0, b"old").unwrap();
    image.remove("a").unwrap();
    assert_eq!(contents(&disk.image()), left(&[("a", b"new")]));
    assert_eq!(disk.operations(), 2);
}

#[test]
#[should_panic(expected = "only inside World::offload")]
fn a_simulated_disk_outside_an_offload_is_refused() {
    let _ = SimDisk::new(SPEC).disk().list();
}

#[test]
fn names_that_are_no_file_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for disk in [Disk::at(folder.path()).unwrap(), SimDisk::new(SPEC).image()] {
        for name in ["", ".", "..", "a/b", "/a", "a\0b"] {
            let error = disk.open(name, Open::New).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}

#[test]
fn ranges_past_the_largest_offset_are_refused() {
    let file = SimDisk::new(SPEC).image().open("a", Open::New).unwrap();
    assert_eq!(file.write_at(u64::MAX, b"ab").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(file.read_at(u64::MAX, &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn disks_and_files_go_to_other_threads() {
    fn both<T: Send + Sync>() {}
    both::<Disk>();
    both::<File>();
}
