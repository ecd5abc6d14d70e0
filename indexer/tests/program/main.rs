//! The program in process, over real gRPC, HTTP and ZeroMQ, with prompts given as token ids: no tokenizer is needed.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod prefixes;
#[cfg(test)]
mod scoring;
#[cfg(test)]
mod scraping;
#[cfg(test)]
mod support;
