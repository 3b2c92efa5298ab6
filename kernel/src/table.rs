//! Typed ordered maps, and all the ledger's tables together.
//!
//! A [`Table`] is a `BTreeMap` that knows three things more: which rows changed since the last checkpoint, how to take back
//! what one request wrote, and a hash over its rows in key order. Its number is stable: it names the table in a store.
//! Every table is derived: [`Tables::apply`] over the log's records from the first gives each of them hash-equal.

use crate::{
    admit, effect, lease,
    planted::Planted,
    record::{self, Hash, Record},
    reserve,
    room::Impossible,
    run,
    store::Row,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeBounds,
};

/// One row in memory.
#[derive(Clone, Debug)]
struct Kept<V> {
    value: V,
    /// It differs from what the last checkpoint saved.
    changed: bool,
    /// The last checkpoint saved some value under this key.
    saved: bool,
}

/// A typed ordered map.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    number: u16,
    name: &'static str,
    rows: BTreeMap<K, Kept<V>>,
    /// Keys that the last checkpoint saved and that are gone since.
    gone: BTreeSet<K>,
    /// What the rows touched since [`Erased::begin`] held before; `None` outside.
    undo: Option<Vec<(K, Option<Kept<V>>)>>,
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    /// An empty table of that stable number.
    pub fn new(number: u16, name: &'static str) -> Table<K, V> {
        Table { number, name, rows: BTreeMap::new(), gone: BTreeSet::new(), undo: None }
    }

    /// The row at `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).map(|kept| &kept.value)
    }

    /// The rows within `range`, in key order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range).map(|(key, kept)| (key, &kept.value))
    }

    /// All rows, in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter().map(|(key, kept)| (key, &kept.value))
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts `value` at `key`.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let saved = self.rows.get(&key).is_some_and(|kept| kept.saved) || self.gone.remove(&key);
        let key_to_undo = self.undo.is_some().then(|| key.clone());
        let old = self.rows.insert(key, Kept { value, changed: true, saved });
        if let (Some(undo), Some(key)) = (&mut self.undo, key_to_undo) {
            undo.push((key, old));
        }
    }

    /// The row at `key`, to be changed in place.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let kept = self.rows.get_mut(key)?;
        if let Some(undo) = &mut self.undo {
            undo.push((key.clone(), Some(kept.clone())));
        }
        kept.changed = true;
        Some(&mut kept.value)
    }

    /// The row at `key`, to be changed in place; made from nothing if there is none.
    pub(crate) fn row(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        if !self.rows.contains_key(key) {
            self.insert(key.clone(), V::default());
        }
        self.get_mut(key).expect("the row was there or was put there above")
    }

    /// Takes the row at `key` away.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let kept = self.rows.remove(key)?;
        if kept.saved {
            self.gone.insert(key.clone());
        }
        if let Some(undo) = &mut self.undo {
            undo.push((key.clone(), Some(kept.clone())));
        }
        Some(kept.value)
    }

    /// Takes every row within `range` away.
    pub(crate) fn remove_range(&mut self, range: impl RangeBounds<K> + Clone) {
        while let Some(key) = self.rows.range(range.clone()).next().map(|(key, _)| key.clone()) {
            self.remove(&key);
        }
    }
}

