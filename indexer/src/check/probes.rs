//! The built-in prompts: each is there for something that engines do to prompts, and that a wrong setting or file changes.

use serde_json::{Value, json};
use warmpath_prompt::{ChatRequest, CompletionRequest, ModelPrompt, PromptError, PromptRequest};

/// One prompt.
pub(super) struct Probe {
    /// What it is there for.
    pub(super) name: &'static str,
    kind: Kind,
}

enum Kind {
    Text {
        text: &'static str,
        add_special_tokens: Option<bool>,
    },
    /// A chat request but for its model; `tokenizes`: `/tokenize` knows all of its fields.
    Chat {
        body: Value,
        tokenizes: bool,
    },
}

// === impl Probe ===

impl Probe {
    /// The tokens that we make of it.
    pub(super) fn tokens(&self, renderer: &ModelPrompt) -> Result<Vec<u32>, PromptError> {
        let tokens = match &self.kind {
            Kind::Text { text, add_special_tokens } => renderer.tokens(CompletionRequest {
                text,
                add_special_tokens: *add_special_tokens,
                ..CompletionRequest::default()
            }),
            Kind::Chat { body, .. } => Fields::of(body).tokens(renderer),
        };
        tokens.map(|tokens| tokens.ids.as_slice().to_vec())
    }

    /// The question for `/tokenize`; None: that page leaves out something of the prompt.
    pub(super) fn tokenize_body(&self, model: &str) -> Option<Value> {
        match &self.kind {
            Kind::Text { text, add_special_tokens } => Some(text_body(model, text, *add_special_tokens)),
            Kind::Chat { body, tokenizes } => tokenizes.then(|| chat_body(model, body)),
        }
    }

    pub(super) fn render_path(&self) -> &'static str {
        match &self.kind {
            Kind::Text { .. } => "/v1/completions/render",
            Kind::Chat { .. } => "/v1/chat/completions/render",
        }
    }

    pub(super) fn render_body(&self, model: &str) -> Value {
        match &self.kind {
            Kind::Text { text, add_special_tokens } => text_body(model, text, *add_special_tokens),
            Kind::Chat { body, .. } => chat_body(model, body),
        }
    }
}

fn text_body(model: &str, text: &str, add_special_tokens: Option<bool>) -> Value {
    let mut body = json!({ "model": model, "prompt": text });
    if let (Some(add), Value::Object(fields)) = (add_special_tokens, &mut body) {
        fields.insert("add_special_tokens".to_owned(), add.into());
    }
    body
}

fn chat_body(model: &str, body: &Value) -> Value {
    let mut body = body.clone();
    if let Value::Object(fields) = &mut body {
        fields.insert("model".to_owned(), model.into());
    }
    body
}

/// The fields of a chat body as the renderer takes them: slices of JSON.
#[derive(Default)]
struct Fields {
    messages: String,
    tools: Option<String>,
    documents: Option<String>,
    template_kwargs: Option<String>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    reasoning_effort: Option<String>,
}

impl Fields {
    fn of(body: &Value) -> Self {
        let json = |key: &str| body.get(key).map(Value::to_string);
        let flag = |key: &str| body.get(key).and_then(Value::as_bool);
        Self {
            messages: json("messages").unwrap_or_default(),
            tools: json("tools"),
            documents: json("documents"),
            template_kwargs: json("chat_template_kwargs"),
            add_generation_prompt: flag("add_generation_prompt"),
            continue_final_message: flag("continue_final_message"),
            reasoning_effort: body.get("reasoning_effort").and_then(Value::as_str).map(str::to_owned),
        }
    }

    fn tokens(&self, renderer: &ModelPrompt) -> Result<warmpath_prompt::PromptTokens, PromptError> {
        let request: PromptRequest<'_> = ChatRequest {
            messages: self.messages.as_bytes(),
            tools: self.tools.as_deref().map(str::as_bytes),
            documents: self.documents.as_deref().map(str::as_bytes),
            template_kwargs: self.template_kwargs.as_deref().map(str::as_bytes),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            reasoning_effort: self.reasoning_effort.as_deref(),
            ..ChatRequest::default()
        }
        .into();
        renderer.tokens(request)
    }
}

/// All prompts, in the order of the report.
pub(super) fn all() -> Vec<Probe> {
    let mut probes = texts();
    probes.extend(chats());
    probes
}

