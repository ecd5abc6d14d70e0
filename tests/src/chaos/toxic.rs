//! A TCP proxy between two parts that holds, delays or cuts what passes through it.
//!
//! While it does nothing it is as the part behind it: where that refuses connections, nobody listens here either. So
//! whoever is in front sees a part that is dead as dead, and not as one that takes connections and closes them.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::ports::Port;

/// What befalls a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Toxic {
    /// Nothing passes, and nothing is lost.
    Pause,
    /// Each piece waits so many milliseconds before it passes.
    Latency {
        /// How long.
        ms: u64,
    },
    /// Connections break, and new ones are refused.
    Cut,
}

/// Between two attempts to reach a part that refuses connections.
const RETRY: Duration = Duration::from_millis(20);
/// Of one direction of one connection.
const BUFFER: usize = 64 << 10;

type Toxics = watch::Receiver<Option<Toxic>>;

/// A proxy on a port of its own, for as long as it lives.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    toxic: watch::Sender<Option<Toxic>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one to this address, `ip:port`, which need not be there yet.
    pub fn start(to: &str) -> Result<Self> {
        let port = Port::claim()?;
        let (toxic, toxics) = watch::channel(None);
        let task = tokio::spawn(serve(port.to_string(), to.to_owned(), toxics));
        Ok(Self { port, toxic, task })
    }

    /// Where it listens, `ip:port`.
    pub fn address(&self) -> String {
        self.port.to_string()
    }

    /// Lets this befall every connection through it; none: they pass as they are.
    pub fn set(&self, toxic: Option<Toxic>) {
        self.toxic.send_replace(toxic);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The part behind refused it.
    Refused,
    /// Either side closed it, or it was cut.
    Closed,
}

async fn serve(address: String, to: String, mut toxics: Toxics) {
    let mut connections = JoinSet::new();
    loop {
        let is_cut = *toxics.borrow_and_update() == Some(Toxic::Cut);
        if is_cut {
            connections.shutdown().await;
            if toxics.changed().await.is_err() {
                return;
            }
            continue;
        }
        // Where nobody listens behind, nobody does here.
        if TcpStream::connect(&to).await.is_err() {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        let Ok(listener) = TcpListener::bind(&address).await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        loop {
            tokio::select! {
                changed = toxics.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if *toxics.borrow_and_update() == Some(Toxic::Cut) {
                        break;
                    }
                }
                accepted = listener.accept() => {
                    if let Ok((near, _)) = accepted {
                        connections.spawn(relay(near, to.clone(), toxics.clone()));
                    }
                }
                Some(end) = connections.join_next(), if !connections.is_empty() => {
                    if matches!(end, Ok(End::Refused)) {
                        break;
                    }
                }
            }
        }
    }
}

async fn relay(near: TcpStream, to: String, mut toxics: Toxics) -> End {
    if !passes(&mut toxics).await {
        return End::Closed;
    }
    let Ok(far) = TcpStream::connect(&to).await else { return End::Refused };
    // An error says that it is closed already, which the pumps find out.
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    let ((near_out, near_in), (far_out, far_in)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pump(near_out, far_in, toxics.clone()) => {}
        () = pump(far_out, near_in, toxics) => {}
    }
    End::Closed
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut toxics: Toxics) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !passes(&mut toxics).await || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Waits for as long as data is held back; false: it is cut, or the proxy is gone.
async fn passes(toxics: &mut Toxics) -> bool {
    loop {
        let toxic = *toxics.borrow_and_update();
        match toxic {
            None => return true,
            Some(Toxic::Cut) => return false,
            Some(Toxic::Latency { ms }) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                return true;
            }
            Some(Toxic::Pause) => {
                if toxics.changed().await.is_err() {
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually::{eventually, seen_if};

    /// An echo server, and a proxy to it that listens.
    async fn echo() -> (Proxy, JoinHandle<()>, Port) {
        let port = Port::claim().unwrap();
        let server = tokio::spawn(answer_everything(port.to_string()));
        let proxy = Proxy::start(&port.to_string()).unwrap();
        connected(&proxy).await;
        (proxy, server, port)
    }

    async fn answer_everything(address: String) {
        let listener = TcpListener::bind(address).await.unwrap();
        let mut connections = JoinSet::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut read, mut write) = connection.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
            });
        }
    }

    async fn connected(proxy: &Proxy) -> TcpStream {
        let mut found = None;
        eventually("the proxy listens", async || {
            found = Some(TcpStream::connect(proxy.address()).await?);
            seen_if(true, "")
        })
        .await
        .unwrap();
        found.unwrap()
    }

    async fn refused(proxy: &Proxy) {
        eventually("the proxy refuses", async || {
            seen_if(TcpStream::connect(proxy.address()).await.is_err(), "it listens")
        })
        .await
        .unwrap();
    }

    async fn echoes(connection: &mut TcpStream) -> std::io::Result<()> {
        connection.write_all(b"x").await?;
        connection.read_exact(&mut [0]).await.map(drop)
    }

    #[tokio::test]
    async fn what_is_paused_passes_later_and_what_is_cut_breaks() {
        let (proxy, _server, _) = echo().await;
        let mut connection = connected(&proxy).await;
        echoes(&mut connection).await.unwrap();

        proxy.set(Some(Toxic::Pause));
        connection.write_all(b"x").await.unwrap();
        let held = tokio::time::timeout(Duration::from_millis(100), connection.read_exact(&mut [0])).await;
        assert!(held.is_err(), "nothing passes");
        proxy.set(Some(Toxic::Latency { ms: 5 }));
        connection.read_exact(&mut [0]).await.unwrap();
        echoes(&mut connection).await.unwrap();

        proxy.set(Some(Toxic::Cut));
        assert!(!matches!(connection.read(&mut [0]).await, Ok(1..)));
        refused(&proxy).await;
        proxy.set(None);
        echoes(&mut connected(&proxy).await).await.unwrap();
    }

    #[tokio::test]
    async fn it_refuses_while_the_part_behind_refuses() {
        let (proxy, server, port) = echo().await;
        server.abort();
        drop(server.await);
        refused(&proxy).await;
        let _again = tokio::spawn(answer_everything(port.to_string()));
        echoes(&mut connected(&proxy).await).await.unwrap();
    }
}
