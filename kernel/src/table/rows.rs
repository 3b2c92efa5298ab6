//! What a table's rows are kept in.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::{
    collections::{BTreeMap, btree_map},
    hash::Hash,
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
    rows: IndexMap<K, V, FxBuildHasher>,
}

impl<K, V> Default for Hashed<K, V> {
    fn default() -> Hashed<K, V> {
        Hashed { rows: IndexMap::default() }
    }
}

impl<K: Hash + Eq, V> Hashed<K, V> {
    /// Where the row at `key` lies among all.
    pub(super) fn place(&self, key: &K) -> Option<usize> {
        self.rows.get_index_of(key)
    }
}

impl<K: Hash + Eq + Clone, V> Rows<K, V> for Hashed<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key)
    }

    fn put(&mut self, key: K, with: impl FnOnce(&K, Option<&mut V>) -> Option<V>) -> &mut V {
        match self.rows.entry(key.clone()) {
            indexmap::map::Entry::Occupied(row) => {
                let row = row.into_mut();
                with(&key, Some(row));
                row
            }
            indexmap::map::Entry::Vacant(place) => place.insert(with(&key, None).expect(MADE)),
        }
    }

    fn insert(&mut self, key: K, row: V) {
        self.rows.insert(key, row);
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        self.rows.swap_remove(key)
    }

    fn iter<'a>(&'a self) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: 'a,
        V: 'a,
    {
        self.rows.iter()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }
}
