//! Calls: what left agents and what the provider put on its invoice, against what the log says of them.

use super::{
    budget::cost,
    findings::{Findings, Place, Rule},
    told::{Answered, Fact},
    wire::{Admitted, Budgeted, EffectClass, Effected, Event, Price, Ran, Record, State, Switch, Usage},
};
use std::collections::{BTreeMap, BTreeSet};

/// Who noted something: node and incarnation.
type Sender = (u32, u32);

/// The last call of a sender under a key.
#[derive(Clone, Copy, Debug)]
struct Call {
    sender: Sender,
    fence: u64,
    answered: Option<Answered>,
}

/// What is known of a key.
#[derive(Debug, Default)]
struct Key {
    /// The tenant, run, unit and attempt it was reserved for, and whose it is.
    made_for: Option<((u32, u64, u32, u32), u32)>,
    worst: u64,
    open: bool,
    sent: bool,
    charged: Option<Usage>,
    released_by: Option<u64>,
    /// Whether its call can be made but once, and may have left.
    once: bool,
    dispatched: bool,
    /// The halt that was on when it was dispatched.
    halted_by: Option<u64>,
    /// The key that it shares with whoever asks the same.
    shared: Option<(u32, super::wire::Key)>,
    /// The last call of each sender, while the key is open.
    calls: Vec<Call>,
    /// Who waits for an answer, while the key is open.
    waiting: BTreeSet<Sender>,
}

/// The reckoning so far.
#[derive(Debug)]
pub(super) struct Calls {
    /// The provider's own.
    price: Price,
    keys: BTreeMap<u64, Key>,
    running: BTreeMap<(u32, u64, u32, u32), u64>,
    /// The request that was charged for each question.
    asked: BTreeMap<(u32, super::wire::Key), u64>,
    most_slots: BTreeMap<u32, u32>,
    on_the_wire: BTreeMap<(u32, u32), u32>,
    /// Keys that a sender waits for, so that they are found when it goes down.
    waits: BTreeMap<Sender, BTreeSet<u64>>,
    settled: u128,
    invoice: u128,
    open: u128,
    /// The switches that are on, each with the record that set it, and whether any ever was.
    halts: BTreeMap<u32, u64>,
    ever_halted: bool,
}

impl Calls {
    /// Before any call, of a provider of this price.
    pub(super) fn of(price: Price) -> Calls {
        Calls {
            price,
            keys: BTreeMap::new(),
            running: BTreeMap::new(),
            asked: BTreeMap::new(),
            most_slots: BTreeMap::new(),
            on_the_wire: BTreeMap::new(),
            waits: BTreeMap::new(),
            settled: 0,
            invoice: 0,
            open: 0,
            halts: BTreeMap::new(),
            ever_halted: false,
        }
    }

    /// Folds a record.
    pub(super) fn record(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let (seq, tenant) = (record.seq, record.tenant);
        match record.event {
            Event::Reserve(Budgeted::SlotsSet { tenant, slots }) => {
                let most = self.most_slots.entry(tenant).or_default();
                *most = slots.max(*most);
            }
            Event::Reserve(Budgeted::Reserved { reservation, run, unit, attempt, user, worst, .. }) => {
                let key = self.keys.entry(reservation).or_default();
                (key.made_for, key.worst, key.open) = (Some(((tenant, run, unit, attempt), user)), worst, true);
                self.open += u128::from(worst);
            }
            Event::Reserve(Budgeted::Settled { reservation, usage, cost, .. }) => {
                self.end(reservation);
                self.settled += u128::from(cost);
                let charged = self.keys.get(&reservation).and_then(|key| key.charged);
                found.must(Rule::Invoice, place, charged == Some(usage), || {
                    format!("record {seq} settles {reservation} for {usage:?}; charged is {charged:?}")
                });
            }
            Event::Reserve(Budgeted::Released { reservation, .. }) => {
                self.end(reservation);
                let key = self.keys.entry(reservation).or_default();
                key.released_by = Some(seq);
                found.must(Rule::Released, place, key.charged.is_none(), || {
                    format!("record {seq} releases {reservation}, which was charged")
                });
            }
            Event::Effect(Effected::Intended { intent, class, key, .. }) => {
                let row = self.keys.entry(intent).or_default();
                (row.once, row.shared) = (class != EffectClass::Idempotent, key.map(|key| (tenant, key)));
            }
            Event::Admit(Admitted::HaltSet { tenant, switch: Switch::Halted }) => {
                self.halts.entry(tenant).or_insert(seq);
                self.ever_halted = true;
            }
            Event::Admit(Admitted::HaltSet { tenant, switch: Switch::Open }) => drop(self.halts.remove(&tenant)),
            Event::Effect(Effected::Dispatched { intent }) => {
                let halted = [0, tenant].iter().find_map(|switch| self.halts.get(switch).copied());
                let row = self.keys.entry(intent).or_default();
                (row.dispatched, row.halted_by) = (true, halted);
            }
            Event::Run(Ran::AttemptStarted { run, unit, attempt, reservation }) => {
                self.running.insert((tenant, run, unit, attempt), reservation);
            }
            Event::Run(Ran::AttemptEnded { run, unit, attempt, state }) => {
                let key = self.running.remove(&(tenant, run, unit, attempt));
                if let (State::Indeterminate, Some(key)) = (state, key) {
                    let fence = record.origin.map_or(0, |origin| origin.fence);
                    self.unknown(seq, key, fence, place, found);
                }
            }
            _ => {}
        }
    }

