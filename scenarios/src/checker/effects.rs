//! Intents, memo and single-flight, worked out anew: how far each intent is, who asks each question, and what it was answered.

use super::{
    findings::{Findings, Place, Rule},
    tables::Tables,
    told::Effect,
    wire::{Budgeted, EffectClass, Effected, Event, Key, Leased, Lock, Phase, Ran, Record, State},
};
use std::collections::{BTreeMap, BTreeSet};

/// An attempt's name: tenant, run, unit, number.
type AttemptName = (u32, u64, u32, u32);

/// An intent whose attempt runs, or awaits the owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intent {
    pub made_for: AttemptName,
    pub key: Option<Key>,
    pub phase: Phase,
    class: EffectClass,
    /// The record that brought it there.
    since: u64,
}

/// The reckoning so far.
#[derive(Debug, Default)]
pub(super) struct Effects {
    tools: BTreeMap<(u32, u32), EffectClass>,
    intents: BTreeMap<u64, Intent>,
    /// Intents that the frame at hand moved.
    moved: BTreeSet<u64>,
    leaders: BTreeMap<(u32, Key), u64>,
    answered: BTreeMap<(u32, Key), (u64, Vec<u8>)>,
    /// What committed intents came back with, until their attempts end.
    responses: BTreeMap<u64, Vec<u8>>,
    /// The reservation that the records before made, and for which attempt.
    reserved: Option<(u64, AttemptName)>,
    running: BTreeMap<AttemptName, u64>,
}

/// The key of a call by the documented rule: half of blake3 over a label, the tenant, the tool and the content.
fn key_of(tenant: u32, tool: u32, content: [u8; 16]) -> Key {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"idempotency").update(&tenant.to_le_bytes()).update(&tool.to_le_bytes()).update(&content);
    std::array::from_fn(|at| hasher.finalize().as_bytes()[at])
}

impl Effects {
    /// A new frame begins.
    pub(super) fn frame_begins(&mut self) {
        self.moved.clear();
    }

    /// Folds a record.
    pub(super) fn record(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let (seq, tenant) = (record.seq, record.tenant);
        match &record.event {
            Event::Effect(event) => self.effected(seq, tenant, event, place, found),
            Event::Reserve(Budgeted::Reserved { reservation, run, unit, attempt, .. }) => {
                self.reserved = Some((*reservation, (tenant, *run, *unit, *attempt)));
            }
            Event::Reserve(
                Budgeted::Settled { reservation, by_owner: true, .. }
                | Budgeted::Released { reservation, by_owner: true },
            ) => {
                self.intents.remove(reservation);
            }
            Event::Reserve(Budgeted::Settled { reservation, .. }) => {
                let phase = self.phase(*reservation);
                found.must(Rule::Arms, place, phase.is_none_or(|phase| phase == Phase::Committed), || {
                    format!("record {seq} settles {reservation}, and its intent is {phase:?}")
                });
            }
            Event::Reserve(Budgeted::Released { reservation, .. }) => {
                let phase = self.phase(*reservation);
                found.must(Rule::Arms, place, phase != Some(Phase::Dispatched), || {
                    format!("record {seq} releases {reservation}, and its call may be on the wire")
                });
            }
            Event::Run(event) => self.ran(seq, tenant, *event, place, found),
            Event::Lease(Leased::Yielded { lock, .. } | Leased::Expired { lock, .. }) => {
                let Lock::Run(tenant, run) = *lock else { return };
                let of_run = (tenant, run, 0, 0)..=(tenant, run, u32::MAX, u32::MAX);
                let intents: Vec<u64> = self.running.range(of_run).map(|(_, intent)| *intent).collect();
                intents.into_iter().for_each(|intent| self.asks_no_more(intent));
            }
            _ => {}
        }
    }

    fn effected(&mut self, seq: u64, tenant: u32, event: &Effected, place: Place, found: &mut Findings) {
        match *event {
            Effected::Decided { .. } => {}
            Effected::ToolRegistered { tenant, tool, class } => {
                self.tools.insert((tenant, tool), class);
            }
            Effected::Intended { intent, tool, class, key } => {
                let made_for = self.reserved.filter(|(reservation, _)| *reservation == intent).map(|(_, name)| name);
                let known = self.tools.get(&(tenant, tool)) == Some(&class);
                let keyed = key.is_some() == (class == EffectClass::Idempotent);
                found.must(Rule::Arms, place, made_for.is_some() && known && keyed, || {
                    format!("record {seq} makes intent {intent} of tool {tool}, {class:?}, for {made_for:?}")
                });
                if let Some(key) = key {
                    let (answer, leader) = (self.answered.get(&(tenant, key)), self.leaders.get(&(tenant, key)));
                    found.must(Rule::Arms, place, answer.is_none() && leader.is_none(), || {
                        format!("record {seq} asks under {intent} what {leader:?} asks or was answered")
                    });
                    self.leaders.insert((tenant, key), intent);
                }
                let Some(made_for) = made_for else { return };
                self.intents.insert(intent, Intent { made_for, key, phase: Phase::Pending, class, since: seq });
                self.moved.insert(intent);
            }
            Effected::Dispatched { intent } => {
                self.moves(seq, intent, (Phase::Pending, Phase::Dispatched), place, found);
                let Some(key) = self.intents.get(&intent).and_then(|row| row.key) else { return };
                let leader = *self.leaders.entry((tenant, key)).or_insert(intent);
                let fits = leader == intent && !self.answered.contains_key(&(tenant, key));
                found.must(Rule::Arms, place, fits, || {
                    format!("record {seq} dispatches {intent}, and {leader} asks, or the question was answered")
                });
            }
            Effected::Committed { intent, ref response } => {
                self.moves(seq, intent, (Phase::Dispatched, Phase::Committed), place, found);
                self.responses.insert(intent, response.clone());
            }
        }
    }

