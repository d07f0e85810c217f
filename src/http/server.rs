//! Serves a router on a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::failpoints::failpoint;
use crate::survival::ended;

/// Headers and the line of a request have room in this, or it is refused (431).
const HEADER_BYTES: usize = 32 << 10;
/// After this, a connection whose accepting failed is tried again: there may be no descriptors left.
const ACCEPT_AGAIN_MS: u64 = 100;
/// What is under way when the server stops has this time to end.
const GRACE_MS: u64 = 2_000;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections. Further ones wait in the system's queue.
    pub connections: usize,
    /// Open connections from one IP address that is not this machine's. Further ones are closed.
    pub connections_per_ip: usize,
    /// A larger body is refused (413).
    pub body_bytes: usize,
    /// From a connection, or the end of an answer, to the end of the next request's headers.
    pub header_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, connections_per_ip: 64, body_bytes: 64 << 10, header_timeout_ms: 10_000 }
    }
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `router` on `listener` until the handle is dropped. Handlers run on one thread, apart from the caller's tasks,
    /// and find the client's address in [`ConnectInfo`].
    ///
    /// # Errors
    /// The system gives no thread, or the listener cannot be read from.
    pub fn start(listener: TcpListener, router: Router, limits: Limits) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let router = router.layer(DefaultBodyLimit::max(limits.body_bytes));
        let run = move || {
            runtime.block_on(async move {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => accept(listener, router, limits, stopped).await,
                    Err(error) => tracing::error!("the HTTP server on {address} cannot listen: {error}"),
                }
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(run)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP server on {} has panicked", self.address);
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, router: Router, limits: Limits, mut stopped: oneshot::Receiver<()>) {
    let open = GracefulShutdown::new();
    // Connections that outlive a panic hold their places.
    let (places, by_ip) = (Arc::new(Semaphore::new(limits.connections)), ByIp::default());
    let held = (&places, &by_ip);
    while !ended(accept_until(&mut stopped, &listener, &router, limits, &open, held)).await {}
    drop(listener);
    if tokio::time::timeout(Duration::from_millis(GRACE_MS), open.shutdown()).await.is_err() {
        tracing::debug!("HTTP connections were cut off at the end");
    }
}

async fn accept_until(
    stopped: &mut oneshot::Receiver<()>,
    listener: &tokio::net::TcpListener,
    router: &Router,
    limits: Limits,
    open: &GracefulShutdown,
    (places, by_ip): (&Arc<Semaphore>, &ByIp),
) {
    loop {
        let next = async {
            let place = Arc::clone(places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            _ = &mut *stopped => return,
            next = next => next,
        };
        failpoint("http");
        match (place, accepted) {
            (Ok(place), Ok((stream, client))) => {
                if let Some(counted) = by_ip.count(client.ip(), limits.connections_per_ip) {
                    serve(stream, client, router.clone(), limits, open, (place, counted));
                }
            }
            (_, Err(error)) => {
                tracing::debug!("an HTTP connection failed: {error}");
                tokio::time::sleep(Duration::from_millis(ACCEPT_AGAIN_MS)).await;
            }
            (Err(_), _) => return,
        }
    }
}

/// What a connection holds while it is open.
type Held = (OwnedSemaphorePermit, CountedIp);

fn serve(stream: TcpStream, client: SocketAddr, router: Router, limits: Limits, open: &GracefulShutdown, held: Held) {
    let router = router.layer(axum::Extension(ConnectInfo(client)));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.header_timeout_ms))
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let connection = open.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("an HTTP connection of {client} ended: {error}");
        }
        drop(held);
    });
}

/// Open connections by IP address.
#[derive(Clone, Debug, Default)]
struct ByIp(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One connection that is counted until this is dropped.
#[derive(Debug)]
struct CountedIp {
    ip: IpAddr,
    all: ByIp,
}

impl ByIp {
    /// Counts a connection of `ip`, or says that it has too many. This machine's own are not limited.
    fn count(&self, ip: IpAddr, most: usize) -> Option<CountedIp> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(ip).or_default();
        if *count >= most && !ip.to_canonical().is_loopback() {
            return None;
        }
        *count += 1;
        Some(CountedIp { ip, all: self.clone() })
    }
}

impl Drop for CountedIp {
    fn drop(&mut self) {
        let mut open = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_elsewhere_has_a_share_of_the_connections() {
        let (all, near, far) = (ByIp::default(), IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 1]));
        let held: Vec<_> = (0..2).map(|_| all.count(far, 2).unwrap()).collect();
        assert!(all.count(far, 2).is_none() && all.count(IpAddr::from([192, 0, 2, 2]), 2).is_some());
        assert!((0..3).map(|_| all.count(near, 2)).collect::<Vec<_>>().iter().all(Option::is_some));
        drop(held);
        assert!(all.count(far, 2).is_some() && all.0.lock().unwrap().is_empty());
    }
}
