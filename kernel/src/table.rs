//! Typed maps, and all the ledger's tables together.
//!
//! A [`Table`] is a map that knows three things more: which rows changed since the last checkpoint, how to take back
//! what one request wrote, and a hash over its rows. Its number is stable: it names the table in a store. Its [`Rows`] are
//! ordered where somebody goes through a range of them, and [`Hashed`] where they are asked for one key at a time.
//! Every table is derived: [`Tables::apply`] over the log's records from the first gives each of them hash-equal.
//!
//! # The hash
//!
//! A row's part is blake3 over the table's number, the lengths of its key and value, and both encodings. A table's hash is
//! blake3 over its number, its number of rows, and the sum of their parts modulo 2^256. A sum has no order, so a checkpoint
//! pays for the rows that changed since the one before it and not for all of them: a saved row's part leaves the sum when the
//! row first changes, and what the row has become enters it at the next save. [`Tables::hashes`] trusts no such reckoning and
//! sums over every row.
//!
//! It finds rows that are lost, added, swapped, changed or torn, and tables that drift from their log. It is no seal: sums
//! of hashes can be made to collide by whoever may choose very many rows (Wagner's generalized birthday), and the hash stands
//! unkeyed beside the rows. Against whoever can write to the store, only the log's chain, known from elsewhere, is evidence.

mod rows;

use crate::{
    admit, effect, lease,
    planted::Planted,
    record::{self, Hash, Record},
    reserve,
    room::Impossible,
    run,
    store::Row,
};
pub use rows::Hashed;
pub(crate) use rows::Rows;
use rows::WasThere;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash as Hashable,
    ops::RangeBounds,
};

/// One row in memory.
#[derive(Clone, Debug)]
pub struct Kept<V> {
    value: V,
    standing: Standing,
}

/// How a row stands to what the last checkpoint saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is not among what was saved.
    New,
    /// Another value was saved under its key.
    Changed,
    /// It is what was saved, and its part is in the sum.
    Saved,
}

/// A typed map, ordered unless its rows are of another kind.
#[derive(Clone, Debug)]
pub struct Table<K, V, R = BTreeMap<K, Kept<V>>> {
    number: u16,
    name: &'static str,
    rows: R,
    /// Whether there was a checkpoint; before the first one every row is new, and no list of them is kept.
    checkpointed: bool,
    /// Keys whose rows are not what the last checkpoint saved.
    changed: BTreeSet<K>,
    /// Keys that the last checkpoint saved and that are gone since.
    gone: BTreeSet<K>,
    /// Over the parts of the saved rows.
    sum: Sum,
    undo: Undo<K, V>,
}

/// A table whose rows are asked for one at a time: a look-up touches two or three lines of memory, where an ordered map
/// walks as many nodes as its depth.
pub type HashedTable<K, V> = Table<K, V, Hashed<K, Kept<V>>>;

/// What takes a table back to where it stood at [`Erased::begin`].
#[derive(Clone, Debug)]
struct Undo<K, V> {
    /// Between `begin` and `keep` or `take_back`.
    is_on: bool,
    /// What the rows touched since held before, in the order they were touched.
    before: Vec<(K, Option<Kept<V>>)>,
    sum: Sum,
}

impl<K: Ord + Clone, V: Clone, R: Rows<K, Kept<V>>> Table<K, V, R> {
    /// An empty table of that stable number.
    pub fn new(number: u16, name: &'static str) -> Table<K, V, R> {
        Table {
            number,
            name,
            rows: R::default(),
            checkpointed: false,
            changed: BTreeSet::new(),
            gone: BTreeSet::new(),
            sum: Sum::default(),
            undo: Undo { is_on: false, before: Vec::new(), sum: Sum::default() },
        }
    }

    /// The row at `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).map(|kept| &kept.value)
    }

    /// All rows: in key order if they are ordered, else in an order that follows from what was done to them.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().map(|(key, kept)| (key, &kept.value))
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    /// The rows within `range`, in key order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range).map(|(key, kept)| (key, &kept.value))
    }
}

impl<K: Hashable + Eq, V> HashedTable<K, V> {
    /// Where the row at `key` comes when all rows are gone through.
    pub(crate) fn place(&self, key: &K) -> Option<usize> {
        self.rows.place(key)
    }
}

