//! The program in process, over real gRPC, HTTP and ZeroMQ, with prompts given as token ids: no tokenizer is needed.

mod admin;
mod drain;
mod peers;
mod scoring;
mod support;
