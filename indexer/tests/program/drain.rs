//! The real binary: exit codes, and a drain that no request notices.

use std::convert::Infallible;
use std::process::Command;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::binary::{Program, serve, written};
use crate::support::{admin, config, eventually, tokens};
use crate::test_model::Folder;

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;
type Answer = JoinHandle<hyper::Result<Response<Incoming>>>;

/// Begins a call with a part of its message; the rest goes into the sender, whose drop ends the message.
async fn ask(sender: &mut SendRequest<Body>, uri: &str, part: &[u8]) -> (mpsc::Sender<Bytes>, Answer) {
    let (mut rest, parts) = mpsc::channel(2);
    rest.send(Bytes::copy_from_slice(part)).await.unwrap();
    let request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(parts.map(|part| Ok(Frame::data(part))).boxed()))
        .unwrap();
    sender.ready().await.unwrap();
    (rest, tokio::spawn(sender.send_request(request)))
}

async fn grpc_status(answer: Answer) -> String {
    let response = answer.await.unwrap().expect("an answer");
    let body = response.into_body().collect().await.unwrap();
    body.trailers().and_then(|trailers| trailers.get("grpc-status")).unwrap().to_str().unwrap().to_owned()
}

/// SIGTERM while a hundred questions are open: every one is answered, and the exit is clean.
// E4 (kubernetes-sigs/gateway-api-inference-extension#548)
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_answers_everything_in_flight() {
    let mut program = Program::start(&config(&["10.0.0.1:8000", "10.0.0.2:8000"]), "drain");
    let mut stream = None;
    eventually("it serves", async || {
        stream = TcpStream::connect(program.bound.grpc).await.ok();
        stream.is_some()
    })
    .await;
    let io = TokioIo::new(stream.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = format!("http://{}/warmpath.v1.Scorer/Score", program.bound.grpc);

    // Every question is sent but for its last byte, so that it stays in flight until we say so.
    let mut frame = vec![0];
    let message = tokens(0..100).encode_to_vec();
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    let (most, last) = frame.split_at(frame.len() - 1);
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(ask(&mut sender, &uri, most).await);
    }
    // What is asked last on a connection is answered only when all before it has arrived.
    let (whole, answer) = ask(&mut sender, &uri, &frame).await;
    drop(whole);
    assert_eq!(grpc_status(answer).await, "0");

    program.signal("-TERM");
    let refused = async || TcpStream::connect(program.bound.grpc).await.is_err();
    eventually("no new connection is taken", refused).await;
    for (mut rest, answer) in open {
        rest.send(Bytes::copy_from_slice(last)).await.unwrap();
        drop(rest);
        assert_eq!(grpc_status(answer).await, "0");
    }
    drop(sender);
    assert!(program.exited().await.success());
    connection.abort();
}

/// A model whose files take for ever, as on a network disk, and nothing that could be drained: it ends at once, and well.
#[tokio::test]
async fn a_program_that_is_still_starting_ends_when_it_is_told_to() {
    let folder = Folder::new("starting");
    let file = folder.path().join("tokenizer.json");
    std::fs::remove_file(&file).unwrap();
    // A pipe: whoever opens it to read waits until somebody writes.
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let models = format!("models: [{{ name: tiny, tokenizer_dir: {:?} }}]", folder.path());
    let yaml = config(&["10.0.0.1:8000"]).replace("models: [{ name: tiny }]", &models);
    let mut program = Program::start(&yaml, "starting");
    let ready = admin(program.bound, hyper::Method::GET, "/readyz").await;
    assert!(ready.0 == 503 && ready.1.contains("models"), "{ready:?}");
    program.signal("-TERM");
    assert!(program.exited().await.success());
}

#[test]
fn a_bad_configuration_names_every_mistake_and_exits_with_64() {
    let path = written("listen: { grpc: nowhere }\npolicy: { name: fast }\nnonsense: 1\n", "bad");
    let output = serve(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    let text = String::from_utf8(output.stderr).unwrap();
    for part in ["3 mistakes", "listen.grpc", "\"nowhere\"", "policy.name", "\"fast\"", "nonsense"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn a_tokenizer_that_is_not_there_is_a_bad_configuration() {
    let yaml = "listen: { grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n\
                models: [{ name: m, tokenizer_dir: /nonexistent/dir }]\n";
    let path = written(yaml, "no-tokenizer");
    for check in [false, true] {
        let mut command = serve(&path);
        if check {
            command.arg("--check");
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64), "check: {check}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("models[0].tokenizer_dir") && text.contains("/nonexistent/dir"), "{text}");
    }
}

/// The key that is named is the one to look at.
#[test]
fn a_chat_template_that_is_not_there_is_named_by_its_own_key() {
    let model = Folder::new("no-template");
    let folder = model.path().display();
    let yaml =
        format!("models: [{{ name: m, tokenizer_dir: \"{folder}\", chat_template: /nonexistent.jinja }}]\n");
    let output = serve(&written(&yaml, "no-template")).arg("--check").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("models[0].chat_template: /nonexistent.jinja: not found"), "{text}");
}

#[test]
fn a_check_prints_the_effective_configuration() {
    let path = written(&config(&["10.0.0.1:8000"]), "check");
    let output = serve(&path).arg("--check").output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let again =
        warmpath_indexer::config::Config::parse(&printed).expect("what is printed is a configuration");
    assert_eq!(again.to_yaml().unwrap(), printed);
}
