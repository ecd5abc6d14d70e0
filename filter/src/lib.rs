//! The Envoy proxy-wasm filter: a thin shell around `warmpath-core`.
//!
//! Callbacks become inputs of the [`warmpath_core::gateway::Gateway`], its effects become host calls; nothing is decided
//! here. The shell must not trap: a trap leaves requests hanging. So host calls go through [`host`] only, which turns
//! every failure into an absent value.

mod convert;
mod host;
mod http;
mod metrics;
mod root;
mod shell;

// The entry point, which the proxy calls once per VM.
proxy_wasm::main! {{
    // This target has no stderr: without the hook a panic would leave nothing but "unreachable" in the log.
    std::panic::set_hook(Box::new(|info| host::log_panic(&info.to_string())));
    proxy_wasm::set_root_context(|id| Box::new(root::Root::new(id)));
}}
