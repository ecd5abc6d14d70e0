//! A way to a server on which every message takes its time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Gone, with its connections, when it is dropped.
pub(super) struct SlowWay {
    pub(super) address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

// === impl SlowWay ===

impl SlowWay {
    /// To this address, with `delay_ms` added in each direction.
    pub(super) async fn to(server: String, delay_ms: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let delay_ms = Arc::new(AtomicU64::new(delay_ms));
        let (mut tasks, delay) = (JoinSet::new(), delay_ms.clone());
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                ways.spawn(carry(from_client, to_server, delay.clone()));
                ways.spawn(carry(from_server, to_client, delay.clone()));
            }
        });
        Self { address, delay_ms, _tasks: tasks }
    }

    pub(super) fn set_delay_ms(&self, delay_ms: u64) {
        self.delay_ms.store(delay_ms, Ordering::Relaxed);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay_ms: Arc<AtomicU64>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed))).await;
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
