//! Where the first medium stands, for templates of the kinds in use.

use super::*;

/// Qwen-VL's way: parts in their order, each medium its own tokens, pictures counted where asked for.
const PARTS: &str = "{% set count = namespace(value=0) %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}\
{% set count.value = count.value + 1 %}Picture {{ count.value }}: <|vision_start|><|image_pad|><|vision_end|>\
{% elif p.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in p %}{{ p.text }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>\n{% endfor %}";

/// A template that takes texts.
const TEXT: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}";

/// Pictures go before the texts of their message.
const IMAGES_FIRST: &str = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'image' %}<image>{% endif %}\
{% endfor %}{% for p in m.content %}{{ p.text | default('') }}{% endfor %}</{{ m.role }}>{% endfor %}";

/// With a picture anywhere, there is no system prompt.
const LOOKS_AHEAD: &str = "{% set seen = namespace(image=false) %}{% for m in messages %}{% for p in m.content %}\
{% if p.type == 'image' %}{% set seen.image = true %}{% endif %}{% endfor %}{% endfor %}\
<s>{% if not seen.image %}system{% endif %}{% for m in messages %}{% for p in m.content %}{{ p.text | default('<image>') }}{% endfor %}{% endfor %}";

fn before_media(source: &str, messages: &Json) -> Result<(String, Option<String>), PromptError> {
    let settings = settings();
    let clock = Arc::clone(&settings.clock);
    let template = ChatTemplate::compile(source, ContentDetection::MacroParameters, clock).unwrap();
    let messages = messages.to_string();
    let input = read(&settings, &chat(messages.as_bytes()))?;
    let Rendered { text, before_media } = render(&settings, |_| Some(&template), input)?;
    let before = before_media.map(|end| text.get(..end).unwrap().to_owned());
    Ok((text, before))
}

fn image() -> Json {
    json!({"type": "image_url", "image_url": {"url": "warmpath-media:00"}})
}

fn text(text: &str) -> Json {
    json!({"type": "text", "text": text})
}

fn user(parts: &[Json]) -> Json {
    json!({"role": "user", "content": parts})
}

#[test]
fn parts_are_shown_in_their_order_and_cut_before_the_first_medium() {
    let messages = json!([
        {"role": "system", "content": "sys"}, user(&[text("Look: "), image(), text(" and "), image()]), user(&[text("so")]),
    ]);
    let (shown, before) = before_media(PARTS, &messages).unwrap();
    assert_eq!(before.unwrap(), "<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\nLook: ");
    assert!(shown.contains("Picture 2: <|vision_start|><|image_pad|>"), "{shown}");
    assert!(!shown.contains('\u{e000}'), "the engine's template shows no marks");
}

#[test]
fn equal_media_beside_each_other_are_not_taken_for_text() {
    let (_, before) = before_media(PARTS, &json!([user(&[image(), image(), image()])])).unwrap();
    assert_eq!(before.unwrap(), "<|im_start|>user\n");
    let video = json!({"type": "video_url", "video_url": {"url": ""}});
    let (_, before) = before_media(PARTS, &json!([user(&[text("a"), video])])).unwrap();
    assert_eq!(before.unwrap(), "<|im_start|>user\na");
}

#[test]
fn one_text_for_all_parts_is_cut_where_it_begins() {
    // The engine puts its placeholders in front of the text, or inside it.
    let messages = json!([user(&[text("one")]), user(&[text("Look: "), image()]), user(&[image()])]);
    let (_, before) = before_media(TEXT, &messages).unwrap();
    assert_eq!(before.unwrap(), "<|im_start|>user\none<|im_end|>\n<|im_start|>user\n");
}

#[test]
fn template_that_moves_media_is_cut_where_it_puts_them() {
    let (_, before) = before_media(IMAGES_FIRST, &json!([user(&[text("Look"), image()])])).unwrap();
    assert_eq!(before.unwrap(), "<user>");
    // A text that looks like the placeholder is left to the cut, which knows the tokens.
    let (_, before) = before_media(IMAGES_FIRST, &json!([user(&[text("<image>"), image()])])).unwrap();
    assert_eq!(before.unwrap(), "<user><image>");
}

#[test]
fn template_that_looks_for_media_first_is_cut_where_it_shows() {
    let (shown, before) = before_media(LOOKS_AHEAD, &json!([user(&[text("a"), image()])])).unwrap();
    assert_eq!((shown.as_str(), before.as_deref()), ("<s>a<image>", Some("<s>")));
}

#[test]
fn parts_without_a_known_place_are_cut_where_their_message_begins() {
    for part in [
        json!({"type": "prompt_embeds", "data": "x"}),
        json!({"type": "file", "file": {}}),
        json!({"type": "text", "text": "a", "uuid": "u"}),
    ] {
        let (_, before) = before_media(TEXT, &json!([user(&[text("look"), part.clone()])])).unwrap();
        assert_eq!(before.as_deref(), Some("<|im_start|>user\n"), "{part}");
    }
    let (_, before) = before_media(TEXT, &json!([user(&[json!({"image_url": "x"})])])).unwrap();
    assert_eq!(before.as_deref(), Some("<|im_start|>user\n"), "the key tells, whatever the type");
}

#[test]
fn media_that_are_announced_but_not_found_leave_nothing_sure() {
    let request = ChatRequest { has_media: true, ..chat(HI) };
    assert_eq!(render_with(&settings(), &request).unwrap_err().reason(), "media");
    let (_, before) = before_media(TEXT, &json!([user(&[text("plain")])])).unwrap();
    assert_eq!(before, None);
}
