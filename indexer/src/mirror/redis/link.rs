//! One connection that is made when it is needed, dropped when it fails, and made anew after a pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{Cmd, FromRedisValue};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::super::store::StoreError;
use super::access::RedisAccess;
use super::backoff::Backoff;
use super::connect::{Connection, connect};

/// Attempts to connect are longer than commands: the server has to be found, then TLS, user and database follow.
const CONNECT_TIMEOUTS: u32 = 2;

/// Clones share the connection.
#[derive(Clone)]
pub(super) struct Link {
    access: Arc<RedisAccess>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// With the number of its making.
    connected: Option<(u64, Connection)>,
    made: u64,
    backoff: Backoff,
    /// Why it was last given up.
    last: Option<&'static str>,
}

// === impl Link ===

impl Link {
    pub(super) fn new(access: RedisAccess) -> Self {
        Self { access: Arc::new(access), state: Arc::default() }
    }

    /// Sends a command and reads its answer, connecting first where that must be. Ends within
    /// [`CONNECT_TIMEOUTS`] + 1 times the time of a command.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let (number, mut connection) = self.connection().await?;
        let limit = self.access.timeout();
        let asked = async {
            match &mut connection {
                Connection::Server(server) => command.query_async(server).await,
                Connection::Cluster(cluster) => command.query_async(cluster).await,
            }
        };
        let answer = match timeout(limit, asked).await {
            Ok(answer) => answer.map_err(StoreError::from),
            Err(_) => Err(StoreError::Late(limit)),
        };
        let mut state = self.state.lock().await;
        match &answer {
            Err(error) if error.is_of_the_connection() => state.give_up(Some(number), error.reason()),
            _ => state.backoff.worked(),
        }
        answer
    }

    async fn connection(&self) -> Result<(u64, Connection), StoreError> {
        let mut state = self.state.lock().await;
        if let Some((number, connection)) = &state.connected {
            return Ok((*number, connection.clone()));
        }
        if let (Some(pause), Some(reason)) = (state.backoff.remaining(Instant::now()), state.last) {
            return Err(StoreError::Waiting { pause, reason });
        }
        let limit: Duration = self.access.timeout() * CONNECT_TIMEOUTS;
        // Who asks meanwhile waits for this attempt and makes none of its own.
        let made = match timeout(limit, connect(&self.access)).await {
            Ok(made) => made,
            Err(_) => Err(StoreError::Late(limit)),
        };
        match made {
            Ok(connection) => {
                state.made += 1;
                let made = (state.made, connection);
                state.connected = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                state.give_up(None, error.reason());
                Err(error)
            }
        }
    }
}

// === impl State ===

impl State {
    /// `number`: of the connection that failed. One that was made after it stays.
    fn give_up(&mut self, number: Option<u64>, reason: &'static str) {
        if number == self.connected.as_ref().map(|(number, _)| *number) {
            self.connected = None;
            self.backoff.failed(Instant::now());
            self.last = Some(reason);
        }
    }
}
