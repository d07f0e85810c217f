//! Emulates slower and longer links than loopback, for swarms on one machine. All bytes of a peer go through its own up
//! and down lines, whatever their connection.
//!
//! A byte leaves when the up line is free and arrives half a round trip later; it is then read as fast as the down line
//! allows. A line buffers a tenth of a second, as a router does; further writers wait. A connection also limits the
//! bytes in flight, whatever this machine's sockets could take, since later messages would wait behind them. The
//! emulation lies below encryption and multiplexing, so handshakes, gossip, requests and blobs all share the line.
//! Streams cannot lose bytes, so a lost packet is modelled as a retransmission: it arrives a round trip later, as does
//! everything behind it on the same connection. The sender's congestion window does not shrink.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::channel::mpsc;
use futures::io::{ReadHalf, WriteHalf};
use futures::task::AtomicWaker;
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt};
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{Boxed, Transport};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::{PeerId, noise, tcp, yamux};
use rand::RngExt;
use tokio::time::Sleep;

use crate::config::Link;

/// Buffer before a line.
const BEFORE_A_LINE: Duration = Duration::from_millis(100);

/// Timers and threads of a busy machine are late by this much; an idle line may make up for it.
const LATE_BY: Duration = Duration::from_millis(20);

/// Bytes of a packet, the unit of loss.
const PACKET_BYTES: usize = 1_400;

/// Bytes taken from a writer at a time.
const MOST_BYTES: usize = 10 * PACKET_BYTES;

/// Writes in flight on one connection, however small; beyond it, writers wait.
const IN_FLIGHT_WRITES: usize = 1 << 14;

/// Least bytes in flight on one connection: a frame of its multiplexer.
const LEAST_IN_FLIGHT_BYTES: u64 = 1 << 16;

/// Socket buffers of a connection.
const SOCKET_BYTES: usize = 1 << 16;

/// One direction of a peer's link.
struct Line {
    bytes_per_s: u64,
    /// When all bytes given to it will have passed.
    free_at: Mutex<Instant>,
}

impl Line {
    fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self { bytes_per_s, free_at: Mutex::new(now) }
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        // An instant is always valid.
        self.free_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues bytes. Returns when they have passed.
    fn transmit(&self, now: Instant, bytes: usize) -> Instant {
        let mut free_at = self.lock();
        let takes = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_s.max(1));
        *free_at = (*free_at).max(now.checked_sub(LATE_BY).unwrap_or(now)) + takes;
        *free_at
    }

    /// How long a writer has to wait for buffer space.
    fn full_for(&self, now: Instant) -> Duration {
        self.lock().saturating_duration_since(now + BEFORE_A_LINE)
    }
}

/// A peer's link.
pub(crate) struct Lines {
    up: Line,
    down: Line,
    link: Link,
}

impl Lines {
    #[expect(clippy::disallowed_methods, reason = "an edge: real time, in which bytes really travel")]
    fn new(link: Link) -> Self {
        let now = Instant::now();
        Self { up: Line::new(link.up_bytes_per_s, now), down: Line::new(link.down_bytes_per_s, now), link }
    }

    /// Delay of a write by losses: one round trip for each time that all copies were lost.
    fn repeats(&self, bytes: usize) -> Duration {
        let mut rng = rand::rng();
        let mut late = Duration::ZERO;
        for _ in 0..bytes.div_ceil(PACKET_BYTES) {
            while self.link.loss > 0.0 && rng.random_bool(self.link.loss) {
                late += self.link.round_trip.max(Duration::from_millis(1));
            }
        }
        late
    }
}

/// TCP over an emulated link.
pub(crate) fn shaped_tcp(keypair: &Keypair, link: Link) -> Result<Boxed<(PeerId, StreamMuxerBox)>, noise::Error> {
    let lines = Arc::new(Lines::new(link));
    let transport = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    Ok(transport
        .map(move |stream: tcp::tokio::TcpStream, _| {
            let socket = socket2::SockRef::from(&stream.0);
            // If the system ignores this, its buffers hold more than on such a link.
            let _ = socket.set_recv_buffer_size(SOCKET_BYTES).and_then(|()| socket.set_send_buffer_size(SOCKET_BYTES));
            Shaped::new(stream, lines.clone())
        })
        .upgrade(Version::V1Lazy)
        .authenticate(noise::Config::new(keypair)?)
        .multiplex(yamux::Config::default())
        .boxed())
}