    /// An outcome is said to be unknown.
    fn unknown(&mut self, seq: u64, key: u64, fence: u64, place: Place, found: &mut Findings) {
        let once = self.keys.get(&key).is_some_and(|key| key.once && key.dispatched);
        let calls = self.keys.get(&key).map_or(&[][..], |key| &key.calls);
        let own = calls.iter().rev().find(|call| call.fence == fence);
        let answered = own.and_then(|call| call.answered);
        let may_have_left = once || !calls.is_empty();
        found.must(Rule::Unknown, place, may_have_left && answered.is_none(), || match answered {
            Some(answered) => {
                format!("record {seq}: the outcome of call {key} is unknown, and it was answered {answered:?}")
            }
            None => format!("record {seq}: the outcome of call {key} is unknown, and it never left"),
        });
    }

    fn end(&mut self, id: u64) {
        let Some(key) = self.keys.get_mut(&id).filter(|key| key.open) else { return };
        key.open = false;
        self.open = self.open.saturating_sub(u128::from(key.worst));
        let (waiting, made_for) = (std::mem::take(&mut key.waiting), key.made_for);
        key.calls = Vec::new();
        for sender in &waiting {
            if let Some(keys) = self.waits.get_mut(sender) {
                keys.remove(&id);
            }
        }
        if let (false, Some(((tenant, ..), user))) = (waiting.is_empty(), made_for) {
            self.off_the_wire((tenant, user));
        }
    }

    fn off_the_wire(&mut self, user: (u32, u32)) {
        if let Some(count) = self.on_the_wire.get_mut(&user) {
            *count = count.saturating_sub(1);
        }
    }

    /// Folds a fact.
    pub(super) fn fact(&mut self, sender: Sender, fact: &Fact, place: Place, found: &mut Findings) {
        match *fact {
            Fact::CallSent { tenant, run, unit, attempt, user, key, fence } => {
                let leaves_for = ((tenant, run, unit, attempt), user);
                let row = self.keys.entry(key).or_default();
                let made_for = row.made_for;
                found.must(Rule::Calls, place, made_for == Some(leaves_for), || {
                    format!("a call leaves for (tenant, run, unit, attempt), user {leaves_for:?} under {key}, reserved for {made_for:?}")
                });
                let (dispatched, again) = (row.dispatched, row.once && row.sent);
                found.must(Rule::Calls, place, dispatched && !again, || match again {
                    true => format!("call {key}, which can be made but once, leaves again"),
                    false => format!("call {key} leaves before its dispatch is durable"),
                });
                if self.ever_halted {
                    let halted = row.halted_by;
                    found.must(Rule::Halt, place, halted.is_none(), || {
                        format!("call {key} leaves, dispatched during the halt that record {halted:?} set")
                    });
                }
                row.sent = true;
                if row.open {
                    row.calls.retain(|call| call.sender != sender);
                    row.calls.push(Call { sender, fence, answered: None });
                    self.sent(sender, key, place, found);
                }
            }
            Fact::CallEnded { key, answered } => {
                let calls = self.keys.get_mut(&key).map(|row| &mut row.calls);
                if let Some(call) = calls.and_then(|calls| calls.iter_mut().find(|call| call.sender == sender)) {
                    call.answered = answered;
                }
                self.answered(sender, key);
            }
            Fact::Charged { key, usage, cost } => self.charged(key, usage, cost, place, found),
            Fact::Replayed { key, of } => {
                let shared = |id| self.keys.get(&id).and_then(|row| row.shared);
                let fits = shared(key).is_some() && shared(key) == shared(of);
                let charged = self.keys.get(&of).is_some_and(|row| row.charged.is_some());
                found.must(Rule::Calls, place, fits && charged, || {
                    format!("{key} is answered as {of} was, which asked something else or was never charged")
                });
                self.keys.entry(key).or_default().charged = Some(Usage { input_tokens: 0, output_tokens: 0 });
            }
            Fact::Misled { run, unit, source, .. } => {
                let complaint =
                    format!("unit {unit} of run {run} was given the answer of {source}, to another question");
                found.broken(Rule::Calls, place, complaint);
            }
            Fact::Repeated { key } => {
                let charged = self.keys.get(&key).is_some_and(|row| row.charged.is_some());
                found.must(Rule::Calls, place, charged, || {
                    format!("{key} is answered free as if charged, and never was")
                });
            }
            _ => {}
        }
    }

