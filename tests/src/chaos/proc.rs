//! What a process holds, as Linux tells it.

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Holdings {
    /// Resident memory, in MiB.
    pub rss_mib: u64,
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: u64,
}

/// Memory that a process may have more at the end than when it was ready, in MiB.
const RSS_MIB_MORE: u64 = 96;
/// Descriptors: connections of gateways, peers and probes that are not closed yet.
const DESCRIPTORS_MORE: usize = 32;
/// The pool for what blocks grows with the load, and ends its threads after some seconds of rest.
const THREADS_MORE: u64 = 32;

// === impl Holdings ===

impl Holdings {
    /// Of the process of this id.
    pub fn of(id: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("the process is gone")?;
        let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).context("the process is gone")?.count();
        Ok(Self {
            rss_mib: field(&status, "VmRSS:").context("no VmRSS")? / 1024,
            descriptors,
            threads: field(&status, "Threads:").context("no Threads")?,
        })
    }

    /// What there is too much of, against what it held at first.
    pub fn leaks(&self, first: &Self) -> Vec<String> {
        let mut leaks = Vec::new();
        let mut check = |what: &str, now: u64, first: u64, more: u64| {
            if now > first + more {
                leaks.push(format!("{what}: {now}, at first {first}"));
            }
        };
        check("MiB of memory", self.rss_mib, first.rss_mib, RSS_MIB_MORE);
        check("descriptors", self.descriptors as u64, first.descriptors as u64, DESCRIPTORS_MORE as u64);
        check("threads", self.threads, first.threads, THREADS_MORE);
        leaks
    }
}

/// The number after a name, without its unit.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_holds_something_and_leaks_where_it_holds_much_more() {
        let own = Holdings::of(std::process::id()).unwrap();
        assert!(own.rss_mib > 0 && own.descriptors > 2 && own.threads > 0, "{own:?}");
        assert_eq!(own.leaks(&own), Vec::<String>::new());
        let less = Holdings { rss_mib: 0, descriptors: own.descriptors, threads: own.threads };
        let more = Holdings { rss_mib: RSS_MIB_MORE + 1, descriptors: own.descriptors + 99, ..own };
        assert_eq!(more.leaks(&less).len(), 2);
        assert!(Holdings::of(0).is_err());
    }
}
