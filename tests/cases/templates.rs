//! From messages to token ids: what is predicted follows the engine, whatever the template does with a conversation.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::{Call, Receipt};
use warmpath_tests::model_folders::{TemplatePlace, with_template, words};
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::stack::{MODEL, Stack, StackBuilder};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
/// Tokens of a block of the emulated engines.
const BLOCK: u64 = 16;

fn one_engine() -> Result<StackBuilder> {
    Ok(two_engines()?.engines(1))
}

fn two_engines() -> Result<StackBuilder> {
    Ok(Stack::builder()?.without_speculation())
}

/// Engines and indexer with the model in this folder.
fn of_folder(stack: Result<StackBuilder>, folder: Result<std::path::PathBuf>) -> Result<StackBuilder> {
    let (stack, folder) = (stack?, folder?);
    let of_indexer = folder.clone();
    Ok(stack
        .each_engine(move |engine| engine.tokenizer = Some(folder.clone()))
        .indexer(move |config| config["models"][0]["tokenizer_dir"] = json!(of_indexer)))
}

fn user(seed: u64, tokens: usize) -> Value {
    json!({ "role": "user", "content": text(seed, tokens) })
}

// B1 (vllm-project/production-stack#1045)
#[test]
fn a_long_chat_that_comes_again_is_predicted_to_be_cached() {
    case(two_engines(), async |stack| {
        let talk = || chat(json!([{ "role": "system", "content": text(1, 3000) }, user(2, 2000)]));
        let first = stack.send_predicted(talk()).await?.receipt();
        assert_eq!(first.cached_tokens, Some(0));
        let again = stack.send_predicted(talk()).await?.receipt();
        assert_eq!(again.endpoint, first.endpoint);
        assert!(tokens(&again) > 5000, "{again:?}");
        assert!(cached(&again) * 10 > tokens(&again) * 9, "{again:?}");
        Ok(())
    });
}

// B6 (vllm-project/vllm#2012)
#[test]
fn the_token_that_begins_a_text_comes_once() {
    let stack = of_folder(one_engine(), words("templates_begin"));
    case(stack, async |stack| {
        let prompt = text(1, 40);
        let bare = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 2, "add_special_tokens": false });
        let talk = json!([{ "role": "user", "content": prompt }]);
        for (what, call, tokens) in [
            ("a completion gets the tokenizer's", completion(prompt.clone()), 41),
            ("unless it says no", Call::json(COMPLETIONS, &bare), 40),
            // Before the message and before the answer, with a role each.
            ("a chat gets the template's only", chat(talk.clone()), 44),
        ] {
            for cached in [0, (tokens - 1) / BLOCK * BLOCK] {
                let answer = stack.send_predicted(call.clone()).await.context(what)?;
                let receipt = answer.receipt();
                assert_eq!(
                    (receipt.prompt_tokens, receipt.cached_tokens),
                    (Some(tokens), Some(cached)),
                    "{what}"
                );
            }
        }
        Ok(())
    });
}

/// Tokens of the prompt; those predicted to be cached.
fn tokens(receipt: &Receipt) -> u64 {
    receipt.prompt_tokens.unwrap_or_default()
}

fn cached(receipt: &Receipt) -> u64 {
    receipt.cached_tokens.unwrap_or_default()
}

