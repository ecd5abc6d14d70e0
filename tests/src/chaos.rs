//! Random faults from a seed, under constant load, in everything at once: indexers, engines, Redis, Envoy, and the ways
//! between them.
//!
//! ```text
//! seed ─▶ Schedule ─▶ Driver ─▶ Site ◀─ Traffic ─▶ Sent ─▶ blame
//!                                 │                          │
//!                                 └────▶ after ─▶ Report ◀───┘
//! ```
//!
//! What must hold: no request fails but those that their engine took along, and when all is undone the index is exact,
//! nothing is reserved, nobody panicked, and nothing has grown.
//!
//! Each process has a machine of its own: its clock jumps alone, as do clocks of machines that disagree, and its disk is
//! full while others have room.
//!
//! Not among the faults: a killed Envoy, whose clients see it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

mod after;
pub mod blame;
mod driver;
pub mod fault;
pub mod proc;
pub mod report;
pub mod schedule;
pub mod site;
pub mod toxic;
pub mod traffic;

use driver::Driver;
use report::Report;
use schedule::Schedule;
use site::{Site, Size};
use traffic::Traffic;

/// Of engines that take prompts as token ids only.
const MODEL: &str = "tiny";

/// Plays the schedule. `dir` takes logs and configurations, and must be there. An error says that it could not be played;
/// what went wrong in it is in the report.
pub async fn run(schedule: Schedule, rate: f64, dir: &Path) -> Result<Report> {
    let size = Size {
        indexers: schedule.indexers,
        engines: schedule.engines,
        timeout_ms: None,
        machines: Some(schedule.redis_keeps),
    };
    let mut site = Site::start(size, dir).await?;
    let first = after::holdings(&mut site)?;
    let length = Duration::from_millis(schedule.length_ms);
    let traffic = Traffic { rate, length, seed: schedule.seed };
    let (client, address) = (site.client.clone(), site.envoy.address());
    let begun = Instant::now();
    let driver = Driver::new(&mut site, &schedule, begun);
    let (sent, outages) = tokio::join!(traffic.run(&client, &address, begun), driver.play());
    let (sent, outages) = (sent?, outages?);
    let seen = after::check(&mut site, &first, begun.elapsed().as_secs()).await?;
    Ok(Report {
        audited: seen.audited,
        holdings: first.into_iter().zip(seen.holdings).collect(),
        log_lines: seen.log_lines,
        complaints: seen.complaints,
        ..Report::of(schedule, outages, &sent)
    })
}
