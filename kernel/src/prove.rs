//! Can it be shown? Every table rebuilt from the log, hash-equal, table by table; and money conserved over all of them.
//!
//! This room has no tables. It folds the log with the same `apply` that the writer uses, and never asks the writer.

use crate::{
    money::MicroUsd,
    planted::{Bug, Planted},
    record::{Frame, Hash, Head, LogError, Verifier},
    reserve::Sums,
    room::{Impossible, ensure},
    table::{TableHash, Tables},
};

/// What the log alone gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The head after the last frame.
    pub head: Head,
    /// Every table's hash, by number.
    pub tables: Vec<TableHash>,
}

/// A table that is kept is not the one the log gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {number} ({name}) differs from what the log gives; drop it and rebuild it from the log")]
pub struct Differs {
    /// The table's number.
    pub number: u16,
    /// Its name; `?` if this build does not know it.
    pub name: &'static str,
    /// The hash of what is kept; `None` if nothing is.
    pub kept: Option<Hash>,
    /// The hash of what the log gives; `None` if the table is not known.
    pub rebuilt: Option<Hash>,
}

/// Folds every frame of a log, from the first on, by the right rules: a log that a planted bug wrote may be impossible.
pub fn rebuild<F: AsRef<[u8]>>(frames: impl IntoIterator<Item = F>) -> Result<Rebuilt, LogError> {
    let planted = Planted::none();
    let (mut tables, mut verifier) = (Tables::default(), Verifier::default());
    for frame in frames {
        fold(&mut tables, &mut verifier, frame.as_ref(), &planted)?;
    }
    let head = verifier.head();
    conserves(&tables, &planted).map_err(|why| LogError::Impossible { seq: head.next_seq, why: why.0 })?;
    Ok(Rebuilt { head, tables: tables.hashes() })
}

/// Whether every table that is kept is the one the log gives; names the first that is not.
pub fn compare(kept: &[(u16, Hash)], rebuilt: &Rebuilt) -> Result<(), Differs> {
    for table in &rebuilt.tables {
        let of_kept = kept.iter().find(|(number, _)| *number == table.number).map(|(_, hash)| *hash);
        if of_kept != Some(table.hash) {
            let (number, name) = (table.number, table.name);
            return Err(Differs { number, name, kept: of_kept, rebuilt: Some(table.hash) });
        }
    }
    let unknown = kept.iter().find(|(number, _)| rebuilt.tables.iter().all(|table| table.number != *number));
    match unknown {
        Some(&(number, hash)) => Err(Differs { number, name: "?", kept: Some(hash), rebuilt: None }),
        None => Ok(()),
    }
}

/// Checks one more frame, folds its records and gives them.
pub(crate) fn fold(
    tables: &mut Tables,
    verifier: &mut Verifier,
    bytes: &[u8],
    planted: &Planted,
) -> Result<Frame, LogError> {
    let frame = verifier.frame(bytes)?;
    for record in &frame.records {
        let folded = tables.apply(record, planted);
        folded.map_err(|Impossible(why)| LogError::Impossible { seq: record.seq, why })?;
    }
    Ok(frame)
}

