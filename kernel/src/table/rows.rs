//! What a table's rows are kept in.

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};
use std::{
    collections::{BTreeMap, btree_map},
    hash::{BuildHasher, Hash},
};

/// A map of rows. What it holds, and in which order it is gone through, follows from what was done to it and nothing else.
pub trait Rows<K, V>: Default {
    /// The row at `key`.
    fn get(&self, key: &K) -> Option<&V>;
    /// The row at `key`, to be changed.
    fn get_mut(&mut self, key: &K) -> Option<&mut V>;
    /// The row at `key` and whether it was there; `made` if it was not.
    fn find_or_insert(&mut self, key: K, made: impl FnOnce() -> V) -> (&mut V, WasThere);
    /// Puts `row` at `key`.
    fn insert(&mut self, key: K, row: V);
    /// Takes the row at `key` away.
    fn remove(&mut self, key: &K) -> Option<V>;
    /// All rows.
    fn iter<'a>(&'a self) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: 'a,
        V: 'a;
    /// How many rows there are.
    fn len(&self) -> usize;
}

/// Whether a row was there before it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasThere {
    /// It was.
    Yes,
    /// It was made.
    No,
}

impl<K: Ord + Clone, V> Rows<K, V> for BTreeMap<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.get(key)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.get_mut(key)
    }

    fn find_or_insert(&mut self, key: K, made: impl FnOnce() -> V) -> (&mut V, WasThere) {
        match self.entry(key) {
            btree_map::Entry::Occupied(row) => (row.into_mut(), WasThere::Yes),
            btree_map::Entry::Vacant(place) => (place.insert(made()), WasThere::No),
        }
    }

    fn insert(&mut self, key: K, row: V) {
        self.insert(key, row);
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        self.remove(key)
    }

    fn iter<'a>(&'a self) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: 'a,
        V: 'a,
    {
        self.iter()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// Rows that are asked for one key at a time. They lie in the order in which they were put there, so that those in use are
/// near each other, and a row that goes leaves its place to the last.
///
/// Clients pick parts of keys, so each table hashes by a seed of its own: nobody can pick keys that collide in all of them. The
/// seed decides where a place is kept, and nothing else: the table of places is never gone through.
#[derive(Clone, Debug)]
pub struct Hashed<K, V> {
    rows: Vec<(K, V)>,
    /// Where each key's row lies.
    places: HashTable<u32>,
    seed: RandomState,
}

impl<K, V> Default for Hashed<K, V> {
    fn default() -> Hashed<K, V> {
        Hashed { rows: Vec::new(), places: HashTable::new(), seed: RandomState::default() }
    }
}

impl<K: Hash + Eq, V> Hashed<K, V> {
    /// Every row, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.rows.iter_mut().map(|(_, row)| row)
    }

    /// Where the row at `key` lies among all.
    #[inline]
    pub(super) fn place(&self, key: &K) -> Option<usize> {
        let at = self.places.find(self.seed.hash_one(key), |&at| self.rows[at as usize].0 == *key)?;
        Some(*at as usize)
    }
}

impl<K: Hash + Eq + Clone, V> Rows<K, V> for Hashed<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        Some(&self.rows[self.place(key)?].1)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.place(key)?;
        Some(&mut self.rows[at].1)
    }

    fn find_or_insert(&mut self, key: K, made: impl FnOnce() -> V) -> (&mut V, WasThere) {
        let Hashed { rows, places, seed } = self;
        let is_at = |&at: &u32| rows[at as usize].0 == key;
        let (at, was_there) = match places.entry(seed.hash_one(&key), is_at, |&at| seed.hash_one(&rows[at as usize].0))
        {
            hash_table::Entry::Occupied(place) => (*place.get() as usize, WasThere::Yes),
            hash_table::Entry::Vacant(place) => {
                let at = rows.len();
                place.insert(u32::try_from(at).expect("a table has fewer than 2^32 rows"));
                rows.push((key, made()));
                (at, WasThere::No)
            }
        };
        (&mut rows[at].1, was_there)
    }

    fn insert(&mut self, key: K, row: V) {
        match self.place(&key) {
            Some(at) => self.rows[at].1 = row,
            None => _ = self.find_or_insert(key, || row),
        }
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let Hashed { rows, places, seed } = self;
        let place = places.find_entry(seed.hash_one(key), |&at| rows[at as usize].0 == *key).ok()?;
        let (at, _) = place.remove();
        let (_, row) = rows.swap_remove(at as usize);
        if let Some((moved, _)) = rows.get(at as usize) {
            let from = rows.len();
            let place = places.find_mut(seed.hash_one(moved), |&place| place as usize == from);
            *place.expect("each row has a place") = at;
        }
        Some(row)
    }

    fn iter<'a>(&'a self) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: 'a,
        V: 'a,
    {
        self.rows.iter().map(|(key, row)| (key, row))
    }

    fn len(&self) -> usize {
        self.rows.len()
    }
}
