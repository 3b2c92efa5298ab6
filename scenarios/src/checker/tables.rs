//! The ledger's tables at rest, row by row from the reckoning, and their hashes by the documented rule.
//!
//! A row's part is blake3 over the table's number (u16), the lengths of its encoded key and value (u32 each, all little-endian)
//! and both encodings; a table's hash is blake3 over its number, its number of rows (u64) and the sum of its parts modulo 2^256.

use super::{
    files::TableAtRest,
    findings::{Findings, Place, Rule},
    wire::{Hash, short},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The tables whose rows the reckoning has, by number.
const KNOWN: std::ops::RangeInclusive<u16> = 1..=23;

#[derive(Clone, Copy, Debug, Default)]
struct Table {
    rows: u64,
    sum: [u64; 4],
}

/// Every known table, as far as its rows were put in.
#[derive(Clone, Debug)]
pub(super) struct Tables(BTreeMap<u16, Table>);

impl Tables {
    pub(super) fn new() -> Tables {
        Tables(KNOWN.map(|number| (number, Table::default())).collect())
    }

    /// Puts a row in.
    pub(super) fn row(&mut self, number: u16, key: impl Serialize, value: impl Serialize) {
        let (Ok(key), Ok(value)) = (postcard::to_allocvec(&key), postcard::to_allocvec(&value)) else { return };
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.to_le_bytes()).update(&length(&key)).update(&length(&value));
        let part = hasher.update(&key).update(&value).finalize();
        let table = self.0.entry(number).or_default();
        table.rows += 1;
        let mut carry = 0;
        for (word, bytes) in table.sum.iter_mut().zip(part.as_bytes().as_chunks::<8>().0) {
            let sum = u128::from(*word) + u128::from(u64::from_le_bytes(*bytes)) + carry;
            *word = (sum & u128::from(u64::MAX)) as u64;
            carry = sum >> 64;
        }
    }

    fn hash(&self, number: u16) -> Option<Hash> {
        let table = self.0.get(&number)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.to_le_bytes()).update(&table.rows.to_le_bytes());
        for word in table.sum {
            hasher.update(&word.to_le_bytes());
        }
        Some(*hasher.finalize().as_bytes())
    }

    /// Holds what the run noted of its tables at rest against them.
    pub(super) fn compare(&self, noted: &[TableAtRest], found: &mut Findings) {
        for table in noted {
            let number = table.number;
            found.must(Rule::Tables, Place::Result, table.opened == table.rebuilt, || {
                format!("table {number} opened as {:?}, and was rebuilt as {:?}", table.opened, table.rebuilt)
            });
            let own = self.hash(number);
            let Some(own) = own else {
                found
                    .unchecked(Rule::Tables, format!("this build knows no table {number}; teach the checker its rows"));
                continue;
            };
            let hex = blake3::Hash::from_bytes(own).to_hex();
            for (how, noted) in [("opened", &table.opened), ("rebuilt", &table.rebuilt)] {
                found.must(Rule::Tables, Place::Result, noted.as_deref() == Some(hex.as_str()), || {
                    format!("table {number} is noted as {how} with hash {noted:?}, and the log gives {}", short(&own))
                });
            }
        }
        let missing = KNOWN.filter(|number| !noted.iter().any(|table| table.number == *number)).count();
        if missing > 0 {
            found.broken(Rule::Tables, Place::Result, format!("{missing} tables are not noted"));
        }
    }
}