impl<K: Ord + Clone + Serialize, V: Clone + Serialize, R: Rows<K, Kept<V>>> Table<K, V, R> {
    /// Puts `value` at `key`.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.put(key, |_| value);
    }

    /// Puts what `value` makes of the row at `key`, if there is one, there.
    fn put(&mut self, key: K, value: impl FnOnce(Option<&V>) -> V) -> &mut V {
        let Table { number, rows, checkpointed, changed, gone, sum, undo, .. } = self;
        let (of, mut value) = (key.clone(), Some(value));
        let mut make = |there: Option<&V>| value.take().expect("asked once")(there);
        let (kept, was_there) = rows.find_or_insert(key, || Kept { value: make(None), standing: Standing::New });
        match was_there {
            WasThere::Yes => {
                if undo.is_on {
                    undo.before.push((of.clone(), Some(kept.clone())));
                }
                changes(*number, sum, changed, &of, kept);
                kept.value = make(Some(&kept.value));
            }
            WasThere::No => {
                if gone.remove(&of) {
                    kept.standing = Standing::Changed;
                }
                if *checkpointed {
                    changed.insert(of.clone());
                }
                if undo.is_on {
                    undo.before.push((of, None));
                }
            }
        }
        &mut kept.value
    }

    /// The row at `key`, to be changed in place.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let kept = self.rows.get_mut(key)?;
        if self.undo.is_on {
            self.undo.before.push((key.clone(), Some(kept.clone())));
        }
        changes(self.number, &mut self.sum, &mut self.changed, key, kept);
        Some(&mut kept.value)
    }

    /// The row at `key`, to be changed in place; made from nothing if there is none.
    pub(crate) fn row(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        self.put(key.clone(), |row| row.cloned().unwrap_or_default())
    }

    /// Takes the row at `key` away.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let kept = self.rows.remove(key)?;
        match kept.standing {
            Standing::Saved => self.sum.subtract(&part(self.number, key, &kept.value, &mut Vec::new()).0),
            Standing::New | Standing::Changed => {
                self.changed.remove(key);
            }
        }
        if kept.standing != Standing::New {
            self.gone.insert(key.clone());
        }
        if self.undo.is_on {
            self.undo.before.push((key.clone(), Some(kept.clone())));
        }
        Some(kept.value)
    }
}

/// Takes a saved row that is about to change out of the sum, and lists it.
fn changes<K, V>(number: u16, sum: &mut Sum, changed: &mut BTreeSet<K>, key: &K, kept: &mut Kept<V>)
where
    K: Ord + Clone + Serialize,
    V: Serialize,
{
    if kept.standing == Standing::Saved {
        sum.subtract(&part(number, key, &kept.value, &mut Vec::new()).0);
        changed.insert(key.clone());
        kept.standing = Standing::Changed;
    }
}

/// A sum of hashes modulo 2^256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum([u64; 4]);

impl Sum {
    fn add(&mut self, part: &Hash) {
        let mut carry = false;
        for (word, bytes) in self.0.iter_mut().zip(part.as_chunks::<8>().0) {
            let (sum, over) = word.overflowing_add(u64::from_le_bytes(*bytes));
            let (sum, again) = sum.overflowing_add(u64::from(carry));
            (*word, carry) = (sum, over || again);
        }
    }

    fn subtract(&mut self, part: &Hash) {
        let mut borrow = false;
        for (word, bytes) in self.0.iter_mut().zip(part.as_chunks::<8>().0) {
            let (left, under) = word.overflowing_sub(u64::from_le_bytes(*bytes));
            let (left, again) = left.overflowing_sub(u64::from(borrow));
            (*word, borrow) = (left, under || again);
        }
    }

