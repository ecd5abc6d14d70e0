//! Added tokens that `tokenizer_config.json` has and `tokenizer.json` has not, or has with other rules.
//!
//! The two say the same where a library wrote them both. Where one was edited, the configuration wins: when the engine's
//! library loads a tokenizer it adds the tokens of `added_tokens_decoder` once more, in the order of their ids, and then
//! the special tokens that neither of the two lists. An added token is found in a text before anything else, so without
//! them a chat whose template writes one would have other ids.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::files::{self, NamedToken};

/// An added token and the rules by which it is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    /// `None`: where it is not special.
    #[serde(default)]
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

/// The part of a tokenizer.json that is compared.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    added_tokens: Vec<Token>,
}

/// `json`, the content of a tokenizer.json, with the added tokens of `config`. Left as it is where it cannot be read: loading
/// it says why.
pub(super) fn complete<'j>(json: &'j [u8], config: &Map<String, Json>) -> Cow<'j, [u8]> {
    let changed = || {
        let listed: Listed = serde_json::from_slice(json).ok()?;
        let changes = changes(listed.added_tokens, config);
        if changes.is_empty() { None } else { apply(serde_json::from_slice(json).ok()?, changes) }
    };
    changed().map_or(Cow::Borrowed(json), Cow::Owned)
}

/// The tokens that are added to `listed`, or that replace one of them, each with its id where it has one.
fn changes(listed: Vec<Token>, config: &Map<String, Json>) -> Vec<(Option<u64>, Token)> {
    let mut known: HashMap<String, Token> =
        listed.into_iter().map(|token| (token.content.clone(), token.resolved())).collect();
    let named = files::named_tokens(config);
    let is_named = |content: &str| named.iter().any(|(_, token)| token.content() == Some(content));
    let decoder = config.get("added_tokens_decoder").and_then(Json::as_object);
    let mut added: Vec<(Option<u64>, Token)> = decoder
        .into_iter()
        .flatten()
        .filter_map(|(id, token)| Some((Some(id.parse().ok()?), Token::deserialize(token).ok()?)))
        .collect();
    added.sort_by_key(|(id, _)| *id);
    for (_, token) in &mut added {
        token.special |= is_named(&token.content);
    }
    let is_listed = |content: &str| {
        known.contains_key(content) || added.iter().any(|(_, token)| token.content == content)
    };
    let mut missing: Vec<(Option<u64>, Token)> = Vec::new();
    for (_, token) in &named {
        if let Some(token) = Token::named(token)
            && !is_listed(&token.content)
            && !missing.iter().any(|(_, other)| other.content == token.content)
        {
            missing.push((None, token));
        }
    }
    let mut changes = Vec::new();
    for (id, token) in added.into_iter().chain(missing) {
        let token = token.resolved();
        if !token.content.is_empty() && known.get(&token.content) != Some(&token) {
            known.insert(token.content.clone(), token.clone());
            changes.push((id, token));
        }
    }
    changes
}

/// The tokenizer with its changes; `None`: it has no list of added tokens, or no vocabulary by name.
fn apply(mut tokenizer: Json, changes: Vec<(Option<u64>, Token)>) -> Option<Vec<u8>> {
    let vocabulary = tokenizer.pointer("/model/vocab").and_then(Json::as_object)?;
    let in_vocabulary: Vec<Option<u64>> =
        changes.iter().map(|(_, token)| vocabulary.get(&token.content).and_then(Json::as_u64)).collect();
    let mut next = vocabulary.values().filter_map(Json::as_u64).max().map_or(0, |last| last + 1);
    let added = tokenizer.get_mut("added_tokens").and_then(Json::as_array_mut)?;
    let id_of = |token: &Json| token.get("id").and_then(Json::as_u64);
    next = added.iter().filter_map(id_of).max().map_or(next, |last| next.max(last + 1));
    for ((id, token), known) in changes.into_iter().zip(in_vocabulary) {
        let is_same = |other: &&mut Json| other.get("content").and_then(Json::as_str) == Some(&token.content);
        let place = added.iter_mut().find(is_same);
        let id = place.as_deref().and_then(id_of).or(known).or(id).unwrap_or(next);
        next = next.max(id + 1);
        let Json::Object(mut fields) = serde_json::to_value(&token).ok()? else { return None };
        fields.insert("id".into(), id.into());
        match place {
            Some(place) => *place = fields.into(),
            None => added.push(fields.into()),
        }
    }
    serde_json::to_vec(&tokenizer).ok()
}

