//! A filter whose VM dies does not take requests with it. Ours does not die, so these cases run modules that do, with
//! the bootstrap's failure policy.

use std::time::Duration;

use warmpath_tests::case::case_that_leaves;
use warmpath_tests::prompts::completion;
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{AfterCase, Stack};

const WORKERS: usize = 2;
/// Longest that any request may take on a busy machine. One that is held for good takes minutes.
const PATIENCE: Duration = Duration::from_secs(20);

// E6 (envoyproxy/envoy#38801), E2 (nginx/nginx-gateway-fabric#5420)
#[test]
fn a_vm_that_dies_on_headers_costs_each_worker_one_request() {
    dies_in(Callback::RequestHeaders);
}

// E6 (envoyproxy/envoy#38801)
#[test]
fn a_vm_that_dies_on_a_body_costs_each_worker_one_request() {
    dies_in(Callback::RequestBody);
}

// E2 (nginx/nginx-gateway-fabric#5420)
#[test]
fn where_the_bootstrap_says_so_a_dead_vm_lets_nothing_pass() {
    let left = AfterCase { vm_may_die: true, ..AfterCase::default() };
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(1).indexers(0).workers(1).module(module(Callback::RequestHeaders));
        stack.bootstrap(|bootstrap| {
            bootstrap.plugin()?["failure_policy"] = "FAIL_CLOSED".into();
            Ok(())
        })
    });
    case_that_leaves(left, stack, async |stack| {
        for _ in 0..10 {
            let answer = stack.send(completion("hello").header("connection", "close")).await?;
            assert_eq!(answer.status, 503);
        }
        assert!(stack.recorders[0].take().is_empty());
        Ok(())
    });
}

// E6 (envoyproxy/envoy#38801)
#[test]
fn a_vm_that_dies_on_an_answer_costs_each_worker_one_request_at_most() {
    dies_in(Callback::GrpcAnswer);
}

fn dies_in(callback: Callback) {
    let left = AfterCase { vm_may_die: true, ..AfterCase::default() };
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(1).script(Script::Rank(Vec::new())).workers(WORKERS);
        stack.module(module(callback)).bootstrap(|bootstrap| {
            // Nothing else ends a request that the dead VM held.
            bootstrap.connection_manager()?["stream_idle_timeout"] = "2s".into();
            Ok(())
        })
    });
    case_that_leaves(left, stack, async |stack| {
        let mut lost = 0;
        for number in 0..60 {
            // A connection of its own each time, so that both workers get some.
            let call = completion("hello").header("connection", "close");
            let answer = stack.send(call).await?;
            assert!(answer.total < PATIENCE, "request {number} took {:?}", answer.total);
            match answer.status {
                200 => {}
                503 => lost += 1,
                408 | 504 if callback == Callback::GrpcAnswer => lost += 1,
                other => panic!("request {number}: {other}"),
            }
        }
        let arrived = stack.recorders[0].take().len();
        if callback == Callback::GrpcAnswer {
            // What was held goes on where its body comes after the VM is dead, perhaps too late for its client.
            assert!(lost <= WORKERS && arrived >= 60 - lost, "{lost} lost, {arrived} arrived");
        } else {
            assert!((1..=WORKERS).contains(&lost), "{lost} requests were lost by {WORKERS} workers");
            assert_eq!(arrived, 60 - lost);
        }
        Ok(())
    });
}

/// Where a module dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callback {
    RequestHeaders,
    RequestBody,
    /// Of a call that the callback for headers makes, and for which it holds the request.
    GrpcAnswer,
}

/// Numbers of the function types that the module uses.
const UNIT: u8 = 0;
const TAKES_1_GIVES_1: u8 = 1;
const TAKES_2: u8 = 2;
const TAKES_2_GIVES_1: u8 = 3;
const TAKES_3_GIVES_1: u8 = 4;
const TAKES_3: u8 = 5;
const TAKES_12_GIVES_1: u8 = 6;

/// Where the module keeps what it calls with, and what is there: an encoded `GrpcService`, a service and a method.
const TEXTS: [(u32, &[u8]); 3] =
    [(2048, b"\n\x12\n\x07indexer\x12\x07indexer"), (2304, b"warmpath.v1.Scorer"), (2560, b"Score")];
/// Where it wants the number of the call.
const TOKEN: u32 = 2816;
const CALL_TIMEOUT_MS: u32 = 5000;

