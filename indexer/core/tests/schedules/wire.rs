//! The sockets of one stream, with everything that can befall what is on its way.

use std::collections::VecDeque;

use crate::engine::{Answer, Message};

/// News of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Connected,
    Disconnected,
}

/// What waits at the subscriber's side.
#[derive(Default)]
pub(crate) struct Wire {
    /// Told, but not read.
    pub(crate) news: VecDeque<News>,
    /// On the event socket.
    pub(crate) messages: VecDeque<Message>,
    /// On the replay socket of the client with this number.
    pub(crate) answers: VecDeque<(u64, Answer)>,
    /// The client whose question was asked last; `None`: it was given up.
    pub(crate) client: Option<u64>,
    clients: u64,
    /// Whether the event socket is connected now, whatever was read of it.
    pub(crate) is_connected: bool,
    /// Number of the last batch read on this connection.
    pub(crate) last_read: Option<u64>,
}

// === impl Wire ===

impl Wire {
    pub(crate) fn connect(&mut self) {
        self.is_connected = true;
        self.news.push_back(News::Connected);
    }

    /// What was received stays to be read until the news is.
    pub(crate) fn disconnect(&mut self) {
        if std::mem::take(&mut self.is_connected) {
            self.news.push_back(News::Disconnected);
        }
    }

    /// A new client asks; the one before has its socket closed.
    pub(crate) fn ask(&mut self) -> u64 {
        self.clients += 1;
        self.client = Some(self.clients);
        self.clients
    }
}
