//! The simulated network: ordered links with weather, partitions and bounds.
//!
//! A link comes to be at its first frame. Each frame handed to it consumes the same number of words of the link's own
//! stream, whatever the weather and whether or not it is cut or full, so that a fault changes no later draw.

use super::{
    heap::{EventHeap, What},
    slab::Slab,
};
use crate::{
    Datagram, LinkWeather, MAX_FRAME_BYTES, NodeId, Reach, Stats, Stream,
    bus::{MAX_CLOG_NS, MAX_LINK_FRAMES},
    random::domain,
};

pub(super) struct Network {
    seed: u64,
    nodes: u32,
    calm: LinkWeather,
    rows: Vec<Row>,
    links: Vec<Link>,
    /// Every weather there was so far; most links share one.
    weathers: Vec<LinkWeather>,
    rules: Vec<Rule>,
    frames: Slab<Frame>,
}

/// The links out of one node: a window of indices over the addresses it has sent to.
#[derive(Default)]
struct Row {
    first_to: u32,
    links: Vec<u32>,
}

const NO_LINK: u32 = u32::MAX;

/// Where the weather that a run begins with stands among all.
const CALM: u32 = 0;

struct Link {
    from: u32,
    to: u32,
    /// Its weather, among all there were.
    weather: u32,
    /// How often it was cut: a frame that was on its way during a cut does not arrive.
    cuts: u32,
    cut: bool,
    /// When the latest frame in sending order arrives.
    last_arrival_ns: u64,
    /// When a clogged link has passed all that was handed to it.
    free_ns: u64,
    /// Frames on their way or unread.
    held: u32,
    /// What the fate of its frames is drawn from.
    draws: Stream,
}

/// What was last decided for the links reached, for those that do not exist yet.
struct Rule {
    reach: Reach,
    change: Change,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Weather(LinkWeather),
    Cut,
    Mend,
}

/// A change as a link takes it.
#[derive(Clone, Copy)]
enum Interned {
    Weather(u32),
    Cut,
    Mend,
}

/// A frame on its way.
struct Frame {
    link: u32,
    cuts: u32,
    incarnation: u32,
    copy: Copies,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    First,
    Extra,
}

/// A frame that got through.
pub(super) struct Arrival {
    pub(super) to: u32,
    pub(super) parcel: Parcel,
}

/// An unread frame, which still counts against its link's bound.
pub(super) struct Parcel {
    link: u32,
    pub(super) datagram: Datagram,
}

/// What was drawn for one frame: always four words.
struct Fate {
    lost: bool,
    repeated: bool,
    reordered: bool,
    spiked: bool,
    latency_word: u64,
    second_latency_word: u64,
}

impl Network {
    pub(super) fn new(seed: u64, nodes: u32, calm: LinkWeather) -> Network {
        let rows = (0..nodes).map(|_| Row::default()).collect();
        let (links, rules) = (Vec::new(), Vec::new());
        Network { seed, nodes, calm, rows, links, weathers: vec![calm], rules, frames: Slab::new(0) }
    }

    pub(super) fn send(
        &mut self,
        now_ns: u64,
        from: (NodeId, u32),
        to: NodeId,
        bytes: Vec<u8>,
        events: &mut EventHeap,
        stats: &mut Stats,
    ) {
        stats.frames_sent += 1;
        if to.0 >= self.nodes {
            stats.frames_lost += 1;
            return;
        }
        let index = self.link_between(from.0.0, to.0);
        let link = &mut self.links[index as usize];
        let weather = &self.weathers[link.weather as usize];
        let fate = Fate::draw(&mut link.draws, weather);
        if bytes.len() > MAX_FRAME_BYTES || link.held as usize >= MAX_LINK_FRAMES {
            stats.frames_overflowed += 1;
            return;
        }
        if fate.lost || link.cut {
            stats.frames_lost += 1;
            if link.cut {
                stats.effects.frames_cut += 1;
            } else {
                stats.effects.frames_lost += 1;
            }
            return;
        }
        let Some(leaves_ns) = link.leaves_ns(now_ns, bytes.len(), weather.bytes_per_s, stats) else { return };
        let arrival_ns = link.arrival_ns(leaves_ns, &fate, weather, stats);
        let cuts = link.cuts;
        let extra = if fate.repeated && (link.held as usize) + 1 < MAX_LINK_FRAMES {
            link.held += 2;
            let later_ns = leaves_ns.saturating_add(weather.latency_ns(fate.second_latency_word)).max(arrival_ns);
            Some((later_ns, bytes.clone()))
        } else {
            link.held += 1;
            None
        };
        let incarnation = from.1;
        let frame = self.frames.insert(Frame { link: index, cuts, incarnation, copy: Copies::First, bytes });
        events.push(arrival_ns, What::Frame(frame));
        if let Some((later_ns, bytes)) = extra {
            let frame = self.frames.insert(Frame { link: index, cuts, incarnation, copy: Copies::Extra, bytes });
            events.push(later_ns, What::Frame(frame));
        }
    }