/// Bytes that have left on one connection and have not been read on the other side.
struct Backlog {
    bytes: AtomicUsize,
    most: usize,
    space: AtomicWaker,
}

impl Backlog {
    /// The bytes of a round trip, and of the buffer before a line.
    fn of(link: &Link) -> Self {
        let full_ms = (link.round_trip + BEFORE_A_LINE).as_millis() as u64;
        let most = (link.up_bytes_per_s.saturating_mul(full_ms) / 1_000).max(LEAST_IN_FLIGHT_BYTES);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { bytes: AtomicUsize::new(0), most, space: AtomicWaker::new() }
    }

    fn poll_capacity(&self, context: &mut Context<'_>) -> Poll<()> {
        self.space.register(context.waker());
        if self.bytes.load(Ordering::Acquire) < self.most { Poll::Ready(()) } else { Poll::Pending }
    }

    fn left(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn taken(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.space.wake();
    }
}

/// A write in flight, and its time of arrival.
type InFlight = (Instant, Vec<u8>);

/// The bytes of one connection.
pub(crate) struct Shaped<S> {
    inner: ReadHalf<S>,
    lines: Arc<Lines>,
    in_flight: mpsc::Sender<InFlight>,
    backlog: Arc<Backlog>,
    last_arrives: Instant,
    before_writing: Option<Pin<Box<Sleep>>>,
    before_reading: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Shaped<S> {
    #[expect(clippy::disallowed_methods, reason = "an edge: real time, in which bytes really travel")]
    fn new(stream: S, lines: Arc<Lines>) -> Self {
        let (inner, sink) = stream.split();
        let (in_flight, arriving) = mpsc::channel(IN_FLIGHT_WRITES);
        let backlog = Arc::new(Backlog::of(&lines.link));
        tokio::spawn(arrive(arriving, sink, backlog.clone()));
        Self {
            inner,
            lines,
            in_flight,
            backlog,
            last_arrives: Instant::now(),
            before_writing: None,
            before_reading: None,
        }
    }
}

/// Delivers each write at its time, until the connection is dropped or fails.
async fn arrive<S: AsyncWrite + Unpin>(
    mut arriving: mpsc::Receiver<InFlight>,
    mut sink: WriteHalf<S>,
    backlog: Arc<Backlog>,
) {
    while let Some((at, bytes)) = arriving.next().await {
        tokio::time::sleep_until(at.into()).await;
        let written = sink.write_all(&bytes).await.is_ok() && sink.flush().await.is_ok();
        if !written {
            // Wakes the writers that wait for buffer space.
            arriving.close();
        }
        backlog.taken(bytes.len());
        if !written {
            return;
        }
    }
    // The other side may be gone.
    let _ = sink.close().await;
}

fn pause(timer: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> Poll<()> {
    if let Some(sleep) = timer {
        ready!(sleep.as_mut().poll(context));
        *timer = None;
    }
    Poll::Ready(())
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncWrite for Shaped<S> {
    #[expect(clippy::disallowed_methods, reason = "an edge: real time, in which bytes really travel")]
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.backlog.poll_capacity(context));
        loop {
            ready!(pause(&mut this.before_writing, context));
            match this.lines.up.full_for(Instant::now()) {
                Duration::ZERO => break,
                full => this.before_writing = Some(Box::pin(tokio::time::sleep(full))),
            }
        }
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(this.in_flight.poll_ready(context)).map_err(gone)?;
        let taken = &bytes[..bytes.len().min(MOST_BYTES)];
        let passed = this.lines.up.transmit(Instant::now(), taken.len());
        let arrives = passed + this.lines.link.round_trip / 2 + this.lines.repeats(taken.len());
        this.last_arrives = this.last_arrives.max(arrives);
        let in_flight = (this.last_arrives, taken.to_vec());
        this.in_flight.start_send(in_flight).map_err(gone)?;
        this.backlog.left(taken.len());
        Poll::Ready(Ok(taken.len()))
    }

    /// Bytes in flight cannot be flushed earlier.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_flight.close_channel();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Shaped<S> {
    #[expect(clippy::disallowed_methods, reason = "an edge: real time, in which bytes really travel")]
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(pause(&mut this.before_reading, context));
        let most = into.len().min(MOST_BYTES);
        let read = ready!(Pin::new(&mut this.inner).poll_read(context, &mut into[..most]))?;
        let now = Instant::now();
        let passed = this.lines.down.transmit(now, read);
        // Timers have a resolution of one millisecond.
        if passed > now + Duration::from_millis(1) {
            this.before_reading = Some(Box::pin(tokio::time::sleep_until(passed.into())));
        }
        Poll::Ready(Ok(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes_per_s: u64) -> (Line, Instant) {
        let now = Lines::new("1mbit/0ms".parse().unwrap()).up.lock().to_owned();
        (Line::new(bytes_per_s, now), now)
    }

    #[test]
    fn bytes_pass_one_after_the_other_and_a_line_holds_a_tenth_of_a_second() {
        let (line, now) = line(1_000_000);
        assert_eq!(line.transmit(now, 50_000), now + Duration::from_millis(50));
        assert_eq!(line.full_for(now), Duration::ZERO);
        assert_eq!(line.transmit(now, 100_000), now + Duration::from_millis(150), "behind the others");
        assert_eq!(line.full_for(now), Duration::from_millis(50));
        let later = now + Duration::from_secs(1);
        let passed = later + Duration::from_millis(1) - LATE_BY;
        assert_eq!(line.transmit(later, 1_000), passed, "what was not used for longer is gone");
    }

    #[test]
    fn what_is_lost_comes_a_round_trip_later() {
        let link = |text: &str| Lines::new(text.parse().unwrap());
        assert_eq!(link("1mbit/100ms").repeats(1_000_000), Duration::ZERO);
        let late = link("1mbit/100ms/10%").repeats(1_400_000);
        let times = late.as_millis() / 100;
        assert!(late.as_millis() % 100 == 0 && (50..200).contains(&times), "of 1000 packets {times}");
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a second is a second")]
    async fn a_connection_is_as_slow_and_as_long_as_its_link() {
        let (one, mut other) = tokio::io::duplex(1 << 16);
        let began = Instant::now();
        let mut shaped = Shaped::new(Plain(one), Arc::new(Lines::new("10mbit/50ms".parse().unwrap())));
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut other, &mut all).await.map(|_| all)
        });
        let sent: Vec<u8> = (0..125_000u32).map(|at| (at / 3) as u8).collect();
        shaped.write_all(&sent).await.unwrap();
        shaped.close().await.unwrap();
        drop(shaped);
        assert!(reading.await.unwrap().unwrap() == sent);
        assert!(began.elapsed() >= Duration::from_millis(100 + 25), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn no_more_leaves_than_the_link_holds_until_the_other_side_reads() {
        let (one, mut other) = tokio::io::duplex(1 << 10);
        let link: Link = "8mbit/100ms".parse().unwrap();
        let mut shaped = Shaped::new(Plain(one), Arc::new(Lines::new(link)));
        // A megabyte a second: the bytes of 0.2 s, plus one write.
        let most = 200_000 + MOST_BYTES;
        let mut left = 0;
        let hears_nothing = tokio::time::timeout(Duration::from_secs(2), async {
            loop {
                left += shaped.write(&[7; MOST_BYTES]).await.unwrap();
            }
        });
        hears_nothing.await.unwrap_err();
        assert!((200_000..most).contains(&left), "{left}");
        let mut read = vec![0; 100_000];
        tokio::io::AsyncReadExt::read_exact(&mut other, &mut read).await.unwrap();
        assert!(shaped.write(&[7; MOST_BYTES]).await.unwrap() > 0);
        drop(other);
        // Once it is closed, no writer waits forever.
        let gone = async { while shaped.write(&[7; MOST_BYTES]).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    }

    /// tokio's stream with the other traits.
    struct Plain(tokio::io::DuplexStream);

    impl AsyncRead for Plain {
        fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
            let mut buffer = tokio::io::ReadBuf::new(into);
            ready!(tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), context, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().len()))
        }
    }

    impl AsyncWrite for Plain {
        fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.0), context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.0), context)
        }

        fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.0), context)
        }
    }
}