/// A body with these members added.
fn with(body: &Value, members: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

// B7 (vllm-project/vllm#5278)
#[test]
fn every_field_that_changes_the_prompt_is_followed_or_named() {
    let scored = [
        (CHAT, json!({ "add_generation_prompt": false })),
        (CHAT, json!({ "add_generation_prompt": false, "continue_final_message": true })),
        (CHAT, json!({ "chat_template_kwargs": { "enable_thinking": false } })),
        (CHAT, json!({ "chat_template_kwargs": { "enable_thinking": true, "nobody_reads_it": [1] } })),
        (CHAT, json!({ "documents": [{ "title": "a", "text": "b" }] })),
        (CHAT, json!({ "reasoning_effort": "low" })),
        (CHAT, json!({ "truncate_prompt_tokens": 70 })),
        (CHAT, json!({ "kv_transfer_params": { "prompt_token_ids": (1000..1100).collect::<Vec<u32>>() } })),
        (COMPLETIONS, json!({ "add_special_tokens": true })),
        (COMPLETIONS, json!({ "add_special_tokens": false })),
        (COMPLETIONS, json!({ "truncate_prompt_tokens": 70 })),
        (COMPLETIONS, json!({ "truncate_prompt_tokens": 70, "truncation_side": "left" })),
        (COMPLETIONS, json!({ "truncate_prompt_tokens": 70, "truncation_side": "right" })),
        (COMPLETIONS, json!({ "echo": false, "n": 2, "logprobs": null, "suffix": null })),
    ];
    let named = [
        (CHAT, json!({ "chat_template": "{{ messages }}" })),
        (CHAT, json!({ "chat_template_kwargs": { "chat_template": "{{ messages }}" } })),
        (CHAT, json!({ "chat_template_kwargs": 7 })),
        (CHAT, json!({ "add_generation_prompt": "maybe" })),
        (COMPLETIONS, json!({ "truncate_prompt_tokens": "many" })),
        (COMPLETIONS, json!({ "truncation_side": "middle", "truncate_prompt_tokens": 70 })),
    ];
    let base = |path: &str, seed: u64| match path {
        CHAT => json!({
            "model": MODEL, "max_tokens": 2,
            "messages": [user(seed, 60), { "role": "assistant", "content": format!("well{}", text(seed + 1, 60)) }],
        }),
        _ => json!({ "model": MODEL, "max_tokens": 2, "prompt": text(seed, 100) }),
    };
    case(one_engine(), async |stack| {
        for ((path, members), seed) in scored.iter().zip((100..).step_by(10)) {
            let call = Call::json(path, &with(&base(path, seed), members));
            for turn in 0..2 {
                let answer =
                    stack.send_predicted(call.clone()).await.with_context(|| format!("{members}"))?;
                let cached = answer.receipt().cached_tokens;
                assert_eq!(turn == 0, cached == Some(0), "{members}, turn {turn}: {cached:?}");
            }
        }
        for ((path, members), seed) in named.iter().zip((1000..).step_by(10)) {
            let receipt =
                stack.send_alone(Call::json(path, &with(&base(path, seed), members))).await?.receipt();
            assert_eq!(receipt.outcome, "load_only", "{members}: {receipt:?}");
            let reason = receipt.reason.as_str();
            assert!(reason == "unsupported_field" || reason == "bad_prompt", "{members}: {reason}");
        }
        Ok(())
    });
}

// B9 (sgl-project/sglang#40533)
#[test]
fn reasoning_that_the_template_ignores_does_not_count() {
    const IGNORES_REASONING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                                     {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let folder = with_template("templates_ignores", Some(IGNORES_REASONING), TemplatePlace::File);
    case(of_folder(one_engine(), folder), async |stack| {
        let assistant = |reasoning: u64| json!({ "role": "assistant", "content": "well", "reasoning_content": text(reasoning, 200) });
        let first =
            stack.send_predicted(chat(json!([user(1, 100), assistant(2), user(3, 50)]))).await?.receipt();
        // The same conversation with other thoughts is the same prompt.
        let other =
            stack.send_predicted(chat(json!([user(1, 100), assistant(4), user(3, 50)]))).await?.receipt();
        assert_eq!(other.prompt_tokens, first.prompt_tokens);
        assert!(first.prompt_tokens < Some(200), "the thoughts are in the prompt: {first:?}");
        assert!(cached(&other) + BLOCK >= tokens(&first), "{other:?}");
        Ok(())
    });
}

// B11 (raullenchai/Rapid-MLX#214)
#[test]
fn thoughts_that_a_template_drops_from_earlier_turns_are_not_predicted() {
    case(one_engine(), async |stack| {
        // While the tools are at work, the thoughts of this turn are in the prompt; with the next question they go.
        let call = json!({ "id": "1", "type": "function", "function": { "name": "w", "arguments": "{\"city\": \"Kyiv\"}" } });
        let thinking = json!({
            "role": "assistant", "content": "", "reasoning_content": text(2, 300), "tool_calls": [call],
        });
        let within =
            json!([user(1, 100), thinking, { "role": "tool", "tool_call_id": "1", "content": text(3, 40) }]);
        stack.send_predicted(chat(json!([user(1, 100)]))).await?;
        let during = stack.send_predicted(chat(within.clone())).await?.receipt();
        assert!(during.prompt_tokens > Some(400), "{during:?}");
        let again = stack.send_predicted(chat(within.clone())).await?.receipt();
        assert!(again.cached_tokens > Some(400), "{again:?}");

        let mut after = within;
        let list = after.as_array_mut().unwrap();
        list.push(json!({ "role": "assistant", "content": text(4, 30), "reasoning_content": text(5, 200) }));
        list.push(user(6, 30));
        let next = stack.send_predicted(chat(after)).await?.receipt();
        let boundary = Some(100 + BLOCK);
        assert!(next.cached_tokens <= boundary, "no more than up to the assistant: {next:?}");
        assert!(next.cached_tokens >= Some(100 / BLOCK * BLOCK), "and no less: {next:?}");
        Ok(())
    });
}

// B17 (waybarrios/vllm-mlx#524)
#[test]
fn four_turns_with_tools_and_thoughts_are_predicted_turn_by_turn() {
    let tools = json!([{ "type": "function", "function": {
        "name": "weather", "description": "of a city",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] },
    } }]);
    case(one_engine(), async |stack| {
        let mut messages = vec![json!({ "role": "system", "content": text(1, 200) })];
        let mut least = 0;
        for turn in 0..4_u64 {
            let seed = 100 * (turn + 1);
            messages.push(user(seed, 40));
            let ask = |messages: &[Value]| {
                Call::json(
                    CHAT,
                    &json!({ "model": MODEL, "messages": messages, "tools": tools, "max_tokens": 2 }),
                )
            };
            let question = stack
                .send_predicted(ask(&messages))
                .await
                .with_context(|| format!("turn {turn}, question"))?
                .receipt();
            assert!(
                question.cached_tokens >= Some(least),
                "turn {turn}: what went before is known: {question:?}"
            );
            let call = json!({ "id": format!("{turn}"), "type": "function", "function": {
                "name": "weather", "arguments": "{\"city\":\"Kyiv\",\"days\":1e3}",
            } });
            messages.push(json!({
                "role": "assistant", "content": null, "reasoning_content": text(seed + 1, 80), "tool_calls": [call],
            }));
            messages.push(
                json!({ "role": "tool", "tool_call_id": format!("{turn}"), "content": text(seed + 2, 60) }),
            );
            let result = stack
                .send_predicted(ask(&messages))
                .await
                .with_context(|| format!("turn {turn}, result"))?
                .receipt();
            // The question is in the cache, up to its last block.
            assert!(cached(&result) + 2 * BLOCK > tokens(&question));
            messages.push(json!({ "role": "assistant", "content": text(seed + 3, 40), "reasoning_content": text(seed + 4, 90) }));
            least = question.cached_tokens.unwrap_or(0).max(200);
        }
        Ok(())
    });
}

