//! Recorded requests of real servers with the token ids that were served, one JSON object per line. Read by the tests
//! and by the `golden` example.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "wrong test data ends the comparison"
)]

use serde_json::Value as Json;
use warmpath_prompt::{
    ChatRequest, CompletionRequest, MessagesRequest, ModelPrompt, PromptError, PromptTokens, ResponsesRequest, Task,
    TokensRequest, Truncate, first_difference,
};

/// What became of the recorded requests.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Requests to completions and chat completions.
    pub(crate) requests: usize,
    /// Prompts whose ids were recorded.
    pub(crate) prompts: usize,
    pub(crate) equal: usize,
    /// Requests that the server refused, so that there are no ids.
    pub(crate) refused: Vec<String>,
    /// `(request, what is wrong)`.
    pub(crate) faults: Vec<(String, String)>,
}

pub(crate) fn compare(model: &ModelPrompt, lines: &str) -> Report {
    let mut report = Report::default();
    for line in lines.lines() {
        let record: Json = serde_json::from_str(line).unwrap();
        let id = record["id"].as_str().unwrap().to_owned();
        let body = &record["body"];
        let ours = match record["path"].as_str().unwrap() {
            "/v1/completions" => completion(model, body),
            "/v1/chat/completions" => vec![chat(model, body)],
            _ => continue,
        };
        report.requests += 1;
        let Some(theirs) = record["prompt_token_ids"].as_array() else {
            report.refused.push(id);
            continue;
        };
        // One list per choice: `n` choices of each prompt, prompt by prompt.
        let choices = theirs.len() / ours.len();
        for (ours, theirs) in ours.into_iter().zip(theirs.iter().step_by(choices)) {
            report.prompts += 1;
            match equal_ids(ours, theirs) {
                Ok(()) => report.equal += 1,
                Err(fault) => report.faults.push((id.clone(), fault)),
            }
        }
    }
    report
}

fn completion(model: &ModelPrompt, body: &Json) -> Vec<Result<PromptTokens, PromptError>> {
    let truncate = truncate(body);
    let add_special_tokens = body["add_special_tokens"].as_bool();
    let task = Task::Generate;
    let text = |text: &str| model.tokens(CompletionRequest { text, add_special_tokens, truncate, task });
    let ids = |ids: &Json| {
        model.tokens(TokensRequest { ids: serde_json::from_value(ids.clone()).unwrap(), truncate, task })
    };
    match &body["prompt"] {
        Json::String(prompt) => vec![text(prompt)],
        Json::Array(list) if list[0].is_number() => vec![ids(&body["prompt"])],
        Json::Array(list) => list
            .iter()
            .map(|prompt| match prompt {
                Json::String(prompt) => text(prompt),
                _ => ids(prompt),
            })
            .collect(),
        other => panic!("prompt is {other}"),
    }
}

fn chat(model: &ModelPrompt, body: &Json) -> Result<PromptTokens, PromptError> {
    model.tokens(chat_fields(body).request())
}

fn truncate(body: &Json) -> Truncate<'_> {
    Truncate {
        tokens: body["truncate_prompt_tokens"].as_i64(),
        side: body["truncation_side"].as_str(),
        max_output_tokens: None,
    }
}

/// The fields of a chat body, as the filter would send them.
pub(crate) struct ChatFields<'a> {
    body: &'a Json,
    messages: Vec<u8>,
    tools: Option<Vec<u8>>,
    documents: Option<Vec<u8>>,
    template_kwargs: Option<Vec<u8>>,
    tool_choice: Option<Vec<u8>>,
}

pub(crate) fn chat_fields(body: &Json) -> ChatFields<'_> {
    let field = |name: &str| {
        body.get(name).filter(|value| !value.is_null()).map(|value| value.to_string().into_bytes())
    };
    ChatFields {
        body,
        messages: field("messages").unwrap(),
        tools: field("tools"),
        documents: field("documents"),
        template_kwargs: field("chat_template_kwargs"),
        tool_choice: field("tool_choice"),
    }
}

impl ChatFields<'_> {
    pub(crate) fn request(&self) -> ChatRequest<'_> {
        ChatRequest {
            messages: &self.messages,
            tools: self.tools.as_deref(),
            documents: self.documents.as_deref(),
            template_kwargs: self.template_kwargs.as_deref(),
            chat_template: self.body["chat_template"].as_str(),
            add_generation_prompt: self.body["add_generation_prompt"].as_bool(),
            continue_final_message: self.body["continue_final_message"].as_bool(),
            reasoning_effort: self.body["reasoning_effort"].as_str(),
            tool_choice: self.tool_choice.as_deref(),
            add_special_tokens: self.body["add_special_tokens"].as_bool(),
            truncate: truncate(self.body),
            has_media: false,
            prompt_token_ids: None,
            task: Task::Generate,
        }
    }
}

fn equal_ids(ours: Result<PromptTokens, PromptError>, theirs: &Json) -> Result<(), String> {
    let ours = ours.map_err(|error| format!("{}: {error}", error.reason()))?;
    let theirs: Vec<u32> = serde_json::from_value(theirs.clone()).unwrap();
    first_difference(ours.ids.as_slice(), &theirs).map_or(Ok(()), |difference| Err(difference.to_string()))
}
