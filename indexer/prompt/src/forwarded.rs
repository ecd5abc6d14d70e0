//! `kv_transfer_params.prompt_token_ids`: the ids of a request's prompt, forwarded with it by an earlier stage of serving.
//! The engine serves them in place of what it would render.

use serde_json::Value as Json;

use crate::error::PromptError;
use crate::version::RenderingRules;

/// The ids in the value of `kv_transfer_params`; `None`: the engine renders the request. `has_media`: media are in it.
pub(crate) fn read(
    rules: &RenderingRules,
    params: Option<&Json>,
    has_media: bool,
) -> Result<Option<Vec<u32>>, PromptError> {
    let ids = match params {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::Object(params)) => params.get("prompt_token_ids"),
        Some(_) => return Err(PromptError::refused("kv_transfer_params is no object")),
    };
    let Some(ids) = ids.filter(|ids| !ids.is_null() && rules.reads_prompt_token_ids) else { return Ok(None) };
    if rules.checks_prompt_token_ids && has_media {
        return Ok(None);
    }
    let id = |id: &Json| id.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids: Option<Vec<u32>> = ids.as_array().and_then(|ids| ids.iter().map(id).collect());
    let ids = ids.ok_or_else(|| PromptError::refused("prompt_token_ids is no list of token ids"))?;
    take(rules, ids)
}

/// `ids`, unless they are none to the engine.
pub(crate) fn take(rules: &RenderingRules, ids: Vec<u32>) -> Result<Option<Vec<u32>>, PromptError> {
    if !ids.is_empty() {
        return Ok(Some(ids));
    }
    if rules.checks_prompt_token_ids {
        return Err(PromptError::refused("prompt_token_ids is an empty list"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version::EngineVersion;

    fn ids(minor: u16, params: Json, has_media: bool) -> Result<Option<Vec<u32>>, &'static str> {
        let rules = RenderingRules::of(EngineVersion::new(0, minor));
        read(&rules, Some(&params), has_media).map_err(|error| error.reason())
    }

    #[test]
    fn ids_are_read_by_engines_that_know_them() {
        let given = || json!({"do_remote_decode": false, "prompt_token_ids": [1, 2]});
        for (minor, want) in [(26, None), (27, Some(vec![1, 2])), (32, Some(vec![1, 2]))] {
            assert_eq!(ids(minor, given(), false), Ok(want), "0.{minor}");
        }
        for none in [json!({}), json!({"prompt_token_ids": null}), Json::Null] {
            assert_eq!(ids(32, none, false), Ok(None));
        }
    }

    #[test]
    fn media_win_over_ids_from_the_release_that_looks_for_them() {
        let given = || json!({"prompt_token_ids": [1]});
        assert_eq!(ids(31, given(), true), Ok(Some(vec![1])));
        assert_eq!(ids(32, given(), true), Ok(None));
    }

    #[test]
    fn ids_that_are_none_are_refused_or_passed_over() {
        let empty = || json!({"prompt_token_ids": []});
        assert_eq!(ids(31, empty(), false), Ok(None));
        assert_eq!(ids(32, empty(), false), Err("bad_prompt"));
        for odd in [json!([1.0]), json!([-1]), json!("12"), json!([true]), json!({"a": 1})] {
            assert_eq!(ids(32, json!({"prompt_token_ids": odd}), false), Err("bad_prompt"));
        }
    }
}
