//! Which chat template a model has: an explicit file; else those in files beside the tokenizer (`chat_template.jinja`, and
//! by name in `additional_chat_templates`); else what `tokenizer_config.json` says (one template, or several by name).
//!
//! A model with media may have another one in `chat_template.json`, which is its processor's: the engine asks that first, but
//! for requests with tools.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::files;
use crate::error::LoadError;
use crate::limits::{MAX_CONFIG_FILE_BYTES, MAX_TEMPLATE_BYTES};

/// Beside the tokenizer; wins over the configuration's.
const TEMPLATE_FILE: &str = "chat_template.jinja";

/// Beside it; holds further ones, each in a file with its name.
const TEMPLATES_FOLDER: &str = "additional_chat_templates";
const TEMPLATE_ENDING: &str = "jinja";

/// The template of a model's processor, where it is in no file of its own.
const PROCESSOR_FILE: &str = "chat_template.json";

/// Of several named templates, the one for requests without tools and the one for those with them.
const DEFAULT: &str = "default";
const WITH_TOOLS: &str = "tool_use";

/// A template's source and the file it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub path: PathBuf,
    pub text: String,
}

/// The templates of a model. At least one is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    pub plain: Option<Source>,
    /// Used in place of `plain` where the request has tools.
    pub with_tools: Option<Source>,
}

/// `None`: the model has no chat template. `config` is the content of the file at `config_path`.
pub(super) fn find(
    dir: &Path,
    explicit: Option<&Path>,
    config_path: &Path,
    config: &Map<String, Json>,
) -> Result<Option<Sources>, LoadError> {
    if let Some(path) = explicit {
        return read(path).map(|plain| Some(Sources { plain: Some(plain), with_tools: None }));
    }
    let tokenizers = of_tokenizer(dir, config_path, config)?;
    if !dir.join(TEMPLATE_FILE).exists()
        && let Some(plain) = of_processor(&dir.join(PROCESSOR_FILE))?
    {
        let with_tools = tokenizers.and_then(|sources| sources.with_tools.or(sources.plain));
        return Ok(Some(Sources { plain: Some(plain), with_tools }));
    }
    Ok(tokenizers)
}

fn of_tokenizer(
    dir: &Path,
    config_path: &Path,
    config: &Map<String, Json>,
) -> Result<Option<Sources>, LoadError> {
    let folder = dir.join(TEMPLATES_FOLDER);
    let named = |name: &str| read_existing(&folder.join(name).with_extension(TEMPLATE_ENDING));
    let plain = match named(DEFAULT)? {
        None => read_existing(&dir.join(TEMPLATE_FILE))?,
        found => found,
    };
    let with_tools = named(WITH_TOOLS)?;
    if plain.is_some() || with_tools.is_some() {
        return Ok(Some(Sources { plain, with_tools }));
    }
    // Templates in files hide the configuration's, whatever their names.
    let is_template = |entry: fs::DirEntry| entry.path().extension().is_some_and(|it| it == TEMPLATE_ENDING);
    if fs::read_dir(&folder).is_ok_and(|entries| entries.flatten().any(is_template)) {
        return Ok(None);
    }
    in_config(config_path, config.get("chat_template"))
}

fn of_processor(path: &Path) -> Result<Option<Source>, LoadError> {
    let Some(fields) = files::read_object(path, MAX_CONFIG_FILE_BYTES)? else { return Ok(None) };
    let text = fields.get("chat_template").and_then(Json::as_str);
    Ok(text.map(|text| Source { path: path.to_owned(), text: text.to_owned() }))
}

fn read_existing(path: &Path) -> Result<Option<Source>, LoadError> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

fn read(path: &Path) -> Result<Source, LoadError> {
    let limit = u64::try_from(MAX_TEMPLATE_BYTES).unwrap_or(u64::MAX);
    let bytes = files::read_bounded(path, limit, "check the path of the chat template")?;
    let text = String::from_utf8(bytes)
        .map_err(|_| LoadError::BadTemplate { path: path.to_owned(), why: "is not UTF-8 text".into() })?;
    Ok(Source { path: path.to_owned(), text })
}

