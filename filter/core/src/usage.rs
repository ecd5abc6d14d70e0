//! What an answer says of its tokens, read from its last bytes only: JSON and event streams alike end with `usage`.
//!
//! An answer is never held and never kept: [`Tail`] has its last bytes, however it is cut into chunks.

use crate::json::Scanner;
use crate::limits::USAGE_TAIL_BYTES;

/// Token counts of an answer, as far as they were there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `prompt_tokens`, or `input_tokens` of the responses and messages APIs. Those that the cache had or got are part of
    /// it, also where an engine tells them apart (`cache_read_input_tokens`, `cache_creation_input_tokens`).
    pub prompt_tokens: Option<u32>,
    /// `completion_tokens`, or `output_tokens`.
    pub completion_tokens: Option<u32>,
    /// `prompt_tokens_details.cached_tokens`, the same in `input_tokens_details`, or `cache_read_input_tokens`.
    pub cached_tokens: Option<u32>,
}

/// The last bytes of an answer.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// Takes a chunk, or only its end.
    pub fn push(&mut self, chunk: &[u8]) {
        let chunk = chunk.get(chunk.len().saturating_sub(USAGE_TAIL_BYTES)..).unwrap_or_default();
        // Twice the size is kept before the front is cut off, so that small chunks do not move it each time.
        if self.bytes.len() + chunk.len() > 2 * USAGE_TAIL_BYTES {
            let surplus = self.bytes.len().saturating_sub(USAGE_TAIL_BYTES);
            self.bytes.drain(..surplus);
        }
        self.bytes.extend_from_slice(chunk);
    }

    /// The last `usage` object in it; all absent where there is none. Only [`USAGE_TAIL_BYTES`] count, so that it does
    /// not depend on how the answer was cut.
    pub fn usage(&self) -> Usage {
        let surplus = self.bytes.len().saturating_sub(USAGE_TAIL_BYTES);
        let bytes = self.bytes.get(surplus..).unwrap_or_default();
        let mut end = bytes.len();
        while let Some(at) = rfind(bytes.get(..end).unwrap_or_default(), NAME) {
            if let Some(usage) = bytes.get(at + NAME.len()..).and_then(read) {
                return usage;
            }
            end = at;
        }
        Usage::default()
    }
}

/// In a text of the answer the quotes are escaped, so this finds members only.
const NAME: &[u8] = b"\"usage\"";

fn rfind(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).rposition(|window| window == what)
}

/// Reads `: { … }`; none where something else follows, or it is cut off.
fn read(bytes: &[u8]) -> Option<Usage> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?,
    };
    let object = text.trim_start().strip_prefix(':')?;
    let mut usage = Usage::default();
    let mut apart: u32 = 0;
    Scanner::new(object)
        .object(|s, key| {
            match key {
                "prompt_tokens" | "input_tokens" => usage.prompt_tokens = count(s.value()?.text),
                "completion_tokens" | "output_tokens" => usage.completion_tokens = count(s.value()?.text),
                "prompt_tokens_details" | "input_tokens_details" if s.peek() == Some(b'{') => {
                    s.object(|s, key| {
                        let value = s.value()?;
                        if key == "cached_tokens" {
                            usage.cached_tokens = count(value.text);
                        }
                        Ok(())
                    })?;
                }
                "cache_read_input_tokens" => {
                    usage.cached_tokens = count(s.value()?.text);
                    apart = apart.saturating_add(usage.cached_tokens.unwrap_or(0));
                }
                "cache_creation_input_tokens" => {
                    apart = apart.saturating_add(count(s.value()?.text).unwrap_or(0));
                }
                _ => drop(s.value()?),
            }
            Ok(())
        })
        .ok()?;
    usage.prompt_tokens = usage.prompt_tokens.map(|tokens| tokens.saturating_add(apart));
    Some(usage)
}

