//! What is asked of an engine: its release, its tokens of a prompt, the text of some tokens.

use serde::Deserialize;
use serde_json::{Value, json};
use warmpath_prompt::EngineVersion;

use crate::engines::read_version;
use crate::http::{AskError, EngineClient};

/// Largest answer read, in bytes: the built-in prompts are short, but a rendered request repeats much of its question.
const ANSWER_MAX: usize = 4 << 20;
/// Longest reason of a refusal that is shown, in characters.
const REASON_CHARS_MAX: usize = 120;

/// One engine.
pub(super) struct Engine {
    pub(super) client: EngineClient,
    /// `host:port`.
    pub(super) endpoint: String,
    /// The name it serves the model by.
    pub(super) model: String,
}

/// What it says to a prompt.
pub(super) enum Said {
    Tokens(Vec<u32>),
    /// It does not take the prompt, and why.
    Refused(String),
    /// It has no such page, or keeps it closed.
    NotOffered,
}

/// `/tokenize`, and what the rendering pages answer in their several forms.
#[derive(Deserialize)]
struct Tokens {
    #[serde(alias = "token_ids", alias = "prompt_token_ids")]
    tokens: Vec<u32>,
}

/// `/detokenize`.
#[derive(Deserialize)]
struct Text {
    prompt: String,
}

impl Engine {
    /// None: it does not say.
    pub(super) async fn version(&self) -> Result<Option<EngineVersion>, AskError> {
        let answer = self.client.get(&self.endpoint, "/version", ANSWER_MAX).await?;
        Ok(answer.status.is_success().then(|| read_version(&answer.body)).flatten())
    }

    pub(super) async fn ask(&self, page: &str, body: &Value) -> Result<Said, AskError> {
        let answer = self.client.post(&self.endpoint, page, body.to_string(), ANSWER_MAX).await?;
        let page: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        // A page that is not there is told from a model that is not: by the framework's own words.
        let is_absent = answer.status == 404 && page.get("error").is_none() && page.get("message").is_none();
        Ok(match tokens(&page) {
            Some(tokens) if answer.status.is_success() => Said::Tokens(tokens),
            _ if is_absent || matches!(answer.status.as_u16(), 403 | 405 | 501) => Said::NotOffered,
            _ => Said::Refused(format!("{}: {}", answer.status.as_u16(), reason(&page))),
        })
    }

    /// None: it does not say.
    pub(super) async fn text_of(&self, ids: &[u32]) -> Option<String> {
        let body = json!({ "model": self.model, "tokens": ids }).to_string();
        let answer = self.client.post(&self.endpoint, "/detokenize", body, ANSWER_MAX).await.ok()?;
        let text: Text = serde_json::from_slice(&answer.body).ok()?;
        Some(text.prompt)
    }
}

/// The tokens in an answer: of the object itself, or of the only or first item of a list, or of the last of two (the
/// conversation and its prompt, as early releases answered).
fn tokens(page: &Value) -> Option<Vec<u32>> {
    match page {
        Value::Array(items) => items.iter().find_map(tokens),
        Value::Object(_) => Tokens::deserialize(page).ok().map(|tokens| tokens.tokens),
        _ => None,
    }
}

/// Why an engine refuses, in its own words.
fn reason(page: &Value) -> String {
    let told = page.pointer("/error/message").or_else(|| page.get("message")).or_else(|| page.get("detail"));
    let text = match told {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "no reason given".to_owned(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_every_form_of_answer() {
        let expected = Some(vec![1, 2]);
        for page in [
            json!({ "count": 2, "max_model_len": 9, "tokens": [1, 2], "token_strs": null }),
            json!({ "request_id": "r", "token_ids": [1, 2], "sampling_params": {} }),
            json!([{ "token_ids": [1, 2] }]),
            json!([[{ "role": "user" }], [{ "prompt_token_ids": [1, 2] }]]),
        ] {
            assert_eq!(tokens(&page), expected, "{page}");
        }
        for page in [json!({}), json!([]), json!({ "tokens": "1" }), json!({ "tokens": [-1] }), json!(7)] {
            assert_eq!(tokens(&page), None, "{page}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_one_short_line() {
        assert_eq!(reason(&json!({ "error": { "message": "a\n  b" } })), "a b");
        assert_eq!(reason(&json!({ "detail": [1] })), "[1]");
        assert_eq!(reason(&json!(null)), "no reason given");
        assert_eq!(reason(&json!({ "message": "x".repeat(500) })).chars().count(), REASON_CHARS_MAX + 1);
    }
}