    /// Takes a frame off its link's way. A lost one is counted.
    pub(super) fn arrive(&mut self, frame: u64, is_up: impl FnOnce(u32) -> bool, stats: &mut Stats) -> Option<Arrival> {
        let frame = self.frames.remove(frame)?;
        let link = &mut self.links[frame.link as usize];
        let extra = frame.copy == Copies::Extra;
        if frame.cuts != link.cuts || !is_up(link.to) {
            link.held -= 1;
            stats.frames_lost += u64::from(!extra);
            stats.effects.frames_cut += u64::from(!extra && frame.cuts != link.cuts);
            return None;
        }
        let datagram = Datagram { from: NodeId(link.from), incarnation: frame.incarnation, frame: frame.bytes };
        stats.frames_delivered += 1;
        stats.frames_repeated += u64::from(extra);
        stats.effects.frames_repeated += u64::from(extra);
        Some(Arrival { to: link.to, parcel: Parcel { link: frame.link, datagram } })
    }

    /// The node has read the frame, or lost it with its memory.
    pub(super) fn release(&mut self, parcel: Parcel) -> Datagram {
        self.links[parcel.link as usize].held -= 1;
        parcel.datagram
    }

    pub(super) fn apply(&mut self, reach: &Reach, change: Change) {
        let taken = self.interned(change);
        for link in &mut self.links {
            if reach.covers(link.from, link.to) {
                link.apply(taken, &self.weathers);
            }
        }
        self.rules.retain(|rule| !(change.overrides(rule.change) && (rule.reach == *reach || *reach == Reach::All)));
        self.rules.push(Rule { reach: reach.clone(), change });
    }

    /// Every link as the run began.
    pub(super) fn heal(&mut self) {
        self.apply(&Reach::All, Change::Weather(self.calm));
        self.apply(&Reach::All, Change::Mend);
        self.rules.clear();
    }

    /// Whether every link is as the run began.
    pub(super) fn is_calm(&self) -> bool {
        self.links.iter().all(|link| !link.cut && self.weathers[link.weather as usize] == self.calm)
    }

    /// A change of the weather as one to a known weather.
    fn interned(&mut self, change: Change) -> Interned {
        match change {
            Change::Weather(weather) => {
                let known = self.weathers.iter().position(|known| *known == weather);
                let at = known.unwrap_or_else(|| {
                    self.weathers.push(weather);
                    self.weathers.len() - 1
                });
                Interned::Weather(u32::try_from(at).expect("fewer than 2^32 weathers"))
            }
            Change::Cut => Interned::Cut,
            Change::Mend => Interned::Mend,
        }
    }

    #[inline]
    fn link_between(&mut self, from: u32, to: u32) -> u32 {
        let row = &self.rows[from as usize];
        if let Some(&link) = to.checked_sub(row.first_to).and_then(|column| row.links.get(column as usize))
            && link != NO_LINK
        {
            return link;
        }
        self.make_link(from, to)
    }

    #[cold]
    fn make_link(&mut self, from: u32, to: u32) -> u32 {
        let index = u32::try_from(self.links.len()).expect("fewer than 2^32 links");
        let draws = Stream::keyed(self.seed, &[domain::LINK, u64::from(from), u64::from(to)]);
        let mut link =
            Link { from, to, weather: CALM, cut: false, cuts: 0, last_arrival_ns: 0, free_ns: 0, held: 0, draws };
        for rule in 0..self.rules.len() {
            let Rule { reach, change } = &self.rules[rule];
            if reach.covers(from, to) {
                let change = self.interned(*change);
                link.apply(change, &self.weathers);
            }
        }
        self.links.push(link);
        self.rows[from as usize].set(to, index);
        index
    }
}