/// Asks the indexer, and holds the request.
fn asks() -> Vec<u8> {
    let [(service, service_text), (name, name_text), (method, method_text)] = TEXTS;
    let size = |text: &[u8]| text.len() as u32;
    let arguments = [
        service,
        size(service_text),
        name,
        size(name_text),
        method,
        size(method_text),
        0,
        0,
        0,
        0,
        CALL_TIMEOUT_MS,
        TOKEN,
    ];
    let mut code: Vec<u8> = arguments.into_iter().flat_map(constant).collect();
    // Call the imported function, drop what it says, pause.
    code.extend([0x10, 0, 0x1a]);
    code.extend(constant(1));
    code
}

/// An instruction that gives this number; below 2^13 in one or two bytes, and never negative.
fn constant(value: u32) -> Vec<u8> {
    let (low, high) = ((value & 0x7f) as u8, (value >> 7) as u8);
    if value < 64 { vec![0x41, low] } else { vec![0x41, low | 0x80, high] }
}

/// A proxy-wasm module that lets everything pass, but for one callback, in which it is unreachable.
fn module(dies_in: Callback) -> Vec<u8> {
    const I32: u8 = 0x7f;
    const NOTHING: &[u8] = &[];
    const UNREACHABLE: &[u8] = &[0x00];
    /// Where the host puts what it wants to hand over: behind the first page's beginning.
    const ADDRESS_1024: &[u8] = &[0x41, 0x80, 0x08];
    const ZERO: &[u8] = &[0x41, 0];
    const ONE: &[u8] = &[0x41, 1];
    let or_die = |callback| if callback == dies_in { UNREACHABLE } else { ZERO };
    let asks = asks();
    let on_headers =
        if dies_in == Callback::GrpcAnswer { &asks[..] } else { or_die(Callback::RequestHeaders) };
    let functions: [(&str, u8, &[u8]); 8] = [
        ("proxy_abi_version_0_2_1", UNIT, NOTHING),
        ("proxy_on_memory_allocate", TAKES_1_GIVES_1, ADDRESS_1024),
        ("proxy_on_context_create", TAKES_2, NOTHING),
        ("proxy_on_vm_start", TAKES_2_GIVES_1, ONE),
        ("proxy_on_configure", TAKES_2_GIVES_1, ONE),
        ("proxy_on_request_headers", TAKES_3_GIVES_1, on_headers),
        ("proxy_on_request_body", TAKES_3_GIVES_1, or_die(Callback::RequestBody)),
        ("proxy_on_grpc_receive", TAKES_3, UNREACHABLE),
    ];
    let types: [&[u8]; 7] = [
        &[0x60, 0, 0],
        &[0x60, 1, I32, 1, I32],
        &[0x60, 2, I32, I32, 0],
        &[0x60, 2, I32, I32, 1, I32],
        &[0x60, 3, I32, I32, I32, 1, I32],
        &[0x60, 3, I32, I32, I32, 0],
        &[0x60, 12, I32, I32, I32, I32, I32, I32, I32, I32, I32, I32, I32, I32, 1, I32],
    ];
    let import = [sized(b"env".to_vec()), sized(b"proxy_grpc_call".to_vec()), vec![0, TAKES_12_GIVES_1]];
    // What is imported is counted first.
    let exports =
        functions.iter().enumerate().map(|(number, (name, _, _))| export(name, 0, number as u8 + 1));
    let exports = exports.chain([export("memory", 2, 0)]);
    let code = functions.iter().map(|(_, _, body)| sized([&[0], *body, &[0x0b]].concat()));
    [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, types.iter().map(|one| one.to_vec())),
        section(2, [import.concat()].into_iter()),
        section(3, functions.iter().map(|(_, kind, _)| vec![*kind])),
        section(5, [vec![0, 2]].into_iter()),
        section(7, exports),
        section(10, code),
        section(
            11,
            TEXTS
                .iter()
                .map(|(at, text)| [vec![0], constant(*at), vec![0x0b], sized(text.to_vec())].concat()),
        ),
    ]
    .concat()
}

fn export(name: &str, kind: u8, number: u8) -> Vec<u8> {
    [sized(name.as_bytes().to_vec()), vec![kind, number]].concat()
}

/// Identifier, length, number of items, items.
fn section(id: u8, items: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.collect();
    [vec![id], sized([number(items.len()), items.concat()].concat())].concat()
}

fn sized(bytes: Vec<u8>) -> Vec<u8> {
    [number(bytes.len()), bytes].concat()
}

/// Unsigned LEB128.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
