//! Folders of models that cases make for themselves: another vocabulary, another template, templates in other places.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::case::fresh_dir;
use crate::paths;
use crate::prompts;
use crate::stack::MODEL;

/// Ids of the words model that are no words.
const BEGIN: &str = "<s>";
const BEGIN_ID: u32 = 1;

/// The template of the words model: each message begins with `<s>`, as the tokenizer's own texts do.
const WORDS_TEMPLATE: &str = "{% for m in messages %}<s> {{ m.role }} {{ m.content }} {% endfor %}\
                              {% if add_generation_prompt %}<s> assistant{% endif %}";

/// Where a chat template stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePlace {
    /// `chat_template.jinja` beside the tokenizer.
    File,
    /// The member `chat_template` of `tokenizer_config.json`.
    Config,
}

/// A model with a vocabulary of its own: the words of the test prompts and a few more, each a token. Its tokenizer puts
/// `<s>` before every text, and so does its template. `name` is that of the case, so that no two write one folder.
pub fn words(name: &str) -> Result<PathBuf> {
    let dir = folder(name);
    let words = prompts::every_word();
    let list = ["<unk>", BEGIN, "system", "user", "assistant", "tool"];
    let vocabulary: Map<String, Value> = list
        .into_iter()
        .chain(words.split_whitespace())
        .zip(0..)
        .map(|(word, id)| (word.to_owned(), json!(id)))
        .collect();
    let added = json!([{
        "id": BEGIN_ID, "content": BEGIN, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false,
    }]);
    let template = json!([{ "SpecialToken": { "id": BEGIN, "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }]);
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "decoder": null,
        "post_processor": {
            "type": "TemplateProcessing", "single": template, "pair": template,
            "special_tokens": { BEGIN: { "id": BEGIN, "ids": [BEGIN_ID], "tokens": [BEGIN] } },
        },
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>" },
    });
    write(&dir, "tokenizer.json", &tokenizer.to_string())?;
    let config = json!({ "bos_token": BEGIN, "chat_template": WORDS_TEMPLATE });
    write(&dir, "tokenizer_config.json", &config.to_string())?;
    Ok(dir)
}

/// The default model with another chat template, or its own (none given) in another place.
pub fn with_template(name: &str, template: Option<&str>, place: TemplatePlace) -> Result<PathBuf> {
    let dir = folder(name);
    let source = paths::tokenizer(MODEL)?.canonicalize()?;
    std::os::unix::fs::symlink(source.join("tokenizer.json"), dir.join("tokenizer.json"))?;
    let config = std::fs::read(source.join("tokenizer_config.json"))?;
    let mut config: Value = serde_json::from_slice(&config)?;
    let own = config["chat_template"].as_str().context("the model's template is no text")?.to_owned();
    let template = template.unwrap_or(&own);
    let fields = config.as_object_mut().context("tokenizer_config.json is no object")?;
    match place {
        TemplatePlace::Config => {
            fields.insert("chat_template".to_owned(), template.into());
        }
        TemplatePlace::File => {
            fields.remove("chat_template");
            write(&dir, "chat_template.jinja", template)?;
        }
    }
    write(&dir, "tokenizer_config.json", &config.to_string())?;
    Ok(dir)
}

fn folder(name: &str) -> PathBuf {
    fresh_dir(&paths::target().join("e2e/models").join(name))
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