impl Row {
    fn set(&mut self, to: u32, link: u32) {
        if self.links.is_empty() {
            self.first_to = to;
        }
        if to < self.first_to {
            let missing = (self.first_to - to) as usize;
            self.links.splice(0..0, std::iter::repeat_n(NO_LINK, missing));
            self.first_to = to;
        }
        let column = (to - self.first_to) as usize;
        if column >= self.links.len() {
            self.links.resize(column + 1, NO_LINK);
        }
        self.links[column] = link;
    }
}

impl Link {
    fn apply(&mut self, change: Interned, weathers: &[LinkWeather]) {
        match change {
            Interned::Weather(weather) => {
                let passes = |weather: u32| weathers[weather as usize].bytes_per_s;
                if passes(weather) != passes(self.weather) {
                    self.free_ns = 0;
                }
                self.weather = weather;
            }
            Interned::Mend => self.cut = false,
            Interned::Cut => {
                self.cut = true;
                self.cuts = self.cuts.wrapping_add(1);
            }
        }
    }

    /// When a frame of so many bytes, handed over now, has left: at once, unless the link is clogged. `None` if its queue is
    /// full.
    #[inline]
    fn leaves_ns(&mut self, now_ns: u64, bytes: usize, rate: u64, stats: &mut Stats) -> Option<u64> {
        if rate == 0 {
            return Some(now_ns);
        }
        let begins_ns = self.free_ns.max(now_ns);
        stats.effects.frames_queued += u64::from(begins_ns > now_ns);
        let takes_ns = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate));
        let leaves_ns = begins_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        if leaves_ns - now_ns > MAX_CLOG_NS {
            stats.frames_overflowed += 1;
            return None;
        }
        self.free_ns = leaves_ns;
        Some(leaves_ns)
    }

    /// When a frame that leaves now arrives: never before the one sent ahead of it, unless it was drawn to be reordered.
    #[inline]
    fn arrival_ns(&mut self, now_ns: u64, fate: &Fate, weather: &LinkWeather, stats: &mut Stats) -> u64 {
        let spike_ns = if fate.spiked { weather.spike_ns } else { 0 };
        stats.effects.frames_spiked += u64::from(spike_ns > 0);
        let latency_ns = weather.latency_ns(fate.latency_word).saturating_add(spike_ns);
        let free_ns = now_ns.saturating_add(latency_ns);
        if fate.reordered {
            stats.effects.frames_overtaking += u64::from(free_ns < self.last_arrival_ns);
            return free_ns;
        }
        self.last_arrival_ns = self.last_arrival_ns.max(free_ns);
        self.last_arrival_ns
    }
}

impl Change {
    /// Whether a link to which both were applied remembers nothing of the earlier one.
    fn overrides(self, earlier: Change) -> bool {
        matches!(self, Change::Weather(_)) == matches!(earlier, Change::Weather(_))
    }
}

impl Fate {
    #[inline]
    fn draw(draws: &mut Stream, weather: &LinkWeather) -> Fate {
        let (loss_and_repeat, reorder_and_spike) = (draws.next_u64(), draws.next_u64());
        Fate {
            lost: hits((loss_and_repeat >> 32) as u32, weather.loss_ppm),
            repeated: hits(loss_and_repeat as u32, weather.repeat_ppm),
            reordered: hits((reorder_and_spike >> 32) as u32, weather.reorder_ppm),
            spiked: hits(reorder_and_spike as u32, weather.spike_ppm),
            latency_word: draws.next_u64(),
            second_latency_word: draws.next_u64(),
        }
    }
}

/// Whether half a word falls among `ppm` of a million.
#[inline]
fn hits(half_word: u32, ppm: u32) -> bool {
    (u64::from(half_word) * 1_000_000) >> 32 < u64::from(ppm)
}

impl LinkWeather {
    #[inline]
    fn latency_ns(&self, word: u64) -> u64 {
        let spread = u128::from(self.latency_max_ns.saturating_sub(self.latency_min_ns)) + 1;
        self.latency_min_ns + ((u128::from(word) * spread) >> 64) as u64
    }
}

impl Reach {
    fn covers(&self, from: u32, to: u32) -> bool {
        match *self {
            Reach::All => true,
            Reach::Node(NodeId(node)) => from == node || to == node,
            Reach::OneWay(NodeId(first), NodeId(second)) => (from, to) == (first, second),
            Reach::Between(NodeId(one), NodeId(other)) => (from, to) == (one, other) || (from, to) == (other, one),
            Reach::Across { bridge: NodeId(bridge), split } => {
                let in_first_half = |node: u32| node - u32::from(node > bridge) < split;
                from != bridge && to != bridge && in_first_half(from) != in_first_half(to)
            }
        }
    }
}
