//! `{% generation %} … {% endgeneration %}`: a tag of the engine's Jinja that marks assistant text for training.
//!
//! It prints its body and opens a scope, exactly as `{% with %}` without assignments does; so it is rewritten to that.

use std::borrow::Cow;

/// `source` with the tag rewritten; white-space marks (`{%-`, `+%}`) are kept. Text in `{% raw %}` stays as it is.
pub(super) fn rewrite(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut in_raw = false;
    while let Some((before, from_tag)) = split_before(rest, "{%") {
        out.push_str(before);
        let Some((tag, after)) = split_after(from_tag, "%}") else {
            rest = from_tag;
            break;
        };
        let name = tag.trim_matches(['{', '%', '}', '-', '+', ' ', '\t', '\r', '\n']);
        match name {
            "generation" if !in_raw => out.push_str(&tag.replace("generation", "with")),
            "endgeneration" if !in_raw => out.push_str(&tag.replace("endgeneration", "endwith")),
            _ => out.push_str(tag),
        }
        in_raw = match name {
            "raw" => true,
            "endraw" => false,
            _ => in_raw,
        };
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn split_before<'a>(text: &'a str, pattern: &str) -> Option<(&'a str, &'a str)> {
    text.split_at_checked(text.find(pattern)?)
}

fn split_after<'a>(text: &'a str, pattern: &str) -> Option<(&'a str, &'a str)> {
    text.split_at_checked(text.find(pattern)? + pattern.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_becomes_a_scope_and_keeps_its_white_space_marks() {
        assert_eq!(
            rewrite("a{%- generation -%}b{% endgeneration +%}c{{ add_generation_prompt }}"),
            "a{%- with -%}b{% endwith +%}c{{ add_generation_prompt }}"
        );
    }

    #[test]
    fn other_tags_raw_text_and_broken_ends_stay() {
        for source in [
            "{% if add_generation_prompt %}x{% endif %}",
            "{% raw %}{% generation %}{% endraw %}",
            "generation {% generation",
            "{% set generation = 1 %}",
            "generation",
            "",
        ] {
            assert_eq!(rewrite(source), source);
        }
    }
}
