//! Chat requests with the text that the engine's own code makes of them, for templates that print what they are given.
//! One JSON object per line: a template (`template`, `source`), or a request for the template named last (`body` with
//! `text`, or with `error` where the engine refuses it).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "wrong test data ends the comparison")]

use serde_json::Value as Json;
use warmpath_prompt::ModelPrompt;

use crate::captures::chat_fields;

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) texts: usize,
    pub(crate) refusals: usize,
    /// Requests that we render and the engine refuses: they hold texts among their parts, which the engine takes or
    /// not depending on which of its message models happens to fit. No ids, so no harm.
    pub(crate) lenient: usize,
    /// Requests that the engine renders and we refuse, because it may read them in two ways.
    pub(crate) unsupported: usize,
    pub(crate) faults: Vec<String>,
}

pub(crate) fn compare(model: &ModelPrompt, lines: &str) -> Report {
    let mut report = Report::default();
    let mut source = String::new();
    for line in lines.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        if let Some(template) = case["source"].as_str() {
            source = template.to_owned();
            continue;
        }
        let fields = chat_fields(&case["body"]);
        let mut request = fields.request();
        request.chat_template = Some(&source);
        let fault = match (model.render_chat(&request), case["text"].as_str()) {
            (Ok(ours), Some(theirs)) => {
                report.texts += 1;
                (ours != theirs).then(|| format!("ours {ours:?}, theirs {theirs:?}"))
            }
            (Err(error), Some(_)) if error.reason() == "unsupported_field" => {
                report.unsupported += 1;
                None
            }
            (Err(error), Some(_)) => Some(format!("{}: {error}", error.reason())),
            (Err(_), None) => {
                report.refusals += 1;
                None
            }
            (Ok(_), None) if has_bare_text(&case["body"]) => {
                report.lenient += 1;
                None
            }
            (Ok(_), None) => Some(format!("rendered, but the engine refuses: {}", case["error"])),
        };
        report.faults.extend(fault.map(|fault| format!("{} {}: {fault}", case["template"], case["body"])));
    }
    report
}

/// Whether some message has a text among its content parts.
fn has_bare_text(body: &Json) -> bool {
    let parts = |message: &Json| message["content"].as_array().cloned().unwrap_or_default();
    body["messages"].as_array().unwrap().iter().any(|message| parts(message).iter().any(Json::is_string))
}
