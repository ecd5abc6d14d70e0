//! Rules of a deployment whose engine is patched, or not of one release.

use serde_json::{Map, Value as Json};

use super::RenderingRules;

/// An override that names no rule, or gives it a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("\"{name}\" is no rendering rule; expected one of {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("rendering rule \"{name}\" cannot be {value}: {why}")]
    BadValue { name: String, value: String, why: String },
}

impl RenderingRules {
    /// The rules with some of them replaced: by name, those of a group as `group.name`.
    pub fn overridden(self, overrides: &Map<String, Json>) -> Result<Self, OverrideError> {
        let mut rules = self;
        for (name, value) in overrides {
            rules = rules.with(name, value)?;
        }
        Ok(rules)
    }

    fn with(self, name: &str, value: &Json) -> Result<Self, OverrideError> {
        let bad = |error: serde_json::Error| OverrideError::BadValue {
            name: name.to_owned(),
            value: value.to_string(),
            why: error.to_string(),
        };
        let mut rules = serde_json::to_value(self).map_err(bad)?;
        let pointer = format!("/{}", name.replace('.', "/"));
        match rules.pointer_mut(&pointer).filter(|rule| !rule.is_object()) {
            Some(rule) => rule.clone_from(value),
            None => return Err(OverrideError::Unknown { name: name.to_owned(), known: names(&rules) }),
        }
        serde_json::from_value(rules).map_err(bad)
    }
}

/// The names of all rules.
fn names(rules: &Json) -> Vec<String> {
    let mut names = Vec::new();
    for (name, rule) in rules.as_object().into_iter().flatten() {
        match rule.as_object() {
            Some(group) => names.extend(group.keys().map(|inner| format!("{name}.{inner}"))),
            None => names.push(name.clone()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version::{EngineVersion, InlineSystem};

    fn overridden(overrides: Json) -> Result<RenderingRules, OverrideError> {
        RenderingRules::of(EngineVersion::new(0, 32)).overridden(overrides.as_object().unwrap())
    }

    #[test]
    fn every_rule_can_be_replaced_by_its_own_value() {
        let rules = RenderingRules::of(EngineVersion::new(0, 16));
        let all = serde_json::to_value(rules).unwrap();
        let mut overrides = Map::new();
        for name in names(&all) {
            let value = all.pointer(&format!("/{}", name.replace('.', "/"))).unwrap().clone();
            overrides.insert(name, value);
        }
        assert!(overrides.len() > 40, "{}", overrides.len());
        assert_eq!(overridden(Json::Object(overrides)), Ok(rules));
    }

    #[test]
    fn one_rule_is_replaced_and_no_other() {
        let plain = overridden(json!({})).unwrap();
        let changed =
            overridden(json!({"converts_developer": false, "anthropic.inline_system": "merged"})).unwrap();
        assert!(plain.converts_developer && !changed.converts_developer);
        assert_eq!(changed.anthropic.inline_system, InlineSystem::Merged);
        let back = json!({"converts_developer": true, "anthropic.inline_system": "kept_by_template"});
        assert_eq!(changed.overridden(back.as_object().unwrap()), Ok(plain));
    }

    #[test]
    fn unknown_names_and_values_are_told() {
        for name in ["nonsense", "anthropic", "responses.nonsense", ""] {
            let error = overridden(json!({name: true})).unwrap_err().to_string();
            assert!(error.contains("responses.merges_items"), "{error}");
        }
        let error = overridden(json!({"odd_arguments": "lost"})).unwrap_err().to_string();
        assert!(error.contains("odd_arguments") && error.contains("emptied"), "{error}");
        assert!(overridden(json!({"passes_task": 1})).is_err());
    }
}