// B12 (mlc-ai/mlc-llm#3179)
#[test]
fn an_answer_that_is_encoded_otherwise_is_not_predicted_beyond_its_prompt() {
    for (output, comes_back) in [("letters", false), ("words", true)] {
        let stack = one_engine()
            .map(|stack| stack.each_engine(|engine| engine.flags = vec![format!("--output={output}")]));
        case(stack, async |stack| {
            let ask = |messages: Value| {
                Call::json(CHAT, &json!({ "model": MODEL, "messages": messages, "max_tokens": 100 }))
            };
            let first = stack.send_predicted(ask(json!([user(1, 100)]))).await?;
            let prompt = first.receipt().prompt_tokens.context("no tokens")?;
            let said = first.json()?["choices"][0]["message"]["content"].clone();
            let next = stack
                .send_predicted(ask(
                    json!([user(1, 100), { "role": "assistant", "content": said }, user(2, 30)]),
                ))
                .await?
                .receipt();
            let cached = cached(&next);
            ensure!(cached + BLOCK > prompt, "{output}: the first prompt is known: {next:?}");
            ensure!(
                (cached >= prompt + BLOCK) == comes_back,
                "{output}: {cached} of a prompt of {prompt} and its answer"
            );
            Ok(())
        });
    }
}

// B13 (huggingface/transformers#42914)
#[test]
fn a_template_is_found_beside_the_tokenizer_or_in_its_configuration() {
    let stack = || -> Result<StackBuilder> {
        let in_file = with_template("templates_in_file", None, TemplatePlace::File)?;
        let in_config = with_template("templates_in_config", None, TemplatePlace::Config)?;
        let models = json!([
            { "name": "in-file", "tokenizer_dir": in_file },
            { "name": "in-config", "tokenizer_dir": in_config },
        ]);
        Ok(two_engines()?
            .engine(0, |engine| {
                engine.model = "in-file".to_owned();
                engine.tokenizer = Some(in_file);
            })
            .engine(1, |engine| {
                engine.model = "in-config".to_owned();
                engine.tokenizer = Some(in_config);
            })
            .indexer(|config| config["models"] = models))
    };
    case(stack(), async |stack| {
        for (model, number) in [("in-file", 0), ("in-config", 1)] {
            let call =
                Call::json(CHAT, &json!({ "model": model, "messages": [user(1, 100)], "max_tokens": 2 }));
            let first = stack.send_predicted(call.clone()).await.context(model)?.receipt();
            assert_eq!(first.endpoint, stack.engines[number].address(), "{model}");
            let again = stack.send_predicted(call).await.context(model)?.receipt();
            assert!(again.cached_tokens >= Some(96), "{model}: {again:?}");
        }
        Ok(())
    });
}

// B8 (vllm-project/vllm#55288)
#[test]
fn a_chat_with_a_picture_begins_like_one_without() {
    let stack = of_folder(one_engine(), words("templates_picture"));
    case(stack, async |stack| {
        let talk = |seed: u64, picture: bool| {
            let mut parts = vec![json!({ "type": "text", "text": text(seed, 100) })];
            if picture {
                let url = format!("data:image/png;base64,iVBORw0K{seed}");
                parts.push(json!({ "type": "image_url", "image_url": { "url": url } }));
            }
            // A special token, behind which the text may be cut.
            let system = format!("{} <s>", text(1, 100));
            chat(json!([{ "role": "system", "content": system }, { "role": "user", "content": parts }]))
        };
        stack.send_predicted(talk(2, false)).await?;
        let receipt = stack.send_alone(talk(3, true)).await?.receipt();
        assert_eq!((receipt.outcome.as_str(), receipt.reason.as_str()), ("scored", "media"), "{receipt:?}");
        // The template's `<s>` alone, the role, the words and the token after them: with another `<s>` in front no block
        // would fit.
        assert_eq!(cached(&receipt), 103 / BLOCK * BLOCK, "{receipt:?}");
        Ok(())
    });
}
