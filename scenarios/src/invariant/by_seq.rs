//! A map from sequences to values that are mostly added in rising order: a sorted vector, so that a look-up is a binary
//! search over neighbours and an addition is a push.

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

    /// Where `seq` stands, or would. What is asked for was mostly added of late, so the search gallops back from the end:
    /// halving from the middle would touch rows that nobody else has touched for long.
    fn place(&self, seq: u64) -> Result<usize, usize> {
        let mut step = 1;
        let mut from = self.rows.len();
        while from > 0 && self.rows[from - 1].0 >= seq {
            from = from.saturating_sub(step);
            step *= 2;
        }
        let to = self.rows.len().min(from + step);
        let found = self.rows[from..to].binary_search_by_key(&seq, |(seq, _)| *seq);
        found.map(|at| from + at).map_err(|at| from + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
