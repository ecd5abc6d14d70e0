//! JSON schemas as the TypeScript types that the encoding shows to the model.
//!
//! Not TypeScript proper: of a schema the encoding knows `type`, `properties`, `required`, `items`, `enum`, `oneOf`,
//! `nullable`, and `title`, `description`, `examples` and `default` as comments. Everything else is `any`. Nothing is
//! escaped. Odd spacing is the encoding's own.
//!
//! Every line of a nested type is indented, so a schema can ask for a text many times its own length: types are written
//! in one pass into a [`Bounded`] text, which stops.

use std::collections::HashSet;
use std::fmt::{self, Write};

use serde_json::Value as Json;

use crate::bounded::Bounded;

/// Said by a type that allows null.
const NULL: &str = "null";

/// Writes types into a text.
struct Writer<'a> {
    out: &'a mut Bounded,
    /// Where the last [`NULL`] in `out` begins, of those written here.
    last_null: Option<usize>,
}

/// Appends the type of a value that `schema` describes. Fails where `out` is full.
pub(super) fn write_type(out: &mut Bounded, schema: &Json) -> fmt::Result {
    Writer { out, last_null: None }.kind(schema, 0)
}

// === impl Writer ===

impl Write for Writer<'_> {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        // It may begin in what was there before.
        let from = self.out.as_str().len().saturating_sub(NULL.len() - 1);
        self.out.write_str(piece)?;
        let new = self.out.as_str().as_bytes().get(from..).unwrap_or_default();
        let found = new.windows(NULL.len()).rposition(|window| window == NULL.as_bytes());
        self.last_null = found.map(|place| from + place).or(self.last_null);
        Ok(())
    }
}

impl Writer<'_> {
    /// `indent`: blanks before the lines of an object's members and of its end, not before its start.
    fn kind(&mut self, schema: &Json, indent: usize) -> fmt::Result {
        if let Some(variants) = list(schema, "oneOf") {
            return variants.iter().try_for_each(|variant| self.union_member(variant, indent));
        }
        if let Some(names) = list(schema, "type") {
            let names = names.iter().filter_map(Json::as_str).map(number_name);
            return self.alternatives(names, "any", "");
        }
        match text(schema, "type") {
            Some("object") => self.object(schema, indent),
            Some("string") => {
                let values = list(schema, "enum").unwrap_or_default().iter().filter_map(Json::as_str);
                self.alternatives(values, "string", "\"")
            }
            Some("number" | "integer") => self.write_str("number"),
            Some("boolean") => self.write_str("boolean"),
            Some("array") => match schema.get("items") {
                Some(items) => {
                    self.kind(items, indent)?;
                    self.write_str("[]")
                }
                None => self.write_str("Array<any>"),
            },
            _ => self.write_str("any"),
        }
    }

    /// The texts, each in `quote`s; `none` where there is none.
    fn alternatives<'t>(
        &mut self,
        texts: impl Iterator<Item = &'t str>,
        none: &str,
        quote: &str,
    ) -> fmt::Result {
        let mut is_first = true;
        for text in texts {
            let before = if is_first { "" } else { " | " };
            write!(self, "{before}{quote}{text}{quote}")?;
            is_first = false;
        }
        if is_first { self.write_str(none) } else { Ok(()) }
    }

    /// A variant of a union that stands by itself.
    fn union_member(&mut self, variant: &Json, indent: usize) -> fmt::Result {
        write!(self, "\n{:indent$} | ", "")?;
        self.nullable_type(variant, indent + 3)?;
        let mut comments: Vec<String> = text(variant, "description").map(String::from).into_iter().collect();
        comments.extend(variant.get("default").map(|default| {
            // Unlike elsewhere, a default among enumerated values is printed as JSON.
            match default.as_str() {
                Some(text) if !is_enum(variant) => format!("default: \"{text}\""),
                _ => format!("default: {default}"),
            }
        }));
        self.behind(&comments)
    }

    fn object(&mut self, schema: &Json, indent: usize) -> fmt::Result {
        if let Some(description) = text(schema, "description") {
            self.comment(description, indent)?;
        }
        self.write_str("{\n")?;
        let required = list(schema, "required").unwrap_or_default();
        let required: HashSet<&str> = required.iter().filter_map(Json::as_str).collect();
        let members = schema.get("properties").and_then(Json::as_object);
        for (name, member) in members.into_iter().flatten() {
            self.comments_above(member, indent)?;
            let mark = if required.contains(name.as_str()) { "" } else { "?" };
            match list(member, "oneOf") {
                Some(variants) => self.union_property(member, variants, &format!("{name}{mark}"), indent)?,
                None => {
                    write!(self, "{:indent$}{name}{mark}: ", "")?;
                    self.property(member, indent)?;
                }
            }
        }
        write!(self, "{:indent$}}}", "")
    }

    /// Title, description and examples of a property; a union's description comes later.
    fn comments_above(&mut self, member: &Json, indent: usize) -> fmt::Result {
        if let Some(title) = text(member, "title") {
            self.comment(title, indent)?;
            writeln!(self, "{:indent$}//", "")?;
        }
        if let (None, Some(description)) = (member.get("oneOf"), text(member, "description")) {
            self.comment(description, indent)?;
        }
        let examples = list(member, "examples").unwrap_or_default();
        if !examples.is_empty() {
            self.comment("Examples:", indent)?;
        }
        for example in examples.iter().filter_map(Json::as_str) {
            writeln!(self, "{:indent$}// - \"{example}\"", "")?;
        }
        Ok(())
    }

    /// The type of a property and what stands behind it.
    fn property(&mut self, member: &Json, indent: usize) -> fmt::Result {
        self.nullable_type(member, indent + 4)?;
        self.write_str(",")?;
        let default = if member.get("oneOf").is_none() { default_comment(member) } else { None };
        self.behind(default.as_slice())?;
        self.write_str("\n")
    }

    /// A property with one line for each variant. Its description is above, unless the first variant has the same.
    fn union_property(&mut self, member: &Json, variants: &[Json], head: &str, indent: usize) -> fmt::Result {
        let description = text(member, "description");
        let first = variants.first().and_then(|variant| text(variant, "description"));
        let above = description.filter(|description| first != Some(description));
        for comment in above.map(String::from).into_iter().chain(default_comment(member)) {
            self.comment(&comment, indent)?;
        }
        writeln!(self, "{:indent$}{head}:", "")?;
        for (index, variant) in variants.iter().enumerate() {
            let is_silent = index == 0 && above.is_some();
            let own = text(variant, "description").filter(|own| !is_silent && Some(*own) != description);
            let mut comments: Vec<String> = own.map(String::from).into_iter().collect();
            comments.extend(default_comment(variant));
            write!(self, "{:indent$} | ", "")?;
            self.nullable_type(variant, indent + 3)?;
            self.behind(&comments)?;
            self.write_str("\n")?;
        }
        writeln!(self, "{:indent$},", "")
    }

    /// The type, with null where the schema allows it and the type does not say so already.
    fn nullable_type(&mut self, schema: &Json, indent: usize) -> fmt::Result {
        let begin = self.out.as_str().len();
        self.kind(schema, indent)?;
        let is_nullable = schema.get("nullable").and_then(Json::as_bool).unwrap_or(false);
        let says_null = self.last_null.is_some_and(|place| place >= begin);
        if is_nullable && !says_null { write!(self, " | {NULL}") } else { Ok(()) }
    }

    /// A comment on a line of its own.
    fn comment(&mut self, text: &str, indent: usize) -> fmt::Result {
        writeln!(self, "{:indent$}// {text}", "")
    }

    /// Comments behind a type, on its line.
    fn behind(&mut self, comments: &[String]) -> fmt::Result {
        if comments.is_empty() { Ok(()) } else { write!(self, " // {}", comments.join(" ")) }
    }
}