    fn charged(&mut self, key: u64, usage: Usage, paid: u64, place: Place, found: &mut Findings) {
        self.invoice += u128::from(paid);
        let right = cost(&self.price, usage);
        found.must(Rule::Calls, place, right == Some(paid), || {
            format!("{key} is charged {paid} micro-USD for {usage:?}, and by the provider's price that is {right:?}")
        });
        let row = self.keys.entry(key).or_default();
        let before = row.charged.replace(usage);
        let released_by = row.released_by;
        found.must(Rule::Calls, place, row.sent && before.is_none(), || match before {
            Some(before) => format!("{key} is charged again, for {usage:?}; it was for {before:?}"),
            None => format!("{key} is charged {paid} micro-USD, and no call left under it"),
        });
        let shared = row.shared;
        let first = shared.map_or(key, |shared| *self.asked.entry(shared).or_insert(key));
        found.must(Rule::Calls, place, first == key, || {
            format!("{key} is charged for what {first} was charged for under the same key")
        });
        if let Some(seq) = released_by {
            found.broken(Rule::Released, place, format!("{key} is charged, and record {seq} had released it"));
        }
    }

    fn sent(&mut self, sender: Sender, id: u64, place: Place, found: &mut Findings) {
        let Some(key) = self.keys.get_mut(&id) else { return };
        let Some(((tenant, ..), user)) = key.made_for else { return };
        let is_first = key.waiting.is_empty();
        if !key.waiting.insert(sender) {
            return;
        }
        self.waits.entry(sender).or_default().insert(id);
        if !is_first {
            return;
        }
        let count = self.on_the_wire.entry((tenant, user)).or_default();
        *count += 1;
        let slots = self.most_slots.get(&tenant).copied().unwrap_or(0);
        found.must(Rule::LiveCalls, place, *count <= slots, || {
            format!("call {id} is call {count} of user {user} on the wire at once; slots are {slots}")
        });
    }

    fn answered(&mut self, sender: Sender, id: u64) {
        let Some(key) = self.keys.get_mut(&id) else { return };
        if !key.waiting.remove(&sender) {
            return;
        }
        let last = key.waiting.is_empty().then_some(key.made_for).flatten();
        if let Some(keys) = self.waits.get_mut(&sender) {
            keys.remove(&id);
        }
        if let Some(((tenant, ..), user)) = last {
            self.off_the_wire((tenant, user));
        }
    }

    /// A node went down: it waits for nothing any more.
    pub(super) fn down(&mut self, sender: Sender) {
        for key in self.waits.remove(&sender).unwrap_or_default() {
            self.answered(sender, key);
        }
    }

    /// At rest settled <= invoice <= settled + open.
    pub(super) fn at_rest(&self, place: Place, found: &mut Findings) {
        let Calls { settled, invoice, open, .. } = *self;
        if (settled, invoice, open) == (0, 0, 0) {
            return;
        }
        found.must(Rule::Invoice, place, settled <= invoice && invoice <= settled + open, || {
            format!("at rest the invoice is {invoice} micro-USD; settled are {settled} and open {open}")
        });
    }
}
