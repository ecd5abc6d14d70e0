//! The context of one request: each callback is one input.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use warmpath_core::gateway::Gateway;
use warmpath_core::headers::{self, Header, RequestHead, is_routing_control};
use warmpath_core::session::{Ending, Failure, Input};

use crate::shell::Shell;
use crate::{convert, host};

/// One request.
pub(crate) struct Request {
    id: u32,
    /// Absent where the plugin was never configured: then requests pass.
    shell: Option<Rc<Shell>>,
}

impl Request {
    pub(crate) fn new(id: u32, shell: Option<Rc<Shell>>) -> Self {
        Self { id, shell }
    }

    fn group(&self, headers: &[Header]) -> u64 {
        let group = |gateway: &Gateway| headers::group(headers, &gateway.config().group_header);
        self.shell.as_ref().and_then(|shell| shell.look(group)).unwrap_or(0)
    }

    fn drive(&self, input: Input<'_>) -> Action {
        self.shell.as_ref().map_or(Action::Continue, |shell| shell.drive(self.id, input))
    }
}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let headers = host::request_headers();
        // Before anything else, and on every path: nobody but us says where a request goes.
        for (name, _) in headers.iter().filter(|(name, _)| is_routing_control(name)) {
            host::remove_request_header(name);
        }
        let mut head = RequestHead::read(&headers, end_of_stream);
        if head.target.is_ok() {
            head.group = self.group(&headers);
            head.policy = self.shell.as_ref().and_then(|shell| shell.route_policy());
        }
        self.drive(Input::Headers(head))
    }

    fn on_http_request_body(&mut self, bytes: usize, end_of_stream: bool) -> Action {
        self.drive(Input::BodyChunk { bytes, ends: end_of_stream })
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.drive(Input::Trailers)
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let (status, endpoint) = (host::response_status(), host::upstream_address());
        self.drive(Input::AnswerHeaders { status, endpoint, ends: end_of_stream });
        Action::Continue
    }

    fn on_http_response_body(&mut self, bytes: usize, end_of_stream: bool) -> Action {
        let shell = self.shell.as_ref();
        if let Some(window) = shell.and_then(|shell| shell.look(|gateway| gateway.window(self.id))).flatten()
        {
            let head = host::response_chunk_start(bytes, window.head);
            let tail = host::response_chunk_end(bytes, window.tail);
            self.drive(Input::AnswerChunk { head: &head, tail: &tail, ends: end_of_stream });
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.drive(Input::AnswerTrailers);
        Action::Continue
    }

    fn on_log(&mut self) {
        let ending = Ending { flags: host::response_flags(), attempts: host::upstream_attempts() };
        self.drive(Input::Log(ending));
    }
}

impl Context for Request {
    fn on_grpc_call_response(&mut self, _: u32, status: u32, bytes: usize) {
        let input = if status != 0 {
            Input::Failure(Failure::of_grpc_status(status))
        } else {
            match convert::reply(&host::call_answer(bytes)) {
                Some(reply) => Input::Reply(reply),
                None => Input::Failure(Failure::BadReply),
            }
        };
        self.drive(input);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(shell) = &self.shell {
            shell.forget(self.id);
        }
    }
}
