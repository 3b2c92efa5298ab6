//! What a table's rows are kept in.

use hashbrown::{HashTable, hash_table};
use rustc_hash::FxBuildHasher;
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
    /// Shows the row at `key` to `with`, which changes it, or makes it if there is none.
    fn put(&mut self, key: K, with: impl FnOnce(&K, Option<&mut V>) -> Option<V>) -> &mut V;
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

const MADE: &str = "what is not there is made";

impl<K: Ord + Clone, V> Rows<K, V> for BTreeMap<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.get(key)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.get_mut(key)
    }

    fn put(&mut self, key: K, with: impl FnOnce(&K, Option<&mut V>) -> Option<V>) -> &mut V {
        match self.entry(key.clone()) {
            btree_map::Entry::Occupied(row) => {
                let row = row.into_mut();
                with(&key, Some(row));
                row
            }
            btree_map::Entry::Vacant(place) => place.insert(with(&key, None).expect(MADE)),
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
#[derive(Clone, Debug)]
pub struct Hashed<K, V> {
    rows: Vec<(K, V)>,
    /// Where each key's row lies.
    places: HashTable<u32>,
}

impl<K, V> Default for Hashed<K, V> {
    fn default() -> Hashed<K, V> {
        Hashed { rows: Vec::new(), places: HashTable::new() }
    }
}

fn hash<K: Hash>(key: &K) -> u64 {
    FxBuildHasher.hash_one(key)
}

impl<K: Hash + Eq, V> Hashed<K, V> {
    /// Where the row at `key` lies among all.
    #[inline]
    pub(super) fn place(&self, key: &K) -> Option<usize> {
        let at = self.places.find(hash(key), |&at| self.rows[at as usize].0 == *key)?;
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

    fn put(&mut self, key: K, with: impl FnOnce(&K, Option<&mut V>) -> Option<V>) -> &mut V {
        let Hashed { rows, places } = self;
        let entry = places.entry(hash(&key), |&at| rows[at as usize].0 == key, |&at| hash(&rows[at as usize].0));
        let at = match entry {
            hash_table::Entry::Occupied(place) => {
                let at = *place.get() as usize;
                with(&key, Some(&mut rows[at].1));
                at
            }
            hash_table::Entry::Vacant(place) => {
                let made = with(&key, None).expect(MADE);
                let at = rows.len();
                place.insert(u32::try_from(at).expect("a table has fewer than 2^32 rows"));
                rows.push((key, made));
                at
            }
        };
        &mut rows[at].1
    }

    fn insert(&mut self, key: K, row: V) {
        let mut row = Some(row);
        self.put(key, |_, there| match there {
            Some(there) => {
                *there = row.take()?;
                None
            }
            None => row.take(),
        });
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let rows = &mut self.rows;
        let place = self.places.find_entry(hash(key), |&at| rows[at as usize].0 == *key).ok()?;
        let (at, _) = place.remove();
        let (_, row) = rows.swap_remove(at as usize);
        if let Some((moved, _)) = rows.get(at as usize) {
            let from = rows.len();
            let place = self.places.find_mut(hash(moved), |&place| place as usize == from);
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
