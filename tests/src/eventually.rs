//! Waiting for what must become true, without guessing how long it takes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Long enough for a busy machine; nobody waits it out where things work.
pub const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// What a look found.
pub enum Look<T> {
    /// It holds.
    Seen(T),
    /// Not yet; the words say what is there instead.
    NotYet(String),
    /// And it never will.
    Never(String),
}

/// Looks again and again until `look` has seen it. The error says what was there at the last look.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Look<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        let last = match look().await {
            Ok(Look::Seen(value)) => return Ok(value),
            Ok(Look::NotYet(instead)) => instead,
            Ok(Look::Never(why)) => bail!("never: {what}; {why}"),
            Err(error) => format!("{error:#}"),
        };
        if begun.elapsed() > PATIENCE {
            bail!("after {} s, still not: {what}; instead: {last}", PATIENCE.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Seen where `holds`; the words tell what is there otherwise.
pub fn seen_if(holds: bool, instead: impl Into<String>) -> Result<Look<()>> {
    Ok(if holds { Look::Seen(()) } else { Look::NotYet(instead.into()) })
}
