//! A log as its store holds it, decoded as it is read: decoded as a whole, a long one would be most of a run's memory.

use kernel::{
    record::{Frame, Record},
    store::StoredFrame,
};

/// Every frame of a log, each of which can be decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeLog {
    frames: Vec<StoredFrame>,
    records: usize,
}

impl WholeLog {
    /// The log of these frames; the error says which of them cannot be decoded.
    pub fn of(frames: Vec<StoredFrame>) -> Result<WholeLog, String> {
        let mut records = 0;
        for stored in &frames {
            let decoded = decode(stored);
            records += decoded
                .map_err(|why| format!("the frame at {} cannot be decoded: {why}", stored.first_seq))?
                .records
                .len();
        }
        Ok(WholeLog { frames, records })
    }

    /// The frames as they are stored.
    pub fn frames(&self) -> &[StoredFrame] {
        &self.frames
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Every record, in order.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = Record> {
        self.frames.iter().flat_map(records_of)
    }

    /// The records from sequence `seq` on.
    pub fn records_from(&self, seq: u64) -> Vec<Record> {
        let first = self.frames.partition_point(|frame| frame.next_seq <= seq);
        self.frames[first..].iter().flat_map(records_of).skip_while(|record| record.seq < seq).collect()
    }
}

fn decode(stored: &StoredFrame) -> Result<Frame, postcard::Error> {
    postcard::from_bytes(&stored.bytes)
}

fn records_of(stored: &StoredFrame) -> Vec<Record> {
    decode(stored).expect("each frame was decoded once before").records
}