    /// The hash of a table with that many rows, whose parts these are.
    fn hash(&self, number: u16, rows: usize) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.to_le_bytes());
        hasher.update(&(rows as u64).to_le_bytes());
        for word in self.0 {
            hasher.update(&word.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

/// Bytes of a row in `scratch` before its key: the table's number and both lengths.
const ROW_HEAD_BYTES: usize = 2 + 4 + 4;

/// A row's part of its table's hash; leaves its encoding in `scratch`, the key at [`ROW_HEAD_BYTES`] and the value at the
/// place given back.
fn part<K: Serialize, V: Serialize>(number: u16, key: &K, value: &V, scratch: &mut Vec<u8>) -> (Hash, usize) {
    scratch.clear();
    scratch.resize(ROW_HEAD_BYTES, 0);
    record::encode_into(scratch, key);
    let value_at = scratch.len();
    record::encode_into(scratch, value);
    (seal(number, value_at, scratch), value_at)
}

/// Writes the head of the row in `row`, whose value begins at `value_at`, and hashes it.
fn seal(number: u16, value_at: usize, row: &mut [u8]) -> Hash {
    let length = |bytes: usize| u32::try_from(bytes).expect("a row is shorter than 4 GiB").to_le_bytes();
    let (key_len, value_len) = (length(value_at - ROW_HEAD_BYTES), length(row.len() - value_at));
    row[..2].copy_from_slice(&number.to_le_bytes());
    row[2..6].copy_from_slice(&key_len);
    row[6..ROW_HEAD_BYTES].copy_from_slice(&value_len);
    *blake3::hash(row).as_bytes()
}

/// What can be done to a table without knowing what is in it.
pub(crate) trait Erased {
    /// Its stable number.
    fn number(&self) -> u16;
    /// Its name, `room.table`.
    fn name(&self) -> &'static str;
    /// How many rows it has.
    fn rows(&self) -> usize;
    /// Its hash, reckoned from every row.
    fn hash(&self) -> Hash;
    /// Its hash by what was loaded alone, as the bytes were.
    fn hash_as_loaded(&self) -> Hash;
    /// Appends the rows changed since the last call, which from now on count as saved, and gives the hash. Touches no others.
    fn save(&mut self, changed: &mut Vec<Row>) -> Hash;
    /// Puts a saved row back.
    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), postcard::Error>;
    /// Remembers what the rows touched from now on hold.
    fn begin(&mut self);
    /// Lets what was touched since `begin` stand.
    fn keep(&mut self);
    /// Takes back what was touched since `begin`.
    fn take_back(&mut self);
}

impl<K, V, R> Erased for Table<K, V, R>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Clone + Serialize + DeserializeOwned,
    R: Rows<K, Kept<V>>,
{
    fn number(&self) -> u16 {
        self.number
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn hash(&self) -> Hash {
        let (mut sum, mut scratch) = (Sum::default(), Vec::new());
        for (key, kept) in self.rows.iter() {
            sum.add(&part(self.number, key, &kept.value, &mut scratch).0);
        }
        sum.hash(self.number, self.rows.len())
    }

    fn hash_as_loaded(&self) -> Hash {
        self.sum.hash(self.number, self.rows.len())
    }

    fn save(&mut self, changed: &mut Vec<Row>) -> Hash {
        assert!(!self.undo.is_on, "what may be taken back is not saved");
        for key in std::mem::take(&mut self.gone) {
            let mut bytes = Vec::new();
            record::encode_into(&mut bytes, &key);
            changed.push(Row { table: self.number, key: bytes, value: None });
        }
        let (number, sum, mut scratch) = (self.number, &mut self.sum, Vec::new());
        let mut save = |key: &K, kept: &mut Kept<V>| {
            let (part, value_at) = part(number, key, &kept.value, &mut scratch);
            sum.add(&part);
            kept.standing = Standing::Saved;
            let (key, value) = (scratch[ROW_HEAD_BYTES..value_at].to_vec(), scratch[value_at..].to_vec());
            changed.push(Row { table: number, key, value: Some(value) });
        };
        let keys = match std::mem::replace(&mut self.checkpointed, true) {
            true => std::mem::take(&mut self.changed),
            false => self.rows.iter().map(|(key, _)| key.clone()).collect(), // in key order, whatever the rows lie in
        };
        for key in keys {
            save(&key, self.rows.get_mut(&key).expect("a row that is gone is not listed as changed"));
        }
        self.sum.hash(self.number, self.rows.len())
    }

    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), postcard::Error> {
        let kept = Kept { value: postcard::from_bytes(value)?, standing: Standing::Saved };
        self.rows.insert(postcard::from_bytes(key)?, kept);
        let mut row = [&[0; ROW_HEAD_BYTES], key, value].concat();
        self.sum.add(&seal(self.number, ROW_HEAD_BYTES + key.len(), &mut row));
        self.checkpointed = true;
        Ok(())
    }

    fn begin(&mut self) {
        assert!(!self.undo.is_on, "one request at a time is decided");
        (self.undo.is_on, self.undo.sum) = (true, self.sum);
    }

    fn keep(&mut self) {
        self.undo.is_on = false;
        self.undo.before.clear();
    }

    fn take_back(&mut self) {
        if !std::mem::take(&mut self.undo.is_on) {
            return;
        }
        self.sum = self.undo.sum;
        for (key, before) in self.undo.before.drain(..).rev() {
            match before {
                Some(kept) => {
                    self.gone.remove(&key);
                    match kept.standing {
                        Standing::Saved => self.changed.remove(&key),
                        Standing::New | Standing::Changed => self.checkpointed && self.changed.insert(key.clone()),
                    };
                    self.rows.insert(key, kept);
                }
                None => {
                    self.changed.remove(&key);
                    if self.rows.remove(&key).is_some_and(|kept| kept.standing != Standing::New) {
                        self.gone.insert(key);
                    }
                }
            }
        }
    }
}

/// Every table of every room.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Of the room `admit`.
    pub admit: admit::Tables,
    /// Of the room `record`.
    pub record: record::Tables,
    /// Of the room `lease`.
    pub lease: lease::Tables,
    /// Of the room `effect`.
    pub effect: effect::Tables,
    /// Of the room `reserve`.
    pub reserve: reserve::Tables,
    /// Of the room `run`.
    pub run: run::Tables,
}

