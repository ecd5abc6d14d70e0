//! The root context of a worker: configuration, ticks, reports.
//!
//! The proxy makes one for each worker and one on its main thread, which has ticks but never a request.

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use warmpath_core::config::Config;
use warmpath_core::followed::Astray;
use warmpath_core::headers;
use warmpath_core::limits::{FOLLOWED_WINDOW, REPORT_TIMEOUT_MS};
use warmpath_core::report::Event;
use warmpath_core::session::Failure;

use crate::http::Request;
use crate::shell::Shell;
use crate::{convert, host};

/// A worker.
pub(crate) struct Root {
    id: u32,
    /// Absent until a configuration was accepted.
    shell: Option<Rc<Shell>>,
    /// The report call that is running.
    call: Option<u32>,
    pending_shown: i64,
    open_shown: bool,
    astray_shown: bool,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, shell: None, call: None, pending_shown: 0, open_shown: false, astray_shown: false }
    }

    fn report(&mut self, shell: &Shell, events: Vec<Event>) {
        let upstream = shell.look(|gateway| gateway.config().upstream.clone()).unwrap_or_default();
        let message = convert::report_request(events);
        let timeout = Duration::from_millis(REPORT_TIMEOUT_MS);
        self.call = host::call(&upstream, host::Method::Report, &message, timeout);
        if self.call.is_none() {
            self.report_failed(shell);
        }
    }

    fn report_failed(&mut self, shell: &Shell) {
        self.call = None;
        shell.metrics().report_failed();
        shell.change(|gateway| gateway.report_failed());
    }

    /// Says when the proxy sends requests elsewhere: then what is decided has no effect.
    fn show_astray(&mut self, shell: &Shell) {
        let Some(astray) = shell.look(|gateway| gateway.worker().followed.verdict().cloned()) else { return };
        if astray.is_some() != self.astray_shown {
            self.astray_shown = astray.is_some();
            match astray {
                Some(Astray { requests, named, served_by }) => log::error!(
                    "of {FOLLOWED_WINDOW} decided requests {requests} were served by other endpoints: the last one was for \
                     {named} and was served by {served_by}. The cluster's override_host must read the header {}, its \
                     hosts must be ip:port as the indexer's endpoints are, and the route must lead into that cluster",
                    headers::DESTINATION
                ),
                None => log::info!("requests go where they should again"),
            }
        }
    }

    /// Brings the gauges of the proxy up to date, and says when the indexer is lost and found.
    fn show(&mut self, shell: &Shell) {
        self.show_astray(shell);
        let Some((pending, open)) =
            shell.look(|gateway| (gateway.pending() as i64, gateway.worker().circuit.is_open()))
        else {
            return;
        };
        shell.metrics().pending_changed(pending - self.pending_shown);
        self.pending_shown = pending;
        if open != self.open_shown {
            self.open_shown = open;
            shell.metrics().circuit_changed(open);
            if open {
                let cluster = shell.look(|gateway| gateway.config().cluster.clone()).unwrap_or_default();
                log::warn!(
                    "no indexer answers: requests go by the filter's own hashing until one does. It is asked through the \
                     cluster {cluster:?}, which needs http2_protocol_options"
                );
            } else {
                log::info!("an indexer answers again");
            }
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, bytes: usize) -> bool {
        host::follow_log_level();
        match Config::read(&host::plugin_configuration(bytes)) {
            Ok(config) => {
                log::info!("warmpath {} configured: {config:?}", env!("CARGO_PKG_VERSION"));
                host::set_tick_period(config.tick_ms);
                self.shell = Some(Rc::new(Shell::new(config)));
                true
            }
            Err(error) => {
                log::error!("{error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        let Some(shell) = self.shell.clone() else { return };
        let tick = shell.tick();
        for (id, effects) in tick.woken {
            if host::enter(id) {
                shell.apply(id, effects);
            }
        }
        host::enter(self.id);
        shell.metrics().dropped(tick.reports_dropped);
        shell.metrics().astray(tick.astray);
        if tick.cancel_report {
            shell.metrics().report_failed();
            if let Some(call) = self.call.take() {
                host::cancel_call(call);
            }
        }
        if let Some(events) = tick.report {
            self.report(&shell, events);
        }
        self.show(&shell);
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Request::new(id, self.shell.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// What this worker added to the gauges goes with it.
impl Drop for Root {
    fn drop(&mut self) {
        if let Some(shell) = &self.shell {
            shell.metrics().pending_changed(-self.pending_shown);
            if self.open_shown {
                shell.metrics().circuit_changed(false);
            }
        }
    }
}

impl Context for Root {
    fn on_grpc_call_response(&mut self, call: u32, status: u32, _: usize) {
        let Some(shell) = self.shell.clone() else { return };
        if self.call != Some(call) {
            return;
        }
        let refused = status != 0 && Failure::of_grpc_status(status) == Failure::Rejected;
        if status != 0 && !refused {
            self.report_failed(&shell);
            return;
        }
        self.call = None;
        if refused {
            log::warn!("the indexer refuses a report as invalid: are filter and indexer of one version?");
            shell.metrics().report_failed();
        }
        let events = shell.change(|gateway| gateway.report_done()).unwrap_or(0);
        if !refused {
            shell.metrics().reported(events);
        }
    }
}