    fn moves(&mut self, seq: u64, intent: u64, (from, to): (Phase, Phase), place: Place, found: &mut Findings) {
        let phase = self.phase(intent);
        let fresh = !self.moved.insert(intent);
        found.must(Rule::Arms, place, phase == Some(from) && !fresh, || match fresh {
            true => format!("record {seq} makes intent {intent} {to:?} in the frame in which it became {phase:?}"),
            false => format!("record {seq} makes intent {intent} {to:?}, and it is {phase:?}"),
        });
        if let Some(row) = self.intents.get_mut(&intent) {
            (row.phase, row.since) = (to, seq);
        }
    }

    fn ran(&mut self, seq: u64, tenant: u32, event: Ran, place: Place, found: &mut Findings) {
        match event {
            Ran::AttemptStarted { run, unit, attempt, reservation } => {
                self.running.insert((tenant, run, unit, attempt), reservation);
            }
            Ran::AttemptEnded { run, unit, attempt, state } => {
                let Some(intent) = self.running.remove(&(tenant, run, unit, attempt)) else { return };
                self.asks_no_more(intent);
                let Some(row) = self.intents.get(&intent).copied() else { return };
                found.must(Rule::Arms, place, ends_in(row.phase, state), || {
                    format!("record {seq} ends an attempt {state:?}, and its intent {intent} is {:?}", row.phase)
                });
                if state == State::Indeterminate {
                    return;
                }
                self.intents.remove(&intent);
                let response = self.responses.remove(&intent);
                if let (State::Succeeded, Some(key), Some(response)) = (state, row.key, response) {
                    self.answered.entry((tenant, key)).or_insert((intent, response));
                }
            }
            Ran::Recalled { run, unit, key, source, .. } => {
                let answered = self.answered.get(&(tenant, key)).map(|(source, _)| *source);
                found.must(Rule::Arms, place, answered == Some(source), || {
                    format!(
                        "record {seq} gives unit {unit} of run {run} what {source} was answered; under its key that is \
                         {answered:?}"
                    )
                });
            }
            Ran::Spawned { .. }
            | Ran::Ended { .. }
            | Ran::AttemptQueued { .. }
            | Ran::Suspended { .. }
            | Ran::Resumed { .. }
            | Ran::Cancelled { .. } => {}
        }
    }

    fn asks_no_more(&mut self, intent: u64) {
        let Some(Intent { made_for: (tenant, ..), key: Some(key), .. }) = self.intents.get(&intent).copied() else {
            return;
        };
        if self.leaders.get(&(tenant, key)) == Some(&intent) {
            self.leaders.remove(&(tenant, key));
        }
    }

    /// Puts down the rows of the ledger's tables about effects.
    pub(super) fn tables(&self, tables: &mut Tables) {
        self.tools.iter().for_each(|(key, class)| tables.row(19, key, class));
        for (id, row) in &self.intents {
            let Intent { made_for: (tenant, run, ..), key, phase, class, since } = *row;
            let response = self.responses.get(id);
            tables.row(20, (tenant, id), (run, class, key, phase, since, response));
        }
        self.leaders.iter().for_each(|(key, leader)| tables.row(21, key, leader));
        self.answered.iter().for_each(|(key, answer)| tables.row(22, key, answer));
    }

    /// An open intent.
    pub(super) fn intent(&self, intent: u64) -> Option<&Intent> {
        self.intents.get(&intent)
    }

    /// How far an open intent is.
    pub(super) fn phase(&self, intent: u64) -> Option<Phase> {
        self.intents.get(&intent).map(|row| row.phase)
    }

    /// Whether the frame at hand moved it.
    pub(super) fn is_moved(&self, intent: u64) -> bool {
        self.moved.contains(&intent)
    }

    /// A tool's class.
    pub(super) fn class(&self, tenant: u32, tool: u32) -> Option<EffectClass> {
        self.tools.get(&(tenant, tool)).copied()
    }

    /// The key that a call has to carry.
    pub(super) fn key(&self, tenant: u32, class: EffectClass, effect: &Effect) -> Option<Key> {
        (class == EffectClass::Idempotent).then(|| key_of(tenant, effect.tool, effect.content))
    }

    /// Who asks under a key.
    pub(super) fn leader(&self, tenant: u32, key: Key) -> Option<u64> {
        self.leaders.get(&(tenant, key)).copied()
    }

    /// What was answered under a key, and to whom.
    pub(super) fn answer(&self, tenant: u32, key: Key) -> Option<&(u64, Vec<u8>)> {
        self.answered.get(&(tenant, key))
    }
}

/// Whether an attempt may end so while its intent is so far.
pub(super) fn ends_in(phase: Phase, to: State) -> bool {
    match phase {
        Phase::Pending => matches!(to, State::Cancelled | State::TimedOut),
        Phase::Dispatched => to == State::Indeterminate,
        Phase::Committed => to != State::Indeterminate,
    }
}