/// How many tables there are.
const TABLES: usize = 23;

macro_rules! each {
    ($tables:expr, $($by:tt)+) => {
        [
            $($by)+ $tables.record.head,
            $($by)+ $tables.record.lsns,
            $($by)+ $tables.lease.locks,
            $($by)+ $tables.lease.ends,
            $($by)+ $tables.effect.clients,
            $($by)+ $tables.effect.answers,
            $($by)+ $tables.reserve.caps,
            $($by)+ $tables.reserve.slots,
            $($by)+ $tables.reserve.prices,
            $($by)+ $tables.reserve.accounts,
            $($by)+ $tables.reserve.live,
            $($by)+ $tables.reserve.reservations,
            $($by)+ $tables.reserve.awaiting,
            $($by)+ $tables.run.runs,
            $($by)+ $tables.run.attempts,
            $($by)+ $tables.admit.halts,
            $($by)+ $tables.admit.quotas,
            $($by)+ $tables.admit.taken,
            $($by)+ $tables.effect.tools,
            $($by)+ $tables.effect.intents,
            $($by)+ $tables.effect.flights,
            $($by)+ $tables.effect.memo,
            $($by)+ $tables.run.suspended,
        ]
    };
}

/// One table's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableHash {
    /// The table's stable number.
    pub number: u16,
    /// Its name, `room.table`.
    pub name: &'static str,
    /// How many rows it has.
    pub rows: usize,
    /// Over its number, its number of rows and every row; see the module.
    pub hash: Hash,
}

impl Tables {
    /// Folds one record: the only thing that changes a table. Every room sees every record, and checks what must hold
    /// before it, at append and at replay alike.
    pub fn apply(&mut self, record: &Record, planted: &Planted) -> Result<(), Impossible> {
        record::apply(self, record, planted)?;
        admit::apply(self, record, planted)?;
        lease::apply(self, record, planted)?;
        effect::apply(self, record, planted)?;
        reserve::apply(self, record, planted)?;
        run::apply(self, record, planted)
    }

    /// Every table's hash, by number, each reckoned from every row.
    pub fn hashes(&self) -> Vec<TableHash> {
        let hash = |table: &dyn Erased| TableHash {
            number: table.number(),
            name: table.name(),
            rows: table.rows(),
            hash: table.hash(),
        };
        self.each().into_iter().map(hash).collect()
    }

    /// One hash over all tables' hashes, by number, as what was loaded gives them.
    pub(crate) fn digest_as_loaded(&self) -> Hash {
        digest(self.each().into_iter().map(|table| (table.number(), table.hash_as_loaded())))
    }

    /// The rows changed since the last call, which from now on count as saved, and one hash over all tables' hashes, by number.
    pub(crate) fn save(&mut self) -> (Vec<Row>, Hash) {
        let mut changed = Vec::new();
        let hashes = self.each_mut().map(|table| (table.number(), table.save(&mut changed)));
        (changed, digest(hashes))
    }

    /// Puts a saved row back; the error says what is wrong with it.
    pub(crate) fn load(&mut self, row: &Row) -> Result<(), String> {
        let Some(table) = self.each_mut().into_iter().find(|table| table.number() == row.table) else {
            return Err(format!("a row is of table {}, which this build does not know", row.table));
        };
        let Some(value) = &row.value else {
            return Err(format!("a row of {} was loaded without a value", table.name()));
        };
        table.load(&row.key, value).map_err(|why| format!("a row of {} cannot be decoded: {why}", table.name()))
    }

