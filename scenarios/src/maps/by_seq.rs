//! A map from sequences to values that are mostly added in rising order: a sorted vector, so that a look-up is a
//! guess and a short search, and an addition is a push.

use kernel::id::ReservationId;

#[derive(Clone, Debug)]
pub(crate) struct BySeq<T> {
    rows: Vec<(u64, T)>,
}

impl<T> Default for BySeq<T> {
    fn default() -> BySeq<T> {
        BySeq { rows: Vec::new() }
    }
}

impl<T> BySeq<T> {
    /// Adds or replaces; what was there before.
    pub(crate) fn insert(&mut self, key: ReservationId, value: T) -> Option<T> {
        if self.rows.last().is_none_or(|(last, _)| *last < key.0) {
            self.rows.push((key.0, value));
            return None;
        }
        match self.place(key.0) {
            Ok(at) => Some(std::mem::replace(&mut self.rows[at].1, value)),
            Err(at) => {
                self.rows.insert(at, (key.0, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: ReservationId) -> Option<T> {
        let at = self.place(key.0).ok()?;
        Some(self.rows.remove(at).1)
    }

    pub(crate) fn find(&self, key: ReservationId) -> Option<&T> {
        let at = self.place(key.0).ok()?;
        Some(&self.rows[at].1)
    }

    pub(crate) fn find_mut(&mut self, key: ReservationId) -> Option<&mut T> {
        let at = self.place(key.0).ok()?;
        Some(&mut self.rows[at].1)
    }

    /// Every value.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().map(|(_, value)| value)
    }

    /// Where `seq` stands, or would. Keys are spread evenly enough that a straight line through the last of them comes near;
    /// from there the search gallops to either side of `seq`, so that it touches few rows, and those near each other.
    fn place(&self, seq: u64) -> Result<usize, usize> {
        let (Some((last, _)), known) = (self.rows.last(), self.rows.len()) else { return Err(0) };
        let Some(back) = last.checked_sub(seq) else { return Err(known) };
        let span = known.min(SPAN);
        let per = (last - self.rows[known - span].0).max(1);
        let guess = (known - 1)
            .saturating_sub(usize::try_from(u128::from(back) * span as u128 / u128::from(per)).unwrap_or(usize::MAX));
        let (mut from, mut to, mut step) = (guess, guess + 1, 1);
        while from > 0 && self.rows[from].0 > seq {
            (from, to) = (from.saturating_sub(step), from + 1);
            step *= 2;
        }
        while to < known && self.rows[to - 1].0 < seq {
            (from, to) = (to - 1, known.min(to + step));
            step *= 2;
        }
        let found = self.rows[from..to].binary_search_by_key(&seq, |(seq, _)| *seq);
        found.map(|at| from + at).map_err(|at| from + at)
    }
}

/// How many of the last rows the line is drawn through.
const SPAN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against an ordered map: keys that rise by even and by wild steps, with others among them, more than the line is drawn through.
        #[test]
        fn is_an_ordered_map(
            keys in prop::collection::vec(prop_oneof![
                8 => (1..40u64).prop_map(|step| (true, step)),
                1 => (1..u64::MAX / 4096).prop_map(|step| (true, step)),
                1 => any::<u64>().prop_map(|key| (false, key)),
            ], 1..2500),
            asked in prop::collection::vec(any::<prop::sample::Index>(), 50),
        ) {
            let (mut map, mut ordered, mut last) = (BySeq::default(), BTreeMap::new(), 0u64);
            for (value, (rises, step)) in keys.iter().enumerate() {
                let key = if *rises { last.saturating_add(*step) } else { *step };
                last = if *rises { key } else { last };
                prop_assert_eq!(map.insert(ReservationId(key), value), ordered.insert(key, value));
            }
            let known: Vec<u64> = ordered.keys().copied().collect();
            for index in asked {
                let key = *index.get(&known);
                for key in [key.saturating_sub(1), key, key.saturating_add(1)] {
                    prop_assert_eq!(map.find(ReservationId(key)), ordered.get(&key));
                }
                prop_assert_eq!(map.remove(ReservationId(key)), ordered.remove(&key));
            }
        }
    }

    #[test]
    fn finds_what_was_added_in_any_order() {
        let mut map = BySeq::default();
        for (key, before) in [(5, None), (9, None), (7, None), (9, Some(90)), (1, None), (8, None)] {
            assert_eq!(map.insert(ReservationId(key), key * 10), before, "adding {key}");
        }
        assert_eq!((map.remove(ReservationId(8)), map.remove(ReservationId(8))), (Some(80), None));
        for key in 0..12 {
            let found = map.find(ReservationId(key)).copied();
            assert_eq!(found, [1, 5, 7, 9].contains(&key).then_some(key * 10), "finding {key}");
            assert_eq!(map.find_mut(ReservationId(key)).copied(), found);
        }
    }
}
