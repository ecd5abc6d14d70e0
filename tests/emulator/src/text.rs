//! Text to token ids and back: a Hugging Face tokenizer, a chat template, and words for generated tokens.

use std::path::{Path, PathBuf};

use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use tokenizers::Tokenizer;
use tokio::runtime::{Handle, RuntimeFlavor};

mod developer;

use crate::version::VllmVersion;

/// Words that generated text is made of; each must be one token that survives decoding and encoding.
const WORDS_MAX: usize = 256;
/// Letters of such a word, at least.
const WORD_LETTERS_MIN: usize = 3;

/// Why the files could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A file is missing or unreadable.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a tokenizer.
    #[error("cannot load tokenizer {path}: {reason}")]
    Tokenizer {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// `tokenizer_config.json` is not JSON.
    #[error("cannot parse {path}: {source}")]
    Config {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The chat template is not Jinja.
    #[error("cannot compile the chat template: {0}")]
    Template(minijinja::Error),
}

/// Why a prompt has no token ids.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PromptError {
    #[error("chat template failed: {0}")]
    Render(#[from] minijinja::Error),
    #[error("this model has no chat template")]
    NoTemplate,
    #[error("tokenizer failed: {0}")]
    Encode(String),
}

/// What a chat request gives to the template.
#[derive(Debug, Default)]
pub(crate) struct ChatPrompt {
    pub(crate) messages: serde_json::Value,
    pub(crate) tools: Option<serde_json::Value>,
    pub(crate) add_generation_prompt: bool,
    /// Leave out what the template puts behind the last message's text.
    pub(crate) continue_final_message: bool,
    /// Further variables, which win over the ones above.
    pub(crate) kwargs: serde_json::Map<String, serde_json::Value>,
}

/// The text side of one model.
pub(crate) struct Text {
    tokenizer: Tokenizer,
    template: Option<Environment<'static>>,
    special: Vec<(String, String)>,
    words: Vec<u32>,
    /// The release makes system messages of those of the role `developer`, which the template does not know.
    converts_developer: bool,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("has_template", &self.template.is_some()).finish_non_exhaustive()
    }
}

const TEMPLATE: &str = "chat";

impl Text {
    /// Loads `tokenizer.json`, `tokenizer_config.json` and, where it exists, `chat_template.jinja`.
    pub(crate) fn load(
        dir: &Path,
        vocabulary: OutputVocabulary,
        version: VllmVersion,
    ) -> Result<Self, TextError> {
        let path = dir.join("tokenizer.json");
        let tokenizer = Tokenizer::from_file(&path)
            .map_err(|error| TextError::Tokenizer { path: path.clone(), reason: error.to_string() })?;
        let path = dir.join("tokenizer_config.json");
        let config: serde_json::Value = serde_json::from_str(&read(&path)?)
            .map_err(|source| TextError::Config { path: path.clone(), source })?;
        let jinja = dir.join("chat_template.jinja");
        let template = match jinja.exists() {
            true => Some(read(&jinja)?),
            false => config.get("chat_template").and_then(|value| value.as_str()).map(str::to_owned),
        };
        let knows_developer = template.as_ref().is_some_and(|text| text.contains("developer"));
        let template = template.map(compile).transpose().map_err(TextError::Template)?;
        let special = ["bos_token", "eos_token", "pad_token", "unk_token"];
        let special = special.into_iter().filter_map(|name| {
            let value = config.get(name)?;
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some((name.to_owned(), text.to_owned()))
        });
        let words = words(&tokenizer, vocabulary);
        let converts_developer = version.converts_developer() && !knows_developer;
        Ok(Self { special: special.collect(), tokenizer, template, words, converts_developer })
    }

    /// Token ids of a text.
    pub(crate) fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, PromptError> {
        let encoding = beside_the_runtime(|| self.tokenizer.encode_fast(text, add_special_tokens));
        Ok(encoding.map_err(|error| PromptError::Encode(error.to_string()))?.get_ids().to_vec())
    }

    /// Token ids of a chat.
    pub(crate) fn encode_chat(
        &self,
        chat: &ChatPrompt,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, PromptError> {
        let environment = self.template.as_ref().ok_or(PromptError::NoTemplate)?;
        let mut context = std::collections::BTreeMap::new();
        for (name, text) in &self.special {
            context.insert(name.clone(), minijinja::Value::from(text.clone()));
        }
        let mut messages = chat.messages.clone();
        if self.converts_developer {
            developer::to_system(&mut messages);
        }
        context.insert("messages".into(), jinja_value(&messages));
        let tools = chat.tools.as_ref().map_or(minijinja::Value::from(()), jinja_value);
        context.insert("tools".into(), tools);
        context.insert("add_generation_prompt".into(), chat.add_generation_prompt.into());
        for (name, value) in &chat.kwargs {
            context.insert(name.clone(), jinja_value(value));
        }
        let mut rendered = environment.get_template(TEMPLATE)?.render(context)?;
        if chat.continue_final_message {
            let last = messages.as_array().and_then(|list| list.last()?["content"].as_str()).map(str::trim);
            let end = last.and_then(|last| Some(rendered.rfind(last)? + last.len()));
            rendered.truncate(end.unwrap_or(rendered.len()));
        }
        self.encode(&rendered, add_special_tokens)
    }

    /// The ids that generated text is made of.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// Text of one generated token.
    pub(crate) fn decode(&self, token: u32) -> String {
        self.tokenizer.decode(&[token], true).unwrap_or_default()
    }
}

fn read(path: &Path) -> Result<String, TextError> {
    std::fs::read_to_string(path).map_err(|source| TextError::Read { path: path.to_owned(), source })
}

fn compile(source: String) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("tojson", python_json);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, minijinja::Error> {
        Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
    });
    environment.add_template_owned(TEMPLATE, source)?;
    Ok(environment)
}