/// Whether the sums are those of the reservations: every account's settled and live money, every user's live slots, and
/// every reservation that awaits the owner. Reads every row.
pub(crate) fn conserves(tables: &Tables, planted: &Planted) -> Result<(), Impossible> {
    let (accounts, live) = (&tables.reserve.accounts, &tables.reserve.live);
    let (mut sums_of, mut live_of) = (vec![Sums::default(); accounts.len()], vec![0; live.len()]);
    for (&(tenant, reservation), row) in tables.reserve.reservations.iter() {
        for account in row.accounts(tenant) {
            let at = accounts.place(&(account.tenant(), account));
            let at = at.ok_or_else(|| Impossible(format!("{account:?} of reservation {reservation} has no row")))?;
            let Sums { settled, live } = &mut sums_of[at];
            let (sum, more) = match row.close {
                Some(close) => (settled, close.cost.unwrap_or(MicroUsd::ZERO)),
                None => (live, row.worst),
            };
            let counted = sum.checked_add(more);
            *sum = counted.ok_or_else(|| Impossible(format!("{account:?} holds more than can be counted")))?;
        }
        let open = u32::from(row.close.is_none());
        let at = live.place(&(tenant, row.user));
        live_of[at.ok_or_else(|| Impossible(format!("user {} has no row of live reservations", row.user)))?] += open;
        let awaits = tables.reserve.awaiting.get(&(tenant, reservation)).is_some();
        ensure!(!awaits || open == 1, "reservation {reservation} has ended and awaits the owner");
    }
    for ((key, sums), right) in accounts.iter().zip(sums_of) {
        ensure!(*sums == right, "{:?} holds {sums:?}, and its reservations {right:?}", key.1);
    }
    for ((key, slots), right) in live.iter().zip(live_of) {
        let equal = *slots == right || planted.is_on(Bug::ReleaseTwice);
        ensure!(equal, "user {} holds {slots} slots, and has {right} open reservations", key.1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{ModelId, ReservationId, RunId, TenantId, UnitId, UserId},
        money::Price,
        reserve::{Close, Reservation},
    };

    const TENANT: TenantId = TenantId(1);

    /// Two reservations of one run: one open, one that cost 3.
    fn sound() -> Tables {
        let mut tables = Tables::default();
        let price = Price { model: ModelId(1), input_per_mtok: 1, output_per_mtok: 1 };
        for (id, close) in [(5, None), (9, Some(Close { cost: Some(MicroUsd(3)), by_owner: false, again: false }))] {
            let (run, unit, user) = (RunId(1), UnitId(id as u32), UserId(1));
            let row = Reservation { run, unit, attempt: 1, user, day: 0, price, worst: MicroUsd(7), close };
            for account in row.accounts(TENANT) {
                let sums = tables.reserve.accounts.row(&(account.tenant(), account));
                match row.close {
                    None => sums.live = MicroUsd(sums.live.0 + 7),
                    Some(_) => sums.settled = MicroUsd(sums.settled.0 + 3),
                }
            }
            *tables.reserve.live.row(&(TENANT, user)) += u32::from(row.close.is_none());
            tables.reserve.reservations.insert((TENANT, ReservationId(id)), row);
        }
        tables
    }

    #[test]
    fn what_does_not_add_up_is_said() {
        let first = |tables: &Tables| *tables.reserve.accounts.iter().next().expect("an account").0;
        type Tamper<'a> = &'a dyn Fn(&mut Tables);
        let wrong: [(&str, Tamper<'_>); 5] = [
            ("its reservations", &|tables| tables.reserve.accounts.row(&first(tables)).live = MicroUsd(8)),
            ("its reservations", &|tables| tables.reserve.accounts.row(&first(tables)).settled = MicroUsd(1)),
            ("has no row", &|tables| _ = tables.reserve.accounts.remove(&first(tables))),
            ("holds 2 slots, and has 1", &|tables| *tables.reserve.live.row(&(TENANT, UserId(1))) = 2),
            ("has no row of live", &|tables| _ = tables.reserve.live.remove(&(TENANT, UserId(1)))),
        ];
        assert!(conserves(&sound(), &Planted::none()).is_ok());
        for (said, tamper) in wrong {
            let mut tables = sound();
            tamper(&mut tables);
            let Impossible(why) = conserves(&tables, &Planted::none()).expect_err(said);
            assert!(why.contains(said), "{why}");
        }
        let mut tables = sound();
        tables.reserve.awaiting.insert((TENANT, ReservationId(9)), ());
        let Impossible(why) = conserves(&tables, &Planted::none()).expect_err("an ended reservation awaits nobody");
        assert!(why.contains("has ended and awaits the owner"), "{why}");
    }
}
