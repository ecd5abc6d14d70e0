//! What a worker's contexts share, and the one place where effects become host calls.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use proxy_wasm::types::Action;
use warmpath_core::clock::Monotonic;
use warmpath_core::config::Config;
use warmpath_core::gateway::{Gateway, Tick};
use warmpath_core::headers;
use warmpath_core::outcome::Reason;
use warmpath_core::rank::Policy;
use warmpath_core::session::{Ask, Effect, Failure, Input, Settled};

use crate::metrics::Metrics;
use crate::{convert, host};

/// One worker's gateway, clock and statistics. The proxy calls one callback at a time, so the cells are never borrowed
/// twice; should that change, the request passes unseen rather than trap.
#[derive(Debug)]
pub(crate) struct Shell {
    gateway: RefCell<Gateway>,
    clock: RefCell<Monotonic>,
    metrics: Metrics,
    missing_bodies_told: Cell<bool>,
    wrong_policy_told: Cell<bool>,
}

impl Shell {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            gateway: RefCell::new(Gateway::new(config)),
            clock: RefCell::default(),
            metrics: Metrics::define(),
            missing_bodies_told: Cell::new(false),
            wrong_policy_told: Cell::new(false),
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Reads the gateway.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&Gateway) -> T) -> Option<T> {
        self.gateway.try_borrow().ok().map(|gateway| read(&gateway))
    }

    /// Changes the gateway.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Gateway) -> T) -> Option<T> {
        self.gateway.try_borrow_mut().ok().map(|mut gateway| change(&mut gateway))
    }

    pub(crate) fn tick(&self) -> Tick {
        let now_us = self.now_us();
        self.change(|gateway| gateway.tick(now_us)).unwrap_or_default()
    }

    pub(crate) fn forget(&self, id: u32) {
        let now_us = self.now_us();
        self.change(|gateway| gateway.forget(id, now_us));
    }

    /// Something happened to the request of context `id`, which is the effective one: does what follows from it.
    pub(crate) fn drive(&self, id: u32, input: Input<'_>) -> Action {
        let now_us = self.now_us();
        let effects = self.change(|gateway| gateway.step(id, input, now_us)).unwrap_or_default();
        self.apply(id, effects)
    }

    /// Applies effects in the context `id`, which is the effective one. Follow-ups nest three deep at most: read the body,
    /// ask, tell how asking went.
    pub(crate) fn apply(&self, id: u32, effects: Vec<Effect<'_>>) -> Action {
        let mut action = Action::Continue;
        for effect in effects {
            match effect {
                Effect::Hold => action = Action::Pause,
                Effect::ReadBody(bytes) => {
                    let body = host::request_body(bytes);
                    action = self.drive(id, Input::Body(&body));
                }
                Effect::Ask(ask) => action = self.ask(id, *ask),
                Effect::Cancel(call) => host::cancel_call(call),
                Effect::Route(route) => {
                    host::set_request_header(headers::DESTINATION, &route.destination);
                    if let Some(rank) = route.rank {
                        host::set_request_header(headers::RANK, &rank.to_string());
                    }
                }
                Effect::Settled(settled) => self.settled(settled),
                Effect::Resume => host::resume_request(),
                Effect::Receipt(receipt) => {
                    receipt.iter().for_each(|(name, value)| host::set_response_header(name, value));
                }
            }
        }
        action
    }

    /// The ranking policy that the request's route names in its metadata, if it names one.
    pub(crate) fn route_policy(&self) -> Option<&'static str> {
        let name = host::route_policy()?;
        let policy = headers::route_policy(&name);
        if policy.is_none() && !self.wrong_policy_told.replace(true) {
            log::error!(
                "a route's metadata names the policy {:?}, which there is not; such routes use the configured one. There are {}",
                String::from_utf8_lossy(&name),
                Policy::NAMES.join(", ")
            );
        }
        policy
    }

    fn ask(&self, id: u32, ask: Ask<'_>) -> Action {
        let timeout = Duration::from_micros(ask.timeout_us);
        let upstream = self.look(|gateway| gateway.config().upstream.clone()).unwrap_or_default();
        let message = convert::score_request(ask);
        match host::call(&upstream, host::Method::Score, &message, timeout) {
            Some(call) => self.drive(id, Input::Asked(call)),
            None => self.drive(id, Input::Failure(Failure::Unavailable)),
        }
    }

    fn settled(&self, settled: Settled) {
        self.metrics.settled(settled);
        log::debug!(
            "outcome={} reason={} added_us={:?}",
            settled.outcome.name(),
            settled.reason.map_or("none", Reason::name),
            settled.added_us
        );
        if settled.reason == Some(Reason::BodyNotSeen) && !self.missing_bodies_told.replace(true) {
            log::error!(
                "a request body did not begin: if no request is scored, set allow_on_headers_stop_iteration: true \
                 in the plugin's configuration (Envoy 1.35 or newer)"
            );
        }
    }

    fn now_us(&self) -> u64 {
        let wall_us = host::wall_us();
        self.clock.try_borrow_mut().map_or(wall_us, |mut clock| clock.read(wall_us))
    }
}
