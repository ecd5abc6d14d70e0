//! Servers that belong together.

use super::{Certificates, RedisServer, until};
use crate::mirror::tests::ports::{LOOPBACK, Port};

/// A master and its replica, with three sentinels, the second of which hangs and the third of which is gone.
pub(crate) struct Watched {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) sentinels: Vec<RedisServer>,
    tls: String,
}

/// Three nodes with a third of the slots each.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
    tls: String,
}

/// What is added to the settings of a mirror.
fn tls(certificates: Option<&Certificates>) -> String {
    certificates.map(|certificates| format!(", {}", certificates.settings())).unwrap_or_default()
}

// === impl Watched ===

impl Watched {
    pub(crate) fn start(certificates: Option<&Certificates>) -> Self {
        let start = |lines: &[&str]| RedisServer::start_at(Port::claim().unwrap(), certificates, lines);
        let master = start(&[]);
        let replica = start(&[&format!("replicaof 127.0.0.1 {}", master.port())]);
        let monitor = format!("sentinel monitor main 127.0.0.1 {} 2", master.port());
        let lines = [
            monitor.as_str(),
            "sentinel down-after-milliseconds main 1000",
            "sentinel failover-timeout main 3000",
        ];
        let sentinels: Vec<_> = (0..3).map(|_| RedisServer::sentinel(certificates, &lines)).collect();
        until("the replica follows", || {
            replica.ask(&["info", "replication"]).iter().any(|l| l == "master_link_status:up")
        });
        for sentinel in &sentinels {
            until("the sentinels know all", || {
                let master = sentinel.ask(&["sentinel", "master", "main"]);
                let after = |key: &str| {
                    let at = master.iter().position(|line| line == key)?;
                    master.get(at + 1).cloned()
                };
                (after("num-slaves").as_deref(), after("num-other-sentinels").as_deref())
                    == (Some("1"), Some("2"))
            });
        }
        Self { master, replica, sentinels, tls: tls(certificates) }
    }

    /// Settings of a mirror.
    pub(crate) fn settings(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(|s| format!("\"{}\"", s.address())).collect();
        format!("sentinels: [{}], master: main{}", addresses.join(", "), self.tls)
    }
}

// === impl Cluster ===

impl Cluster {
    pub(crate) fn start(certificates: Option<&Certificates>) -> Self {
        let nodes: Vec<_> = (0..3)
            .map(|_| {
                // The second port is for the nodes among themselves.
                let mut ports = Port::claim_row(LOOPBACK, 2).unwrap();
                let bus = ports.pop().unwrap();
                let lines = ["cluster-enabled yes", &format!("cluster-port {}", bus.number())];
                RedisServer::start_at(ports.pop().unwrap(), certificates, &lines)
            })
            .collect();
        let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(addresses.iter().map(String::as_str));
        create.push("--cluster-yes");
        nodes[0].ask(&create);
        for node in &nodes {
            until("the cluster works", || {
                let info = node.ask(&["cluster", "info"]);
                info.iter().any(|line| line.trim() == "cluster_state:ok")
                    && info.iter().any(|line| line.trim() == "cluster_known_nodes:3")
            });
        }
        Self { nodes, tls: tls(certificates) }
    }

    /// Settings of a mirror: one node is enough to find all.
    pub(crate) fn settings(&self) -> String {
        format!("cluster: [\"{}\"]{}", self.nodes[0].address(), self.tls)
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].ask(&["cluster", "myid"]).remove(0)
    }

    /// The node with the slot of our keys, and the slot.
    pub(crate) fn owner(&self) -> (usize, String) {
        let slot = self.nodes[0].ask(&["cluster", "keyslot", "{warmpath}:secret"]).remove(0);
        let owner = (0..self.nodes.len()).find(|node| {
            let keys = self.nodes[*node].ask(&["dbsize"]).remove(0);
            keys.trim_start_matches("(integer) ") != "0"
        });
        (owner.expect("something is saved"), slot)
    }

    /// Begins to move the slot of our keys to another node, which has none of them yet. Returns whereto.
    pub(crate) fn begin_to_move(&self) -> usize {
        let (from, slot) = self.owner();
        let to = (from + 1) % self.nodes.len();
        self.nodes[to].ask(&["cluster", "setslot", &slot, "importing", &self.id(from)]);
        self.nodes[from].ask(&["cluster", "setslot", &slot, "migrating", &self.id(to)]);
        to
    }

    /// Moves the keys; who asks the old node is sent on, key by key.
    pub(crate) fn move_keys(&self, to: usize) {
        let (from, slot) = ((to + self.nodes.len() - 1) % self.nodes.len(), self.owner().1);
        let keys = self.nodes[from].ask(&["cluster", "getkeysinslot", &slot, "1000"]);
        let port = self.nodes[to].port().to_string();
        let mut migrate = vec!["migrate", "127.0.0.1", &port, "", "0", "5000", "keys"];
        migrate.extend(keys.iter().map(String::as_str));
        self.nodes[from].ask(&migrate);
    }

    /// The slot is the new node's.
    pub(crate) fn end_move(&self, to: usize) {
        let slot = self.owner().1;
        // The new owner first, or the slot would be nobody's for a moment.
        for node in [to, (to + 1) % 3, (to + 2) % 3] {
            self.nodes[node].ask(&["cluster", "setslot", &slot, "node", &self.id(to)]);
        }
    }
}
