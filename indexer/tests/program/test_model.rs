//! A model small enough for tests: a tokenizer of whole words, and a chat template of a test's choice.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A folder with the model's files; removed when dropped.
pub(crate) struct Folder(PathBuf);

/// Writes each message after its role.
pub(crate) const TEMPLATE: &str = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}\
                                   {% if add_generation_prompt %}assistant :{% endif %}";

impl Folder {
    /// A model with [`TEMPLATE`]. `name` is one that no other test uses.
    pub(crate) fn new(name: &str) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("warmpath-{}-{name}", std::process::id())));
        std::fs::create_dir_all(&folder.0).unwrap();
        folder.write("tokenizer.json", &tokenizer().to_string());
        folder.write("tokenizer_config.json", "{}");
        folder.use_template(TEMPLATE);
        folder
    }

    pub(crate) fn use_template(&self, template: &str) {
        self.write("chat_template.jinja", template);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Words, each with an id; all others are one.
fn tokenizer() -> Value {
    let words =
        ["<s>", "?", ":", "system", "user", "assistant", "a", "b", "c", "d", "e", "tool", "{", "}", "."];
    let vocabulary: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), id.into())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
    })
}