/// What generated text is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OutputVocabulary {
    /// Single-token words with a leading blank: the text is encoded as the ids that were generated.
    #[default]
    Words,
    /// Letters, each a token: encoded again, their text becomes other and fewer ids, as it may with a real model.
    Letters,
}

/// The ids of this vocabulary that come back as themselves when they are decoded and encoded alone.
fn words(tokenizer: &Tokenizer, kind: OutputVocabulary) -> Vec<u32> {
    let is_lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
    let fits = |text: &str| match kind {
        OutputVocabulary::Words => {
            text.strip_prefix(' ').is_some_and(|word| word.len() >= WORD_LETTERS_MIN && is_lower(word))
        }
        OutputVocabulary::Letters => text.len() == 1 && is_lower(text),
    };
    let vocabulary = u32::try_from(tokenizer.get_vocab_size(false)).unwrap_or(u32::MAX);
    let good = (0..vocabulary).filter(|&id| {
        let Ok(text) = tokenizer.decode(&[id], true) else { return false };
        fits(&text) && tokenizer.encode_fast(text.as_str(), false).is_ok_and(|e| e.get_ids() == [id])
    });
    good.take(WORDS_MAX).collect()
}

/// JSON as template values. By hand, because numbers of arbitrary precision do not pass through serde.
fn jinja_value(json: &serde_json::Value) -> minijinja::Value {
    use minijinja::Value;
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.clone()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(jinja_value).collect::<Vec<_>>()),
        serde_json::Value::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(name, value)| (name.clone(), jinja_value(value))))
        }
    }
}

/// `tojson` as Python's `json.dumps(value, ensure_ascii=False)` writes it: blanks after commas and colons, no escaping
/// for HTML.
fn python_json(value: &minijinja::Value) -> Result<String, minijinja::Error> {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, PythonFormatter);
    let failed = |reason: String| minijinja::Error::new(minijinja::ErrorKind::BadSerialization, reason);
    serde::Serialize::serialize(value, &mut serializer).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(out).map_err(|error| failed(error.to_string()))
}

struct PythonFormatter;

impl serde_json::ser::Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// Runs what may take seconds, as a text of megabytes does, without keeping the runtime's other tasks waiting: engines
/// have threads for that.
fn beside_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    let has_threads =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if has_threads { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(template: &str, name: &str, value: &serde_json::Value) -> String {
        let environment = compile(template.to_owned()).unwrap();
        let context = minijinja::Value::from_pairs([(name.to_owned(), jinja_value(value))]);
        environment.get_template(TEMPLATE).unwrap().render(context).unwrap()
    }

    #[test]
    fn messages_reach_the_template_as_maps_with_python_methods() {
        let template = "{% for m in messages %}{% if m.content.startswith('h') %}[{{ m.role }}]{{ m.content }}\n\
                        {% endif %}{% endfor %}";
        let messages = json!([{"role": "user", "content": "hi"}, {"role": "user", "content": "no"}]);
        assert_eq!(rendered(template, "messages", &messages), "[user]hi\n");
    }

    #[test]
    fn tojson_writes_what_python_writes() {
        let tools = json!({"b": [1, 2.5, null], "a": "<ü> & 'q'", "big": 18_446_744_073_709_551_615_u64});
        let expected = r#"{"b": [1, 2.5, null], "a": "<ü> & 'q'", "big": 18446744073709551615}"#;
        assert_eq!(rendered("{{ tools | tojson }}", "tools", &tools), expected);
    }

    #[test]
    fn raise_exception_fails_with_its_message() {
        let environment = compile("{{ raise_exception('no system role') }}".to_owned()).unwrap();
        let error =
            environment.get_template(TEMPLATE).unwrap().render(minijinja::Value::from(())).unwrap_err();
        assert!(error.to_string().contains("no system role"), "{error}");
    }

    /// The only thread of the runtime must be free for the task that the work waits for.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_work_keeps_no_other_task_waiting() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let patience = std::time::Duration::from_secs(10);
        let work = tokio::spawn(async move {
            tokio::spawn(async move { sender.send(7) });
            beside_the_runtime(|| receiver.recv_timeout(patience))
        });
        assert_eq!(work.await.unwrap(), Ok(7));
    }
}
