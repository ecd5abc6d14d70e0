//! Golden data: conversations rendered and texts encoded by the reference implementation in Python, one JSON object per
//! line, the first with the clock it used. Read by the tests and by the `golden` example.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "wrong test data ends the comparison")]

use std::sync::Arc;

use serde_json::Value as Json;
use warmpath_prompt::{
    CompletionRequest, FixedClock, ModelFiles, ModelPrompt, PromptError, TemplateInput, TokenIds,
    first_difference,
};

/// How many cases agree, and what is wrong with the others.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) chats: usize,
    pub(crate) chats_equal: usize,
    /// Conversations that the reference refuses, among `chats`.
    pub(crate) refusals: usize,
    pub(crate) texts: usize,
    pub(crate) texts_equal: usize,
    pub(crate) faults: Vec<String>,
}

/// `files` as given, at the time at which the golden data were made.
pub(crate) fn at_golden_time(mut files: ModelFiles, lines: &str) -> ModelFiles {
    let meta: Json = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let now = meta["now"].as_str().unwrap().parse().unwrap();
    files.clock = Arc::new(FixedClock(now));
    files
}

pub(crate) fn compare(model: &ModelPrompt, lines: &str) -> Report {
    let mut report = Report::default();
    for line in lines.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        let outcome = match case["kind"].as_str().unwrap() {
            "chat" => {
                report.chats += 1;
                report.refusals += usize::from(case.get("error").is_some());
                compare_chat(model, &case).inspect(|()| report.chats_equal += 1)
            }
            "raw" => {
                report.texts += 1;
                compare_text(model, &case).inspect(|()| report.texts_equal += 1)
            }
            _ => Ok(()),
        };
        report.faults.extend(outcome.err().map(|fault| format!("{id}: {fault}")));
    }
    report
}

fn compare_chat(model: &ModelPrompt, case: &Json) -> Result<(), String> {
    let field = |name: &str| case.get(name).map(|value| serde_json::to_vec(value).unwrap());
    let (messages, tools, variables) = (field("messages").unwrap(), field("tools"), field("kwargs"));
    let rendered = model.render_template(&TemplateInput {
        messages: &messages,
        tools: tools.as_deref(),
        variables: variables.as_deref(),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        continue_final_message: case["continue_final_message"].as_bool().unwrap_or_default(),
    });
    let text = match (rendered, case["rendered"].as_str()) {
        (Ok(text), Some(_)) => text,
        (Err(_), None) => return Ok(()),
        (Ok(_), None) => return Err(format!("rendered, but the reference refuses: {}", case["error"])),
        (Err(error), Some(_)) => return Err(error.to_string()),
    };
    let want = case["rendered"].as_str().unwrap();
    if text != want {
        let place = text.bytes().zip(want.bytes()).take_while(|(a, b)| a == b).count();
        return Err(format!("text differs from byte {place}: {:?}", text.get(place..place + 80)));
    }
    equal_ids(encode(model, &text, Some(false)), &case["ids"])
}

fn compare_text(model: &ModelPrompt, case: &Json) -> Result<(), String> {
    let special = case["add_special_tokens"].as_bool();
    equal_ids(encode(model, case["text"].as_str().unwrap(), special), &case["ids"])
}

fn encode(
    model: &ModelPrompt,
    text: &str,
    add_special_tokens: Option<bool>,
) -> Result<TokenIds, PromptError> {
    let request = CompletionRequest { text, add_special_tokens, ..CompletionRequest::default() };
    model.tokens(request).map(|tokens| tokens.ids)
}

fn equal_ids(ours: Result<TokenIds, PromptError>, theirs: &Json) -> Result<(), String> {
    let ours = ours.map_err(|error| error.to_string())?;
    let theirs: Vec<u32> = serde_json::from_value(theirs.clone()).unwrap();
    first_difference(ours.as_slice(), &theirs).map_or(Ok(()), |difference| Err(difference.to_string()))
}