/// What can be done to a table without knowing what is in it.
pub(crate) trait Erased {
    /// Its stable number.
    fn number(&self) -> u16;
    /// Its name, `room.table`.
    fn name(&self) -> &'static str;
    /// How many rows it has.
    fn rows(&self) -> usize;
    /// blake3 over its number and its rows in key order.
    fn hash(&self) -> Hash;
    /// Appends the rows changed since the last call, which from now on count as saved, and gives the hash.
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

/// Hashes rows one after another through one buffer.
struct RowHasher {
    hasher: blake3::Hasher,
    row: Vec<u8>,
}

impl RowHasher {
    fn new(number: u16) -> RowHasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.to_le_bytes());
        RowHasher { hasher, row: Vec::new() }
    }

    /// Hashes one row, and gives back its encoding and the length of its key's.
    fn row<K: Serialize, V: Serialize>(&mut self, key: &K, value: &V) -> (&[u8], usize) {
        self.row.clear();
        record::encode_into(&mut self.row, key);
        let key_len = self.row.len();
        record::encode_into(&mut self.row, value);
        self.hasher.update(&(key_len as u32).to_le_bytes());
        self.hasher.update(&((self.row.len() - key_len) as u32).to_le_bytes());
        self.hasher.update(&self.row);
        (&self.row, key_len)
    }
}

impl<K, V> Erased for Table<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Clone + Serialize + DeserializeOwned,
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
        let mut rows = RowHasher::new(self.number);
        for (key, kept) in &self.rows {
            rows.row(key, &kept.value);
        }
        *rows.hasher.finalize().as_bytes()
    }

    fn save(&mut self, changed: &mut Vec<Row>) -> Hash {
        for key in std::mem::take(&mut self.gone) {
            let mut bytes = Vec::new();
            record::encode_into(&mut bytes, &key);
            changed.push(Row { table: self.number, key: bytes, value: None });
        }
        let mut rows = RowHasher::new(self.number);
        for (key, kept) in &mut self.rows {
            let (row, key_len) = rows.row(key, &kept.value);
            if kept.changed {
                let (key, value) = row.split_at(key_len);
                changed.push(Row { table: self.number, key: key.to_vec(), value: Some(value.to_vec()) });
                (kept.changed, kept.saved) = (false, true);
            }
        }
        *rows.hasher.finalize().as_bytes()
    }

    fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), postcard::Error> {
        let kept = Kept { value: postcard::from_bytes(value)?, changed: false, saved: true };
        self.rows.insert(postcard::from_bytes(key)?, kept);
        Ok(())
    }

    fn begin(&mut self) {
        assert!(self.undo.is_none(), "one request at a time is decided");
        self.undo = Some(Vec::new());
    }

    fn keep(&mut self) {
        self.undo = None;
    }

    fn take_back(&mut self) {
        for (key, old) in self.undo.take().into_iter().flatten().rev() {
            match old {
                Some(kept) => {
                    self.gone.remove(&key);
                    self.rows.insert(key, kept);
                }
                None => {
                    if self.rows.remove(&key).is_some_and(|kept| kept.saved) {
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
const TABLES: usize = 18;

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
    /// blake3 over its number and its rows in key order.
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
        run::apply(self, record)
    }

    /// Every table's hash, by number.
    pub fn hashes(&self) -> Vec<TableHash> {
        let hash = |table: &dyn Erased| TableHash {
            number: table.number(),
            name: table.name(),
            rows: table.rows(),
            hash: table.hash(),
        };
        self.each().into_iter().map(hash).collect()
    }

    /// One hash over all tables' hashes, by number.
    pub fn digest(&self) -> Hash {
        digest(self.each().into_iter().map(|table| (table.number(), table.hash())))
    }

    /// The rows changed since the last call, which from now on count as saved, and the digest of all rows.
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
        /// Against a plain map: what a table holds, what it takes back, and what its saves add up to.
        #[test]
        fn a_table_is_a_map_that_takes_back_and_saves(steps in prop::collection::vec(step(), 1..60)) {
            let mut table: Table<u8, u16> = Table::new(9, "test.table");
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
                        table.remove_range(from..=to);
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
                        let mut loaded: Table<u8, u16> = Table::new(9, "test.table");
                        for (key, value) in &saved {
                            loaded.load(key, value).unwrap();
                        }
                        prop_assert_eq!((loaded.hash(), table.hash()), (hash, hash));
                    }
                    Step::Begin | Step::Save => {}
                }
                prop_assert!(table.iter().eq(map.iter()));
            }
        }
    }
}