// === impl Token ===

impl Token {
    /// A special token by the name that the configuration gives it: a text, or an object with rules.
    fn named(token: &NamedToken<'_>) -> Option<Self> {
        let rules = Token { special: true, ..Token::plain(token.content()?) };
        match token.0 {
            Json::Object(_) => Some(Token { special: true, ..Token::deserialize(token.0).ok()? }),
            _ => Some(rules),
        }
    }

    fn plain(content: &str) -> Self {
        Token {
            content: content.to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: None,
            special: false,
        }
    }

    fn resolved(self) -> Self {
        Token { normalized: Some(self.normalized.unwrap_or(!self.special)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn added(content: &str, id: u64) -> Json {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    }

    fn tokenizer() -> Json {
        json!({"version": "1.0", "added_tokens": [added("<s>", 0), added("<a>", 3)],
               "model": {"vocab": {"<s>": 0, "x": 1, "<pad>": 2}}})
    }

    fn completed(config: &Json) -> Json {
        let json = tokenizer().to_string();
        serde_json::from_slice(&complete(json.as_bytes(), config.as_object().unwrap())).unwrap()
    }

    #[test]
    fn files_that_agree_change_nothing() {
        let json = tokenizer().to_string();
        let mut decoder = Map::new();
        for (id, token) in [("0", "<s>"), ("3", "<a>")] {
            let mut token = added(token, 0);
            token.as_object_mut().unwrap().shift_remove("id");
            decoder.insert(id.to_owned(), token);
        }
        for config in [
            json!({}),
            json!({"bos_token": "<s>", "eos_token": null}),
            json!({"bos_token": {"content": "<s>", "normalized": true}}),
            json!({"added_tokens_decoder": decoder, "bos_token": "<s>", "extra_special_tokens": {"a": "<a>"}}),
        ] {
            let completed = complete(json.as_bytes(), config.as_object().unwrap());
            assert!(matches!(completed, Cow::Borrowed(_)), "{config}");
        }
        assert_eq!(*complete(b"{", &Map::new()), *b"{");
    }

    #[test]
    fn tokens_of_the_configuration_are_added_in_the_order_of_their_ids_and_then_special_ones() {
        let config = json!({
            "added_tokens_decoder": {
                "10": {"content": "<c>", "special": false, "normalized": true},
                "4": {"content": "<b>", "special": false, "rstrip": true, "normalized": false},
            },
            "pad_token": "<pad>", "eos_token": {"content": "</s>", "lstrip": true, "normalized": true},
            "extra_special_tokens": {"image_token": "<i>"}, "additional_special_tokens": ["<b>", "<d>"],
        });
        let found = completed(&config);
        let found: Vec<_> = found["added_tokens"].as_array().unwrap().iter().skip(2).collect();
        let flags = |lstrip: bool, rstrip: bool, normalized: bool, special: bool| json!({"single_word": false, "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized, "special": special});
        let want = [
            ("<b>", 4, flags(false, true, false, true)),
            ("<c>", 10, flags(false, false, true, false)),
            ("</s>", 11, flags(true, false, true, true)),
            ("<pad>", 2, flags(false, false, false, true)),
            ("<d>", 12, flags(false, false, false, true)),
            ("<i>", 13, flags(false, false, false, true)),
        ];
        assert_eq!(found.len(), want.len(), "{found:?}");
        for (found, (content, id, flags)) in found.into_iter().zip(want) {
            let mut want = flags;
            want["content"] = content.into();
            want["id"] = id.into();
            assert_eq!(*found, want);
        }
    }

    #[test]
    fn rules_of_the_configuration_win() {
        let rules = json!({"content": "<a>", "lstrip": true, "normalized": false, "special": true});
        let found = completed(&json!({"added_tokens_decoder": {"3": rules}}));
        let mut want = added("<a>", 3);
        want["lstrip"] = true.into();
        assert_eq!(found["added_tokens"][1], want);
        assert_eq!(found["added_tokens"].as_array().unwrap().len(), 2);
    }
}
