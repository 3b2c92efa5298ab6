//! A map that is only ever asked for one key at a time: hashed, so that a look-up touches a line or two of memory where an
//! ordered map walks its nodes. It cannot be gone through, and so its order can decide nothing.

use std::{
    collections::hash_map::Entry,
    hash::{BuildHasherDefault, Hash, Hasher},
};

#[expect(clippy::disallowed_types, reason = "the hasher has no seed, and nothing here goes through the map")]
type Rows<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Mixer>>;

#[derive(Clone, Debug)]
pub(crate) struct Lookup<K, V> {
    rows: Rows<K, V>,
}

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Lookup<K, V> {
        Lookup { rows: Rows::default() }
    }
}

impl<K: Hash + Eq, V> Lookup<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// Puts `value` at `key`; what was there before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.rows.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.rows.remove(key)
    }

    /// The value at `key`, made from nothing if there is none.
    pub(crate) fn row(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.rows.entry(key).or_default()
    }

    /// The value at `key`, put there if there is none.
    pub(crate) fn row_or(&mut self, key: K, value: V) -> &mut V {
        match self.rows.entry(key) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(row) => row.insert(value),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Folds words by multiplying: quick over the small keys of this crate, which nobody picks to collide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

/// The fractional part of the golden ratio, as an odd number.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    #[inline]
    fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ GOLDEN) * u128::from(GOLDEN);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.word(u64::from(word));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    #[inline]
    fn write_isize(&mut self, word: isize) {
        self.word(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::id::{RunId, TenantId, UnitId};

    #[test]
    fn holds_what_was_put_there() {
        let mut map = Lookup::default();
        assert_eq!((map.insert(1, 'a'), map.insert(1, 'b'), map.remove(&2)), (None, Some('a'), None));
        let (found, made) = (*map.row_or(1, 'c'), *map.row_or(2, 'c'));
        assert_eq!((found, made, *map.row(3)), ('b', 'c', '\0'));
        *map.get_mut(&3).unwrap() = 'd';
        assert_eq!((map.get(&3), map.contains_key(&4)), (Some(&'d'), false));
        assert_eq!((map.remove(&3), map.get(&3)), (Some('d'), None));
        assert!(!map.is_empty() && Lookup::<u8, u8>::default().is_empty());
    }

    /// The keys that runs are made of: no two of them share the bits that pick a place in a table of their size.
    #[test]
    fn the_keys_of_runs_are_spread() {
        let mut places = vec![0u32; 1 << 16];
        for run in 0..4_096 {
            for unit in 0..16 {
                let mut mixer = Mixer::default();
                (TenantId(1), RunId(run << 20), UnitId(unit)).hash(&mut mixer);
                places[(mixer.finish() & 0xffff) as usize] += 1;
            }
        }
        let fullest = places.iter().max().unwrap();
        assert!(*fullest <= 10, "{fullest} of 65,536 keys fall on one of as many places");
    }
}