/// JSON Schema's integers are numbers; other names stay.
fn number_name(name: &str) -> &str {
    if name == "integer" { "number" } else { name }
}

/// Texts are quoted unless they are among enumerated values; other values are printed as JSON.
fn default_comment(schema: &Json) -> Option<String> {
    let default = schema.get("default")?;
    Some(match default.as_str() {
        Some(text) if is_enum(schema) => format!("default: {text}"),
        Some(text) => format!("default: \"{text}\""),
        None => format!("default: {default}"),
    })
}

fn is_enum(schema: &Json) -> bool {
    list(schema, "enum").is_some_and(|values| !values.is_empty())
}

fn text<'a>(schema: &'a Json, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str()
}

fn list<'a>(schema: &'a Json, key: &str) -> Option<&'a [Json]> {
    schema.get(key)?.as_array().map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_added_unless_the_type_says_it_anywhere() {
        let nested = |kind: &str| {
            json!({"type": "object", "properties": {"a": {"type": "object", "nullable": true, "properties": {
                "b": {"type": kind},
            }}}})
        };
        let written = |schema: &Json| {
            let mut out = Bounded::prompt();
            write_type(&mut out, schema).unwrap();
            out.into_string()
        };
        assert_eq!(written(&nested("string")), "{\na?: {\n    b?: string,\n    } | null,\n}");
        let says_null = json!({"type": ["string", "null"], "nullable": true});
        assert_eq!(written(&says_null), "string | null");
        // Said before the type in question, it does not count; in pieces, it does.
        let before = json!({"type": "object", "properties": {"null": {"type": "string", "nullable": true}}});
        assert_eq!(written(&before), "{\nnull?: string | null,\n}");
        let member = json!({"type": "object", "properties": {
            "a": {"type": "object", "nullable": true, "properties": {"null": {}}},
        }});
        assert_eq!(written(&member), "{\na?: {\n    null?: any,\n    },\n}");
    }

    #[test]
    fn type_that_grows_by_its_indentation_stops_at_the_limit() {
        let members: serde_json::Map<String, Json> =
            (0..1000).map(|place| (place.to_string(), json!({}))).collect();
        let mut schema = json!({"type": "object", "properties": members});
        for _ in 0..50 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let given = schema.to_string().len();
        let mut out = Bounded::of(10 * given);
        assert!(write_type(&mut out, &schema).is_err());
        assert!(out.as_str().len() <= 10 * given);
    }

    /// Each member was looked for among all required ones: hours.
    #[test]
    fn many_members_are_required_at_once() {
        const MEMBERS: usize = 100_000;
        let members: serde_json::Map<String, Json> =
            (0..MEMBERS).map(|place| (place.to_string(), json!({}))).collect();
        let required: Vec<String> = (0..MEMBERS).map(|place| (2 * place).to_string()).collect();
        let mut out = Bounded::prompt();
        write_type(&mut out, &json!({"type": "object", "properties": members, "required": required}))
            .unwrap();
        assert_eq!(out.as_str().matches('?').count(), MEMBERS / 2);
        assert!(out.as_str().starts_with("{\n0: any,\n1?: any,\n2: any,\n"));
    }
}