fn count(number: &str) -> Option<u32> {
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_of(answer: &str, chunk_bytes: usize) -> Usage {
        let mut tail = Tail::default();
        for chunk in answer.as_bytes().chunks(chunk_bytes) {
            tail.push(chunk);
        }
        assert!(tail.bytes.len() <= 2 * USAGE_TAIL_BYTES);
        tail.usage()
    }

    fn full(prompt: u32, completion: u32, cached: u32) -> Usage {
        Usage {
            prompt_tokens: Some(prompt),
            completion_tokens: Some(completion),
            cached_tokens: Some(cached),
        }
    }

    #[test]
    fn a_json_answer_is_read_however_it_is_cut() {
        let text = "ä\\\"usage\\\": {".repeat(2000);
        let answer = format!(
            r#"{{"choices":[{{"text":"{text}"}}],"usage" : {{"prompt_tokens":9,"total_tokens":16,
            "completion_tokens":7,"prompt_tokens_details":{{"audio":null,"cached_tokens":5}}}},"kv_transfer_params":null}}"#
        );
        for size in [1, 7, 4096, 100_000] {
            assert_eq!(usage_of(&answer, size), full(9, 7, 5), "chunks of {size}");
        }
    }

    #[test]
    fn of_a_stream_the_last_usage_counts_and_null_is_none() {
        let answer = "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":4,\
            \"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\ndata: {\"usage\":null}\n\ndata: [DONE]\n\n";
        assert_eq!(usage_of(answer, 11), full(30, 4, 16));
    }

    #[test]
    fn the_responses_api_has_its_own_names() {
        let answer =
            r#"{"usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":2},"output_tokens":3}}"#;
        assert_eq!(usage_of(answer, 50), full(8, 3, 2));
    }

    #[test]
    fn the_messages_api_tells_cached_tokens_apart_where_it_tells_them() {
        let answer = r#"{"usage":{"input_tokens":22,"output_tokens":4,"cache_creation_input_tokens":16,
            "cache_read_input_tokens":64}}"#;
        assert_eq!(usage_of(answer, 50), full(102, 4, 64));
        let nulls = r#"{"usage":{"cache_read_input_tokens":null,"input_tokens":86,"output_tokens":4}}"#;
        let older = Usage { prompt_tokens: Some(86), completion_tokens: Some(4), cached_tokens: None };
        assert_eq!(usage_of(nulls, 50), older);
        assert_eq!(usage_of(r#"{"usage":{"input_tokens":86,"output_tokens":4}}"#, 50), older);
    }

    #[test]
    fn what_is_not_there_is_not_invented() {
        for answer in [
            "",
            "data: [DONE]",
            r#"{"usage":"#,
            r#"{"usage":{"prompt_tokens":1"#,
            r#"{"usage":[1]}"#,
            r#"{"usage":"x"}"#,
            "\"usage\"",
            r#"{"usage":{}}"#,
        ] {
            assert_eq!(usage_of(answer, 3), Usage::default(), "{answer}");
        }
        let odd = usage_of(
            r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"x","prompt_tokens_details":null}}"#,
            9,
        );
        assert_eq!(odd, Usage::default());
    }

    #[test]
    fn a_usage_before_the_tail_is_not_seen() {
        let answer =
            format!(r#"{{"usage":{{"prompt_tokens":1}},"text":"{}"}}"#, "x".repeat(3 * USAGE_TAIL_BYTES));
        assert_eq!(usage_of(&answer, 1000), Usage::default());
    }

    #[test]
    fn a_usage_counts_by_its_place_and_not_by_how_the_answer_was_cut() {
        for (behind, seen) in [(USAGE_TAIL_BYTES - 30, Some(1)), (USAGE_TAIL_BYTES, None)] {
            let answer = format!(r#"{{"usage":{{"prompt_tokens":1}}}}{}"#, " ".repeat(behind));
            for size in [1, 7, 4096, 100_000] {
                assert_eq!(usage_of(&answer, size).prompt_tokens, seen, "{behind} in chunks of {size}");
            }
        }
    }
}
