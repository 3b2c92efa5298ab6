//! Frames over TCP on loopback: one connection per ordered pair of nodes, made when the first frame wants it.
//!
//! On the wire: a hello {run, from, incarnation}, then frames, each behind its length; all integers little-endian.
//! `run` tells plays on one machine apart, since a port that one gives up may go to another.
//!
//! A broken connection loses what was on it and is made anew for the next frame. Loss is counted by the sender, when
//! it meets the break. Both ends share one count of a link's frames, from [`send`] until the node has read them, so
//! that the bound on a link holds over its whole way.

use super::run::{Failure, Run};
use crate::{Datagram, EngineError, MAX_FRAME_BYTES, NodeId, bus::MAX_LINK_FRAMES};
use std::{
    cell::{Cell, RefCell},
    io,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
};

/// One ordered pair of nodes.
#[derive(Default)]
pub(super) struct Link {
    /// Sent and not yet handed to a connection.
    queue: RefCell<Vec<Vec<u8>>>,
    queued: Notify,
    /// Handed to the connection and not yet read from it.
    on_wire: Cell<usize>,
    /// Sent and not yet read by the node.
    held: Cell<usize>,
}

const BUFFER_BYTES: usize = 64 * 1024;

/// How many nodes may ask for a connection before the first is answered; more would wait for a retry of a second.
const BACKLOG: u32 = 4096;

/// A socket for a node to be reached at, on a port of the system's choice.
pub(super) fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

pub(super) fn send(run: &Rc<Run>, from: NodeId, to: NodeId, frame: Vec<u8>) {
    run.count(|stats| stats.frames_sent += 1);
    if run.node(to).is_none() {
        run.count(|stats| stats.frames_lost += 1);
        return;
    }
    let link = link_between(run, from, to);
    if frame.len() > MAX_FRAME_BYTES || link.held.get() >= MAX_LINK_FRAMES {
        run.count(|stats| stats.frames_overflowed += 1);
        return;
    }
    link.held.set(link.held.get() + 1);
    link.queue.borrow_mut().push(frame);
    link.queued.notify_one();
}

fn link_between(run: &Rc<Run>, from: NodeId, to: NodeId) -> Rc<Link> {
    if let Some(link) = run.links.borrow().get(&(from, to)) {
        return link.clone();
    }
    let link = Rc::new(Link::default());
    run.links.borrow_mut().insert((from, to), link.clone());
    // The run's task and not the node's: what a node sent before its end is out of its hands.
    run.start_wire(write_frames(run.clone(), link.clone(), from, to));
    link
}

async fn write_frames(run: Rc<Run>, link: Rc<Link>, from: NodeId, to: NodeId) {
    let mut connection = None;
    loop {
        let frames = link.queue.take();
        if frames.is_empty() {
            link.queued.notified().await;
            continue;
        }
        link.on_wire.set(link.on_wire.get() + frames.len());
        connection = match write_batch(&run, connection, from, to, &frames).await {
            Ok(connection) => Some(connection),
            Err(error) => {
                let lost = link.on_wire.take();
                link.held.set(link.held.get() - lost);
                run.count(|stats| stats.frames_lost += lost as u64);
                if !is_break(&error) {
                    let doing = "connect two nodes (each pair needs two open files a direction; see ulimit -n)";
                    run.fail(Failure::Engine(EngineError::Machine { doing, source: error }));
                }
                None
            }
        };
    }
}

async fn write_batch(
    run: &Run,
    connection: Option<BufWriter<TcpStream>>,
    from: NodeId,
    to: NodeId,
    frames: &[Vec<u8>],
) -> io::Result<BufWriter<TcpStream>> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => connect(run, from, to).await?,
    };
    for frame in frames {
        connection.write_u32_le(u32::try_from(frame.len()).expect("frames are bounded")).await?;
        connection.write_all(frame).await?;
    }
    connection.flush().await?;
    Ok(connection)
}

async fn connect(run: &Run, from: NodeId, to: NodeId) -> io::Result<BufWriter<TcpStream>> {
    let stream = TcpStream::connect(run.node(to).expect("a link leads to a node").address).await?;
    // Frames are batched here already; the system's own batching would only delay them.
    stream.set_nodelay(true)?;
    let mut connection = BufWriter::with_capacity(BUFFER_BYTES, stream);
    connection.write_u64_le(run.token).await?;
    connection.write_u32_le(from.0).await?;
    connection.write_u32_le(super::INCARNATION).await?;
    Ok(connection)
}

/// Whether the other end, and not this machine, is what failed.
fn is_break(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected, TimedOut};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionRefused | ConnectionReset | NotConnected | TimedOut
    )
}

/// Takes a node's connections until the node ends.
pub(super) async fn accept(run: Rc<Run>, to: NodeId, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let reading = read_frames(run.clone(), to, stream);
                run.start(to, async move {
                    // However a connection ends, its sender meets the break and counts what was lost.
                    let _ = reading.await;
                });
            }
            Err(error) if is_break(&error) => {}
            Err(source) => {
                let doing = "take a connection (each pair of nodes needs two open files a direction; see ulimit -n)";
                run.fail(Failure::Engine(EngineError::Machine { doing, source }));
                return;
            }
        }
    }
}

async fn read_frames(run: Rc<Run>, to: NodeId, stream: TcpStream) -> io::Result<()> {
    let mut connection = BufReader::with_capacity(BUFFER_BYTES, stream);
    let token = connection.read_u64_le().await?;
    let from = NodeId(connection.read_u32_le().await?);
    let incarnation = connection.read_u32_le().await?;
    let link = run.links.borrow().get(&(from, to)).cloned();
    let Some(link) = link.filter(|_| token == run.token) else { return Ok(()) };
    loop {
        let len = connection.read_u32_le().await? as usize;
        if len > MAX_FRAME_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame longer than any may be"));
        }
        let mut frame = vec![0; len];
        connection.read_exact(&mut frame).await?;
        link.on_wire.set(link.on_wire.get() - 1);
        run.deliver(to, Parcel { link: link.clone(), datagram: Datagram { from, incarnation, frame } });
    }
}

/// A frame that waits for its node to read it.
pub(super) struct Parcel {
    link: Rc<Link>,
    datagram: Datagram,
}

impl Parcel {
    /// The frame off its link: the node has read it, or lost it with its memory.
    pub(super) fn release(self) -> Datagram {
        self.link.held.set(self.link.held.get() - 1);
        self.datagram
    }
}
