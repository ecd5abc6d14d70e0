//! The event socket of an engine: publishes what a test says, in the encoding of arrays.

use rmpv::Value;

/// Tokens in a block.
pub(crate) const BLOCK: u32 = 16;

/// A publisher that numbers its batches from 0, as an engine does.
pub(crate) struct Engine {
    socket: zmq::Socket,
    /// `tcp://…`.
    pub(crate) events: String,
    next: u64,
    is_heard: bool,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let socket = zmq::Context::new().socket(zmq::XPUB).unwrap();
        socket.set_rcvtimeo(20_000).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let events = socket.get_last_endpoint().unwrap().unwrap();
        Self { socket, events, next: 0, is_heard: false }
    }

    /// Publishes that the blocks of a prompt of these ids are stored; the hash of a block is the number of its end.
    pub(crate) fn store(&mut self, ids: std::ops::Range<u32>) {
        self.store_with(None, ids);
    }

    /// The same, computed with an adapter.
    pub(crate) fn store_with(&mut self, adapter: Option<&str>, ids: std::ops::Range<u32>) {
        let blocks = (ids.end - ids.start) / BLOCK;
        let tokens = ids.start..ids.start + blocks * BLOCK;
        let hashes = (1..=blocks).map(|block| Value::from(ids.start + block * BLOCK)).collect();
        let mut event = vec![
            "BlockStored".into(),
            Value::Array(hashes),
            Value::Nil,
            Value::Array(tokens.map(Value::from).collect()),
            BLOCK.into(),
        ];
        match adapter {
            None => event.push(Value::Nil),
            Some(name) => {
                let extras = Value::Array(vec![Value::Array(vec![name.into()]); blocks as usize]);
                event.extend([1.into(), "GPU".into(), name.into(), extras]);
            }
        }
        self.publish(Value::Array(event));
    }

    /// Publishes that blocks of these ids are stored behind the block `parent`, in a medium.
    pub(crate) fn store_behind(
        &mut self,
        parent: u64,
        hashes: &[u64],
        ids: std::ops::Range<u32>,
        medium: &str,
    ) {
        let hashes = Value::Array(hashes.iter().map(|hash| Value::from(*hash)).collect());
        let tokens = Value::Array(ids.map(Value::from).collect());
        let event = vec![
            "BlockStored".into(),
            hashes,
            parent.into(),
            tokens,
            BLOCK.into(),
            Value::Nil,
            medium.into(),
        ];
        self.publish(Value::Array(event));
    }

    /// The same in the main pool, computed with an adapter.
    pub(crate) fn store_behind_with(
        &mut self,
        adapter: &str,
        parent: u64,
        hashes: &[u64],
        ids: std::ops::Range<u32>,
    ) {
        let extras = Value::Array(vec![Value::Array(vec![adapter.into()]); hashes.len()]);
        let event = vec![
            "BlockStored".into(),
            Value::Array(hashes.iter().map(|hash| Value::from(*hash)).collect()),
            parent.into(),
            Value::Array(ids.map(Value::from).collect()),
            BLOCK.into(),
            1.into(),
            "GPU".into(),
            adapter.into(),
            extras,
        ];
        self.publish(Value::Array(event));
    }

    /// Publishes that a block was copied to the host's memory.
    pub(crate) fn offload(&mut self, hash: u32) {
        let hashes = Value::Array(vec![hash.into()]);
        let tokens = Value::Array(Vec::new());
        let event =
            vec!["BlockStored".into(), hashes, Value::Nil, tokens, 0.into(), Value::Nil, "CPU".into()];
        self.publish(Value::Array(event));
    }

    pub(crate) fn clear(&mut self) {
        self.publish(Value::Array(vec!["AllBlocksCleared".into()]));
    }

    /// What is published before the subscription has arrived is lost, and nothing would ever tell so here.
    fn publish(&mut self, event: Value) {
        if !self.is_heard {
            assert_eq!(self.socket.recv_bytes(0).unwrap(), [1], "a subscription to every topic");
            self.is_heard = true;
        }
        let batch = Value::Array(vec![1_700_000_000.5.into(), Value::Array(vec![event])]);
        let mut payload = Vec::new();
        rmpv::encode::write_value(&mut payload, &batch).unwrap();
        self.socket.send_multipart([b"".as_slice(), &self.next.to_be_bytes(), &payload], 0).unwrap();
        self.next += 1;
    }
}
