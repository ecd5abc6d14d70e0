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
    ChatRequest, CompletionRequest, MessagesRequest, ModelPrompt, PromptError, PromptTokens,
    ResponsesRequest, Task, TokensRequest, Truncate, first_difference,
};

/// What became of the recorded requests.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) requests: usize,
    /// Prompts whose ids were recorded.
    pub(crate) prompts: usize,
    pub(crate) equal: usize,
    /// Prompts of which their number of tokens and their stored blocks were recorded, and equal ones among them.
    pub(crate) stored: usize,
    pub(crate) stored_equal: usize,
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
            "/v1/responses" => vec![responses(model, body)],
            "/v1/messages" => vec![messages(model, body)],
            _ => continue,
        };
        report.requests += 1;
        if record["status"] != 200 {
            report.refused.push(id);
            continue;
        }
        // Of responses and messages, nothing but the rendering endpoint tells the ids, in releases that have it.
        let served = record["prompt_token_ids"].as_array().or_else(|| record["render_token_ids"].as_array());
        let Some(theirs) = served else {
            report.stored += 1;
            match equal_blocks(ours.into_iter().next().unwrap(), &record) {
                Ok(()) => report.stored_equal += 1,
                Err(fault) => report.faults.push((id.clone(), fault)),
            }
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

fn responses(model: &ModelPrompt, body: &Json) -> Result<PromptTokens, PromptError> {
    let members = body.to_string();
    model.tokens(ResponsesRequest { members: members.as_bytes(), ..ResponsesRequest::default() })
}

fn messages(model: &ModelPrompt, body: &Json) -> Result<PromptTokens, PromptError> {
    let members = body.to_string();
    model.tokens(MessagesRequest { members: members.as_bytes(), ..MessagesRequest::default() })
}

fn truncate(body: &Json) -> Truncate {
    Truncate {
        tokens: body["truncate_prompt_tokens"].as_i64(),
        side: body["truncation_side"].as_str().map(Into::into),
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

/// Whether the prompt has as many tokens as the engine counted, and all its whole blocks are among those stored.
fn equal_blocks(ours: Result<PromptTokens, PromptError>, record: &Json) -> Result<(), String> {
    let ours = ours.map_err(|error| format!("{}: {error}", error.reason()))?.ids.into_vec();
    let count = record["metrics_delta"]["vllm:prompt_tokens"].as_f64().unwrap();
    if ours.len() as f64 != count {
        return Err(format!("{} tokens, the engine counted {count}", ours.len()));
    }
    let chains: Vec<Vec<u32>> = serde_json::from_value(record["stored_token_ids"].clone()).unwrap();
    let agreeing = |chain: &Vec<u32>| ours.iter().zip(chain).take_while(|(a, b)| a == b).count();
    let agreed = chains.iter().map(agreeing).max().unwrap_or_default();
    let whole_blocks = ours.len() / LARGEST_BLOCK * LARGEST_BLOCK;
    if agreed < whole_blocks {
        return Err(format!("stored blocks agree in {agreed} of {} tokens", ours.len()));
    }
    Ok(())
}

/// Tokens of a block in the recorded engines, or a multiple of them.
const LARGEST_BLOCK: usize = 32;

fn equal_ids(ours: Result<PromptTokens, PromptError>, theirs: &Json) -> Result<(), String> {
    let ours = ours.map_err(|error| format!("{}: {error}", error.reason()))?;
    let theirs: Vec<u32> = serde_json::from_value(theirs.clone()).unwrap();
    first_difference(ours.ids.as_slice(), &theirs).map_or(Ok(()), |difference| Err(difference.to_string()))
}
