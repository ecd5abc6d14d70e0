//! The section `models`.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::{Map, Value as Json};
use serde_yaml_ng::Value;
use warmpath_prompt::{EngineVersion, RenderingRules};

use super::super::fields::{Fields, Problems};
use super::super::{BlockHash, ContentFormat, ModelConfig, defaults};

/// Values of `models[].block_hash.algorithm`.
const BLOCK_HASHES: [&str; 5] = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "none"];
/// Context lengths, in tokens: up to what a prompt of token ids may have.
const MODEL_LEN: (u64, u64) = (1, 1 << 22);

pub(super) fn checked(items: Vec<(String, Value)>, p: &mut Problems) -> Vec<ModelConfig> {
    let mut names = HashSet::new();
    items
        .into_iter()
        .map(|(path, item)| {
            let mut fields = Fields::of(path, item, p);
            let name =
                fields.required_text("name", "write the base model's name, as the engines serve it", p);
            let aliases = fields.texts("aliases", p);
            let adapters = fields.texts("adapters", p);
            for taken in std::iter::once(&name).chain(&aliases).chain(&adapters).filter(|n| !n.is_empty()) {
                if !names.insert(taken.clone()) {
                    let remedy = "a name, alias or adapter used before; every name means one model";
                    p.note(&fields.path_of("name"), Some(&Value::String(taken.clone())), remedy);
                }
            }
            let model = ModelConfig {
                name,
                aliases,
                adapters,
                tokenizer_dir: fields.text("tokenizer_dir", p).map(PathBuf::from),
                chat_template: fields.text("chat_template", p).map(PathBuf::from),
                engine_version: engine_version(&mut fields, p),
                content_format: content_format(&mut fields, p),
                max_model_len: usize::try_from(fields.number("max_model_len", MODEL_LEN, 0, p))
                    .ok()
                    .filter(|tokens| *tokens > 0),
                trust_request_chat_template: fields.flag("trust_request_chat_template", p),
                default_chat_template_kwargs: fields.json("default_chat_template_kwargs", p),
                exclude_tools_when_tool_choice_none: fields.flag("exclude_tools_when_tool_choice_none", p),
                rendering: rendering(&mut fields, p),
                block_hash: block_hash(fields.mapping("block_hash", p), p),
            };
            fields.finish(p);
            model
        })
        .collect()
}

fn engine_version(fields: &mut Fields, p: &mut Problems) -> Option<String> {
    let version = fields.text("engine_version", p)?;
    if version.parse::<EngineVersion>().is_err() {
        let remedy = "expected MAJOR.MINOR of the engine's release, such as \"0.32\"; left out, it is what the engines answer";
        p.note(&fields.path_of("engine_version"), Some(&Value::String(version.clone())), remedy);
    }
    Some(version)
}

/// Each rule for itself, so that every wrong one is named.
fn rendering(fields: &mut Fields, p: &mut Problems) -> Map<String, Json> {
    let rendering = fields.json("rendering", p);
    for (name, value) in &rendering {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        if let Err(error) = RenderingRules::of(EngineVersion::default()).overridden(&alone) {
            let path = fields.path_of(&format!("rendering.{name}"));
            p.note(&path, Some(&Value::String(value.to_string())), error.to_string());
        }
    }
    rendering
}

fn block_hash(mut fields: Fields, p: &mut Problems) -> BlockHash {
    let algorithm = fields.text("algorithm", p).unwrap_or_else(|| defaults::BLOCK_HASH.to_owned());
    let known = BLOCK_HASHES.into_iter().find(|known| *known == algorithm);
    if known.is_none() {
        let remedy = format!("expected one of {}", BLOCK_HASHES.join(", "));
        p.note(&fields.path_of("algorithm"), Some(&Value::String(algorithm)), remedy);
    }
    let block_hash =
        BlockHash { algorithm: known.unwrap_or(defaults::BLOCK_HASH), seed: fields.text("seed", p) };
    fields.finish(p);
    block_hash
}

fn content_format(fields: &mut Fields, p: &mut Problems) -> ContentFormat {
    match fields.text("content_format", p).as_deref() {
        None | Some("auto") => ContentFormat::Auto,
        Some("string") => ContentFormat::String,
        Some("openai") => ContentFormat::OpenAi,
        Some(other) => {
            let path = fields.path_of("content_format");
            p.note(&path, Some(&Value::String(other.to_owned())), "expected auto, string or openai");
            ContentFormat::Auto
        }
    }
}
