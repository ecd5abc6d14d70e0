//! Requests to `/v1/responses` and `/v1/messages` against the text that the engine's own code makes of them, for templates
//! that print what they are given. One JSON object per line: a template (`template`, `source`), or a request for the
//! template named last (`path`, `body`, with `text` or, where the engine refuses it, `error`).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "wrong test data ends the comparison"
)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use warmpath_prompt::{
    EncoderKind, MessagesRequest, ModelFiles, ModelPrompt, Prepared, PromptError, ResponsesRequest,
};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Requests with a text.
    pub(crate) texts: usize,
    /// Requests that both sides refuse.
    pub(crate) refusals: usize,
    /// Requests that the engine renders and we refuse, for a reason that depends on what is not known here.
    pub(crate) unsupported: usize,
    /// Requests that we render and the engine refuses: no ids, so no harm.
    pub(crate) lenient: Vec<String>,
    pub(crate) faults: Vec<String>,
}

/// A model that only renders: a tokenizer of one word.
struct Folder(PathBuf);

impl Folder {
    fn new(version: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conversions-{version}"));
        fs::create_dir_all(&dir).unwrap();
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
        });
        fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        Folder(dir)
    }

    fn model(&self, version: &str, template: &str) -> ModelPrompt {
        let path = self.0.join("template.jinja");
        fs::write(&path, template).unwrap();
        ModelPrompt::load(&ModelFiles {
            engine_version: version.parse().unwrap(),
            chat_template: Some(path),
            encoder: Some(EncoderKind::Reference),
            ..ModelFiles::in_dir(&self.0)
        })
        .unwrap()
    }
}

impl Report {
    fn add(&mut self, template: &str, case: &Json, ours: Result<String, PromptError>) {
        let name = format!("{template} {} {}", case["path"], case["body"]);
        match (ours, case["text"].as_str()) {
            (Ok(ours), Some(theirs)) if ours == theirs => self.texts += 1,
            (Ok(ours), Some(theirs)) => self.faults.push(format!("{name}: ours {ours:?}, theirs {theirs:?}")),
            (Err(_), None) => self.refusals += 1,
            (Ok(_), None) => self.lenient.push(name),
            (Err(error), Some(_)) if error.reason() == "unsupported_field" => self.unsupported += 1,
            // The fixtures' texts of requests with media are those of a model that takes none.
            (Err(error), Some(_)) => self.faults.push(format!("{name}: {}: {error}", error.reason())),
        }
    }
}

/// `lines` with the rules of release `version`.
pub(crate) fn compare(version: &str, lines: &str) -> Report {
    let folder = Folder::new(version);
    let (mut model, mut template) = (None, String::new());
    let mut report = Report::default();
    for line in lines.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        if let Some(source) = case["source"].as_str() {
            template = case["template"].as_str().unwrap().to_owned();
            model = Some(folder.model(version, source));
            continue;
        }
        let model = model.as_ref().unwrap();
        let members = case["body"].to_string();
        let members = members.as_bytes();
        let prepared = match case["path"].as_str().unwrap() {
            "/v1/responses" => {
                // A prompt that may be cut needs the model's length, which these models have not.
                let mut body = case["body"].clone();
                if matches!(body["truncation"], Json::Null) || body["truncation"] == "auto" {
                    body.as_object_mut().unwrap().remove("truncation");
                }
                let members = body.to_string();
                let request = ResponsesRequest { members: members.as_bytes(), ..ResponsesRequest::default() };
                model.prepare(request).map(text)
            }
            "/v1/messages" => {
                model.prepare(MessagesRequest { members, ..MessagesRequest::default() }).map(text)
            }
            other => panic!("{other}"),
        };
        report.add(&template, &case, prepared);
    }
    report
}

fn text(prepared: Prepared<'_>) -> String {
    match prepared {
        Prepared::Text(text) => text.text().to_owned(),
        Prepared::Ids(ids) => panic!("{ids:?}"),
    }
}
