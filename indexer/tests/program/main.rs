//! The program in process, over real gRPC, HTTP and ZeroMQ, mostly with prompts given as token ids,
//! which need no tokenizer.

#[cfg(test)]
mod adapters;
#[cfg(test)]
mod admin;
#[cfg(test)]
mod binary;
#[cfg(test)]
mod check;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod equals;
#[cfg(test)]
mod explaining;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod http_engine;
#[cfg(test)]
mod late_join;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod prefixes;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod scoring;
#[cfg(test)]
mod scraping;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod spread;
#[cfg(test)]
mod start;
#[cfg(test)]
mod support;
#[cfg(test)]
mod terms;
#[cfg(test)]
mod test_model;