    /// From now until [`Tables::keep`] or [`Tables::take_back`] what is applied can be taken back.
    pub(crate) fn begin(&mut self) {
        self.each_mut().into_iter().for_each(|table| table.begin());
    }

    /// Lets what was applied since [`Tables::begin`] stand.
    pub(crate) fn keep(&mut self) {
        self.each_mut().into_iter().for_each(|table| table.keep());
    }

    /// Takes back what was applied since [`Tables::begin`].
    pub(crate) fn take_back(&mut self) {
        self.each_mut().into_iter().for_each(|table| table.take_back());
    }

    fn each(&self) -> [&dyn Erased; TABLES] {
        each!(self, &)
    }

    fn each_mut(&mut self) -> [&mut dyn Erased; TABLES] {
        each!(self, &mut)
    }
}

fn digest(hashes: impl IntoIterator<Item = (u16, Hash)>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for (number, hash) in hashes {
        hasher.update(&number.to_le_bytes());
        hasher.update(&hash);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u16),
        Add(u8, u16),
        Remove(u8),
        RemoveRange(u8, u8),
        Begin,
        Keep,
        TakeBack,
        Save,
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0..6u8;
        prop_oneof![
            4 => (key(), any::<u16>()).prop_map(|(key, value)| Step::Insert(key, value)),
            4 => (key(), 0..9u16).prop_map(|(key, value)| Step::Add(key, value)),
            4 => key().prop_map(Step::Remove),
            1 => (key(), key()).prop_map(|(from, to)| Step::RemoveRange(from, to.max(from))),
            2 => Just(Step::Begin),
            1 => Just(Step::Keep),
            1 => Just(Step::TakeBack),
            2 => Just(Step::Save),
        ]
    }

    proptest! {
        #[test]
        fn an_ordered_table_is_a_map_that_takes_back_and_saves(steps in prop::collection::vec(step(), 1..60)) {
            plays_like_a_map::<BTreeMap<u8, Kept<u16>>>(steps)?;
        }

        #[test]
        fn a_hashed_table_is_a_map_that_takes_back_and_saves(steps in prop::collection::vec(step(), 1..60)) {
            plays_like_a_map::<Hashed<u8, Kept<u16>>>(steps)?;
        }
    }

    /// Against a plain map: what a table holds, what it takes back, and what its saves add up to.
    fn plays_like_a_map<R: Rows<u8, Kept<u16>>>(steps: Vec<Step>) -> Result<(), TestCaseError> {
        let mut table: Table<u8, u16, R> = Table::new(9, "test.table");
        let (mut map, mut saved) = (BTreeMap::new(), BTreeMap::new());
        let mut before: Option<BTreeMap<u8, u16>> = None;
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    table.insert(key, value);
                    map.insert(key, value);
                }
                Step::Add(key, value) => {
                    for sum in [table.row(&key), map.entry(key).or_default()] {
                        *sum = sum.wrapping_add(value);
                    }
                }
                Step::Remove(key) => prop_assert_eq!(table.remove(&key), map.remove(&key)),
                Step::RemoveRange(from, to) => {
                    (from..=to).for_each(|key| _ = table.remove(&key));
                    map.retain(|key, _| !(from..=to).contains(key));
                }
                Step::Begin if before.is_none() => {
                    table.begin();
                    before = Some(map.clone());
                }
                Step::Keep => {
                    table.keep();
                    before = None;
                }
                Step::TakeBack => {
                    table.take_back();
                    map = before.take().unwrap_or(map);
                }
                Step::Save if before.is_none() => {
                    let mut changed = Vec::new();
                    let hash = table.save(&mut changed);
                    for row in changed {
                        match row.value {
                            Some(value) => saved.insert(row.key, value),
                            None => saved.remove(&row.key),
                        };
                    }
                    let mut loaded: Table<u8, u16, R> = Table::new(9, "test.table");
                    for (key, value) in &saved {
                        loaded.load(key, value).unwrap();
                    }
                    prop_assert_eq!((loaded.hash(), loaded.hash_as_loaded(), table.hash()), (hash, hash, hash));
                }
                Step::Begin | Step::Save => {}
            }
            let mut rows: Vec<(u8, u16)> = table.iter().map(|(key, value)| (*key, *value)).collect();
            rows.sort_unstable();
            prop_assert!(rows.into_iter().eq(map.iter().map(|(key, value)| (*key, *value))));
            for key in 0..6 {
                prop_assert_eq!(table.get(&key), map.get(&key));
            }
        }
        Ok(())
    }
}
