//! A filter whose VM dies does not take requests with it. Ours does not die, so these cases run modules that do, with
//! the bootstrap's failure policy.

use std::time::Duration;

use warmpath_tests::case::case_that_leaves;
use warmpath_tests::prompts::completion;
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

fn dies_in(callback: Callback) {
    let left = AfterCase { vm_may_die: true, ..AfterCase::default() };
    let stack = Stack::builder()
        .map(|stack| stack.recorders(1).indexers(0).workers(WORKERS).module(module(callback)));
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
                other => panic!("request {number}: {other}"),
            }
        }
        assert!((1..=WORKERS).contains(&lost), "{lost} requests were lost by {WORKERS} workers");
        let arrived = stack.recorders[0].take().len();
        assert_eq!(arrived, 60 - lost);
        Ok(())
    });
}

/// Where a module dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callback {
    RequestHeaders,
    RequestBody,
}

/// Numbers of the function types that the module uses.
const UNIT: u8 = 0;
const TAKES_1_GIVES_1: u8 = 1;
const TAKES_2: u8 = 2;
const TAKES_2_GIVES_1: u8 = 3;
const TAKES_3_GIVES_1: u8 = 4;

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
    let functions: [(&str, u8, &[u8]); 7] = [
        ("proxy_abi_version_0_2_1", UNIT, NOTHING),
        ("proxy_on_memory_allocate", TAKES_1_GIVES_1, ADDRESS_1024),
        ("proxy_on_context_create", TAKES_2, NOTHING),
        ("proxy_on_vm_start", TAKES_2_GIVES_1, ONE),
        ("proxy_on_configure", TAKES_2_GIVES_1, ONE),
        ("proxy_on_request_headers", TAKES_3_GIVES_1, or_die(Callback::RequestHeaders)),
        ("proxy_on_request_body", TAKES_3_GIVES_1, or_die(Callback::RequestBody)),
    ];
    let types: [&[u8]; 5] = [
        &[0x60, 0, 0],
        &[0x60, 1, I32, 1, I32],
        &[0x60, 2, I32, I32, 0],
        &[0x60, 2, I32, I32, 1, I32],
        &[0x60, 3, I32, I32, I32, 1, I32],
    ];
    let exports = functions.iter().enumerate().map(|(number, (name, _, _))| export(name, 0, number as u8));
    let exports = exports.chain([export("memory", 2, 0)]);
    let code = functions.iter().map(|(_, _, body)| sized([&[0], *body, &[0x0b]].concat()));
    [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, types.iter().map(|one| one.to_vec())),
        section(3, functions.iter().map(|(_, kind, _)| vec![*kind])),
        section(5, [vec![0, 2]].into_iter()),
        section(7, exports),
        section(10, code),
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