fn texts() -> Vec<Probe> {
    let text = |name, text| Probe { name, kind: Kind::Text { text, add_special_tokens: None } };
    vec![
        text("text: prose", "The quick brown fox jumps over the lazy dog. It didn't look back, did it?"),
        Probe {
            name: "text: without special tokens",
            kind: Kind::Text { text: "Once upon a time", add_special_tokens: Some(false) },
        },
        text("text: many scripts", "Grüße aus Zürich, 東京の天気, Привет мир, مرحبا, नमस्ते, 한국어, ไทย"),
        text(
            "text: emoji and combining marks",
            "👩‍👩‍👧‍👦 🇨🇭 e\u{301} n\u{303} \u{1f9d1}\u{1f3fd}\u{200d}\u{1f4bb} ﬁ Ⅷ ½",
        ),
        text("text: white space", "  two\n\n\nthree\t\ttabs \u{a0}no-break\u{3000}wide \r\n trailing   "),
        text("text: numbers", "3.14159 1,234,567 2026-11-30T05:15:00Z 0x1F -1e-9 007 12345678901234567890"),
        text(
            "text: code",
            "fn main() {\n    let x: Vec<u8> = vec![1, 2];\n\tprintln!(\"{x:?}\"); // done\n}",
        ),
        text(
            "text: special tokens as text",
            "<|im_start|>user\n<|im_end|> <s></s> [INST] <bos> <|eot_id|> <|endoftext|>",
        ),
    ]
}

fn chats() -> Vec<Probe> {
    let probe = |name, body, tokenizes| Probe { name, kind: Kind::Chat { body, tokenizes } };
    let chat = |name, body| probe(name, body, true);
    let user = |content: Value| json!({ "role": "user", "content": content });
    let weather = json!({ "type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city",
        "parameters": { "type": "object", "required": ["city"], "properties": {
            "city": { "type": "string", "description": "Straße, \"Ort\" & <Land>" },
            "days": { "type": "integer", "minimum": 1, "default": null } } } } });
    let bare = json!({ "type": "function", "function": { "name": "now" } });
    let call = |arguments: &str| {
        json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "call_1", "type": "function",
            "function": { "name": "get_weather", "arguments": arguments } }] })
    };
    let result = |content: Value| json!({ "role": "tool", "tool_call_id": "call_1", "content": content });
    let hello = json!([user("Hello!".into())]);
    vec![
        chat("chat: one message", json!({ "messages": hello })),
        chat(
            "chat: system and several turns",
            json!({ "messages": [
                { "role": "system", "content": "You are brief." }, user("What is 2+2?".into()),
                { "role": "assistant", "content": "4" }, user(" And 3+3? ".into())] }),
        ),
        chat("chat: many scripts", json!({ "messages": [user("今天天气怎么样？ Ça va? 👋🏽".into())] })),
        chat(
            "chat: content in parts",
            json!({ "messages": [user(json!([{ "type": "text", "text": "One." }, { "type": "text", "text": "Two." }]))] }),
        ),
        chat(
            "chat: empty content",
            json!({ "messages": [{ "role": "system", "content": "" }, user("".into())] }),
        ),
        chat(
            "chat: special tokens as text",
            json!({ "messages": [user("<|im_end|>\n<|im_start|>system <eos> <|eot_id|>".into())] }),
        ),
        chat("chat: tools", json!({ "messages": hello, "tools": [weather, bare] })),
        chat(
            "chat: tool with an unknown key",
            json!({ "messages": hello, "tools": [{ "type": "function", "x": 1,
                "function": { "name": "f", "y": [1.0, 1e3], "parameters": {} } }] }),
        ),
        chat(
            "chat: tool call and result",
            json!({ "tools": [weather], "messages": [
                user("Weather in Zürich?".into()), call("{\"city\": \"Z\\u00fcrich\",\"days\":1e0}"),
                result("12 °C".into()), { "role": "assistant", "content": "12 °C." }, user("Thanks".into())] }),
        ),
        chat(
            "chat: tool result in parts",
            json!({ "messages": [user("?".into()), call("{}"),
                result(json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]))] }),
        ),
        chat(
            "chat: developer message",
            json!({ "messages": [{ "role": "developer", "content": "Answer in German." }, user("Hi".into())] }),
        ),
        chat(
            "chat: two system messages",
            json!({ "messages": [{ "role": "system", "content": "A." }, user("Hi".into()),
                { "role": "system", "content": "B." }, user("Well?".into())] }),
        ),
        chat(
            "chat: reasoning of an earlier turn",
            json!({ "messages": [user("Hi".into()),
                { "role": "assistant", "content": "Hello", "reasoning": "Greet back.",
                  "reasoning_content": "Greet back." }, user("Bye".into())] }),
        ),
        chat("chat: without generation prompt", json!({ "messages": hello, "add_generation_prompt": false })),
        chat(
            "chat: continue_final_message",
            json!({ "add_generation_prompt": false, "continue_final_message": true,
                "messages": [user("Tell me a joke".into()), { "role": "assistant", "content": "Why did " }] }),
        ),
        chat(
            "chat: chat_template_kwargs",
            json!({ "messages": hello, "chat_template_kwargs": { "enable_thinking": false, "unused": [1, null] } }),
        ),
        probe("chat: reasoning_effort", json!({ "messages": hello, "reasoning_effort": "low" }), false),
        probe(
            "chat: documents",
            json!({ "messages": hello, "documents": [{ "title": "T", "text": "Some text." }] }),
            false,
        ),
    ]
}
