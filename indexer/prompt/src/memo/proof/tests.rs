use serde_json::json;

use super::*;

/// A change, the rule that is left, and a piece of the reason.
type Case = (fn(&mut Json), CutRule, &'static str);

fn proof(json: Json) -> Proof {
    let definition: Definition = serde_json::from_str(&json.to_string()).unwrap();
    Proof::of(&definition)
}

/// Of the family of Qwen, changed.
fn qwen(change: impl Fn(&mut Json)) -> Proof {
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let mut json = json!({
        "added_tokens": [{"id": 1, "content": "<s>"}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        ]},
        "post_processor": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b", ["b", "c"]]},
    });
    change(&mut json);
    proof(json)
}

#[test]
fn a_known_family_has_every_cut() {
    let rule = CutRule::Characters { newline: NewlineCuts::All, blank: true };
    assert_eq!(qwen(|_| {}), Proof { rule, prefix: GapPrefix::None, obstacles: Vec::new() });
}

#[test]
fn what_is_not_understood_is_refused_with_its_reason() {
    let cases: [Case; 12] = [
        (|json| json["model"]["dropout"] = 0.1.into(), CutRule::Nowhere, "dropped at random"),
        (|json| json["added_tokens"][0]["content"] = "".into(), CutRule::Nowhere, "is empty"),
        (|json| json["post_processor"]["type"] = "New".into(), CutRule::Nowhere, "post-processor is New"),
        (|json| json["model"]["type"] = "Unigram".into(), CutRule::AddedTokens, "model is Unigram"),
        (|json| json["model"]["type"] = Json::Null, CutRule::AddedTokens, "model is not named"),
        (|json| json["normalizer"]["type"] = "NFKC".into(), CutRule::AddedTokens, "normalizer is NFKC"),
        (
            |json| json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed".into(),
            CutRule::AddedTokens,
            "Split",
        ),
        (
            |json| json["pre_tokenizer"]["pretokenizers"][0]["invert"] = true.into(),
            CutRule::AddedTokens,
            "Split",
        ),
        (
            |json| json["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true.into(),
            CutRule::AddedTokens,
            "ByteLevel",
        ),
        (|json| json["pre_tokenizer"] = Json::Null, CutRule::AddedTokens, "normalizer is NFC"),
        (|json| json["added_tokens"][0]["lstrip"] = true.into(), CutRule::Nowhere, "lstrip"),
        (
            |json| json["added_tokens"][0] = json!({"content": "é", "normalized": true}),
            CutRule::Nowhere,
            "normalizer changes",
        ),
    ];
    for (change, rule, reason) in cases {
        let proof = qwen(change);
        assert_eq!(proof.rule, rule, "{reason}");
        let reasons: Vec<String> = proof.obstacles.iter().map(ToString::to_string).collect();
        assert!(reasons.iter().any(|why| why.contains(reason)), "{reason}: {reasons:?}");
    }
}

#[test]
fn every_order_of_the_known_steps_but_theirs_is_refused() {
    let turned = qwen(|json| json["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap().reverse());
    assert_eq!(turned.rule, CutRule::AddedTokens);
    let twice = qwen(|json| {
        let steps = json["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap();
        steps.insert(0, steps[0].clone());
    });
    assert_eq!(twice.rule, CutRule::AddedTokens);
}
