//! A free-list slab whose keys die with what they named.

/// Values at dense indices. A key is a word, `generation << 32 | index`: once its value is removed it matches nothing,
/// even when the index is used again.
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    first_generation: u32,
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(super) fn new(first_generation: u32) -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new(), first_generation }
    }

    /// Stores `value` and gives its word.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u64 {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return word(entry.generation, index);
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries live at once");
        self.entries.push(Entry { generation: self.first_generation, value: Some(value) });
        word(self.first_generation, index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, word: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(index(word))?;
        if entry.generation == generation(word) { entry.value.as_mut() } else { None }
    }

    #[inline]
    pub(super) fn get(&self, word: u64) -> Option<&T> {
        let entry = self.entries.get(index(word))?;
        if entry.generation == generation(word) { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub(super) fn remove(&mut self, word: u64) -> Option<T> {
        let entry = self.entries.get_mut(index(word))?;
        if entry.generation != generation(word) {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(word as u32);
        Some(value)
    }

    /// Gives a value another word; the one it had matches nothing from here on.
    pub(super) fn renew(&mut self, word: u64) -> Option<u64> {
        self.get(word)?;
        let entry = &mut self.entries[index(word)];
        entry.generation = entry.generation.wrapping_add(1);
        Some(self::word(entry.generation, word as u32))
    }

    /// The word of the value at `index`, where there is one.
    pub(super) fn word_at(&self, index: u32) -> u64 {
        word(self.entries[index as usize].generation, index)
    }

    /// The words of all values, by index.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        (0u32..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.value.is_some())
            .map(|(at, entry)| word(entry.generation, at))
    }
}

const fn word(generation: u32, index: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

const fn generation(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn index(word: u64) -> usize {
    word as u32 as usize
}
