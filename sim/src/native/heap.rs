//! The event queue: a 4-ary heap of 32-byte events.
//!
//! Four children stand side by side in two cache lines, so that a pop touches half the levels of a binary heap and
//! waits for memory once a level. Payloads stay in slabs; an event only names them.

/// Something that will happen, unless what it names is gone by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// `time_ns << 64 | sequence`: unique, so that the order of events is total.
    key: u128,
    pub(super) what: What,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The timer with this word may be due.
    Timer(u64),
    /// The frame with this word arrives.
    Frame(u64),
    /// This incarnation of a node dies of a disk operation.
    Fell { node: u32, incarnation: u32, power_cut: bool },
}

const _: () = assert!(size_of::<Event>() == 32);

impl Event {
    pub(super) fn time_ns(&self) -> u64 {
        (self.key >> 64) as u64
    }

    pub(super) fn sequence(&self) -> u64 {
        self.key as u64
    }
}

/// Events, earliest first; those of one instant in the order they were pushed.
#[derive(Default)]
pub(super) struct EventHeap {
    events: Vec<Event>,
    pushed: u64,
}

const ARITY: usize = 4;

impl EventHeap {
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    #[inline]
    pub(super) fn push(&mut self, time_ns: u64, what: What) {
        let key = u128::from(time_ns) << 64 | u128::from(self.pushed);
        self.pushed += 1;
        self.events.push(Event { key, what });
        self.sift_up(0, self.events.len() - 1);
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<&Event> {
        self.events.first()
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Event> {
        let last = self.events.pop()?;
        let Some(first) = self.events.first_mut() else { return Some(last) };
        let earliest = std::mem::replace(first, last);
        self.sift_down(0);
        Some(earliest)
    }

    /// Drops the events that `keep` refuses. The order of the others is untouched.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Event) -> bool) {
        self.events.retain(keep);
        for at in (0..self.events.len().div_ceil(ARITY)).rev() {
            self.sift_down(at);
        }
    }

    pub(super) fn clear(&mut self) {
        self.events.clear();
    }

    /// Lets the event at `at` rise to its place, at most to `top`, which is above it.
    #[inline]
    fn sift_up(&mut self, top: usize, mut at: usize) {
        let event = self.events[at];
        while at > top {
            let parent = (at - 1) / ARITY;
            if self.events[parent].key <= event.key {
                break;
            }
            self.events[at] = self.events[parent];
            at = parent;
        }
        self.events[at] = event;
    }

    /// Lets the event at `at` sink to its place. It mostly came from the bottom, so it goes all the way down along the
    /// earliest children, and back up the little it must.
    #[inline]
    fn sift_down(&mut self, mut at: usize) {
        let top = at;
        let event = self.events[at];
        while let Some(earliest) = earliest_child(&self.events, at) {
            self.events[at] = self.events[earliest];
            at = earliest;
        }
        self.events[at] = event;
        self.sift_up(top, at);
    }
}

/// Where the earliest child of the event at `at` is, if it has any.
#[inline]
fn earliest_child(events: &[Event], at: usize) -> Option<usize> {
    let first = at * ARITY + 1;
    let children = events.get(first..)?;
    let Some(four) = children.first_chunk::<ARITY>() else {
        return (0..children.len()).min_by_key(|&child| children[child].key).map(|child| first + child);
    };
    let of_two = |one: usize, other: usize| if four[other].key < four[one].key { other } else { one };
    Some(first + of_two(of_two(0, 1), of_two(2, 3)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Pop,
        RetainEven,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![6 => (0u64..20).prop_map(Step::Push), 3 => Just(Step::Pop), 1 => Just(Step::RetainEven)]
    }

    proptest! {
        #[test]
        fn it_pops_what_a_sorted_list_would(steps in prop::collection::vec(step(), 0..300)) {
            let mut heap = EventHeap::default();
            let mut model: Vec<(u64, u64)> = Vec::new();
            let mut pushed = 0;
            for step in steps {
                match step {
                    Step::Push(time_ns) => {
                        heap.push(time_ns, What::Timer(pushed));
                        model.push((time_ns, pushed));
                        model.sort_unstable();
                        pushed += 1;
                    }
                    Step::Pop => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(heap.pop().map(|event| (event.time_ns(), event.sequence())), expected);
                    }
                    Step::RetainEven => {
                        heap.retain(|event| event.sequence() % 2 == 0);
                        model.retain(|(_, sequence)| sequence % 2 == 0);
                    }
                }
                prop_assert_eq!(heap.len(), model.len());
            }
            let rest: Vec<_> = std::iter::from_fn(|| heap.pop()).map(|event| (event.time_ns(), event.sequence())).collect();
            prop_assert_eq!(rest, model);
        }
    }
}