fn in_config(path: &Path, field: Option<&Json>) -> Result<Option<Sources>, LoadError> {
    let source = |text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let bad =
        |why: &str| LoadError::BadField { path: path.to_owned(), field: "chat_template", why: why.into() };
    let named = match field {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::String(text)) => {
            return Ok(Some(Sources { plain: Some(source(text)), with_tools: None }));
        }
        Some(Json::Array(named)) => named,
        Some(_) => return Err(bad("is neither a text nor a list of named templates")),
    };
    let mut sources = Sources { plain: None, with_tools: None };
    for entry in named {
        let text = |key| entry.get(key).and_then(Json::as_str);
        let (Some(name), Some(template)) = (text("name"), text("template")) else {
            return Err(bad("has an entry without the texts \"name\" and \"template\""));
        };
        match name {
            DEFAULT => sources.plain = Some(source(template)),
            WITH_TOOLS => sources.with_tools = Some(source(template)),
            // Other names are used only where the engine is told so on its command line.
            _ => {}
        }
    }
    if sources.plain.is_none() && sources.with_tools.is_none() {
        return Err(bad(
            "names neither \"default\" nor \"tool_use\"; give the one the engine uses as chat_template",
        ));
    }
    Ok(Some(sources))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from_config(chat_template: Json) -> Result<Option<Sources>, LoadError> {
        in_config(Path::new("tokenizer_config.json"), Some(&chat_template))
    }

    #[test]
    fn one_template_serves_both_kinds_of_request() {
        let sources = from_config(json!("{{ x }}")).unwrap().unwrap();
        assert_eq!(sources.plain.unwrap().text, "{{ x }}");
        assert_eq!(sources.with_tools, None);
    }

    #[test]
    fn named_templates_are_told_apart() {
        let sources = from_config(json!([
            {"name": "default", "template": "d"}, {"name": "rag", "template": "r"}, {"name": "tool_use", "template": "t"},
        ]))
        .unwrap()
        .unwrap();
        assert_eq!(sources.plain.unwrap().text, "d");
        assert_eq!(sources.with_tools.unwrap().text, "t");
    }

    #[test]
    fn absent_template_is_no_error_and_a_wrong_one_names_its_field() {
        assert!(from_config(Json::Null).unwrap().is_none());
        for wrong in [json!(1), json!([{"name": "default"}]), json!([{"name": "rag", "template": "r"}])] {
            let error = from_config(wrong).unwrap_err().to_string();
            assert!(error.contains("field \"chat_template\""), "{error}");
        }
    }

    #[test]
    fn templates_in_files_of_their_own_hide_those_of_the_configuration() {
        let dir = std::env::temp_dir().join(format!("warmpath-templates-{}", std::process::id()));
        let folder = dir.join(TEMPLATES_FOLDER);
        fs::create_dir_all(&folder).unwrap();
        let config: Map<String, Json> = json!({"chat_template": "config"}).as_object().unwrap().clone();
        let found = || {
            let found = find(&dir, None, Path::new("c.json"), &config).unwrap();
            let text = |source: Option<Source>| source.map(|source| source.text);
            found.map(|sources| (text(sources.plain), text(sources.with_tools)))
        };
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        let sources = |plain: &str, with_tools: Option<&str>| {
            Some((Some(plain.to_owned()), with_tools.map(str::to_owned)))
        };
        assert_eq!(found(), sources("config", None));
        write(PROCESSOR_FILE, r#"{"chat_template": "processor"}"#);
        assert_eq!(found(), sources("processor", Some("config")));
        write("additional_chat_templates/rag.jinja", "rag");
        assert_eq!(found(), sources("processor", None));
        fs::remove_file(dir.join(PROCESSOR_FILE)).unwrap();
        assert_eq!(found(), None, "none of them is for plain requests or those with tools");
        write(TEMPLATE_FILE, "beside");
        write(PROCESSOR_FILE, r#"{"chat_template": "processor"}"#);
        assert_eq!(found(), sources("beside", None));
        write("additional_chat_templates/tool_use.jinja", "tools");
        assert_eq!(found(), sources("beside", Some("tools")));
        write("additional_chat_templates/default.jinja", "default");
        assert_eq!(found(), sources("default", Some("tools")));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn explicit_file_wins_over_the_one_beside_the_tokenizer() {
        let dir = std::env::temp_dir().join(format!("warmpath-template-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let config: Map<String, Json> = json!({"chat_template": "config"}).as_object().unwrap().clone();
        let explicit = dir.join("mine.jinja");
        let found = |explicit: Option<&Path>| {
            find(&dir, explicit, Path::new("c.json"), &config).unwrap().unwrap().plain.unwrap().text
        };
        assert_eq!(found(None), "config");
        fs::write(dir.join(TEMPLATE_FILE), "beside").unwrap();
        assert_eq!(found(None), "beside");
        fs::write(&explicit, "explicit").unwrap();
        assert_eq!(found(Some(&explicit)), "explicit");
        fs::remove_dir_all(&dir).unwrap();
        let error = find(&dir, Some(&explicit), Path::new("c.json"), &config).unwrap_err().to_string();
        assert!(error.contains("mine.jinja: not found"), "{error}");
    }
}
