//! One emulated rank under comparison.

use std::time::Duration;

use engine_emulator::core::{Counters, Engine, EngineConfig, KvEvent, Request, RequestId, Seed, Timing};
use engine_emulator::{Encoder, HashForm, VllmVersion};

use crate::Recording;
use crate::capture::{Fed, Start};
use crate::events::{self, Event, Ordinals};

pub(crate) struct Replica {
    engine: Engine,
    encoder: Encoder,
    rank: u32,
    now: Duration,
    next: u64,
    /// Published and not yet compared.
    published: Vec<Vec<KvEvent>>,
    ours: Ordinals,
    theirs: Ordinals,
}

impl Replica {
    pub(crate) fn new(recording: &Recording, version: VllmVersion, rank: u32) -> Self {
        let hashes = if recording.byte_hashes { HashForm::Bytes } else { HashForm::Integers };
        let config = EngineConfig {
            block_size: recording.block_size,
            blocks: recording.blocks,
            max_batched_tokens: 2048,
            max_seqs: 8,
            max_model_len: 2048,
            timing: Timing::CALIBRATED,
            seed: Seed::from_text("fidelity"),
            reuses_empty_first: version.reuses_empty_first(),
        };
        Self {
            engine: Engine::new(config),
            encoder: Encoder::new(version, hashes),
            rank,
            now: Duration::ZERO,
            next: 0,
            published: Vec::new(),
            ours: Ordinals::default(),
            theirs: Ordinals::default(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.engine.summary().counters
    }

    /// Serves requests that come at the same moment, until idle.
    pub(crate) fn serve(&mut self, requests: &[Fed]) {
        for request in requests {
            self.submit(request);
        }
        self.run();
    }

    /// Serves groups of requests, each at its moment, until idle.
    pub(crate) fn serve_staggered(&mut self, groups: &[(Start, Vec<Fed>)]) {
        for (start, requests) in groups {
            match start {
                Start::Idle => self.run(),
                Start::DuringStep => self.step(),
            }
            requests.iter().for_each(|request| self.submit(request));
        }
        self.run();
    }

    pub(crate) fn reset(&mut self) {
        assert!(self.engine.reset_prefix_cache(), "an idle cache can be reset");
    }

    /// Starts a request, and tries a reset once it has published that many messages: it must fail.
    pub(crate) fn reset_under(&mut self, request: &Fed, messages: usize) {
        self.submit(request);
        while self.published.len() < messages {
            self.step();
        }
        assert!(!self.engine.reset_prefix_cache(), "a cache in use cannot be reset");
    }

    /// Runs until idle.
    pub(crate) fn run(&mut self) {
        while self.engine.next_wake().is_some() {
            self.step();
        }
    }

    /// Compares the events published since the last call with recorded messages. The order must be the same; where one
    /// message ends and the next begins may differ.
    pub(crate) fn compare(&mut self, recorded: &[Vec<Event>]) -> Result<(), String> {
        let payloads =
            self.published.drain(..).map(|events| self.encoder.payload(0.0, &events, Some(self.rank)));
        let ours: Vec<Event> = payloads.flat_map(|payload| events::decode(&payload)).collect();
        let ours: Vec<Event> = ours.iter().map(|event| self.ours.normalise(event)).collect();
        let theirs: Vec<Event> =
            recorded.iter().flatten().map(|event| self.theirs.normalise(event)).collect();
        let same = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
        let show = |events: &[Event]| events.get(same).map_or("nothing more".to_owned(), ToString::to_string);
        if same < ours.len().max(theirs.len()) {
            return Err(format!("event {same}: recorded {}, emulated {}", show(&theirs), show(&ours)));
        }
        Ok(())
    }

    fn submit(&mut self, fed: &Fed) {
        let id = RequestId(self.next);
        self.next += 1;
        let request = Request {
            salt: fed.salt.clone(),
            lora: fed.lora.clone(),
            embeds: fed.embeds.clone(),
            session: fed.session.clone(),
            reads_cache: !fed.skips_cache,
            reports_hits: fed.reports_hits,
            ..Request::new(id, self.now, fed.prompt.clone(), fed.output.clone())
        };
        self.engine.submit(request).expect("recorded requests fit");
    }

    fn step(&mut self) {
        self.now = self.engine.next_wake().expect("there is work");
        let effects = self.engine.step(self.now);
        self.published.extend(effects.batches.into_iter().map(|batch| batch.events));
    }
}
