//! JSON schemas as the TypeScript types that the encoding shows to the model.
//!
//! Not TypeScript proper: of a schema the encoding knows `type`, `properties`, `required`, `items`, `enum`, `oneOf`,
//! `nullable`, and `title`, `description`, `examples` and `default` as comments. Everything else is `any`. Nothing is
//! escaped. Odd spacing is the encoding's own.

use serde_json::Value as Json;

/// The type of a value that `schema` describes.
pub(super) fn type_of(schema: &Json) -> String {
    write_type(schema, "")
}

/// `indent` goes before the lines of an object's members and of its end, not before its start.
fn write_type(schema: &Json, indent: &str) -> String {
    if let Some(variants) = list(schema, "oneOf") {
        return variants.iter().map(|variant| union_member(variant, indent)).collect();
    }
    if let Some(names) = list(schema, "type") {
        let names: Vec<&str> = names.iter().filter_map(Json::as_str).map(number_name).collect();
        return if names.is_empty() { "any".into() } else { names.join(" | ") };
    }
    match text(schema, "type") {
        Some("object") => object(schema, indent),
        Some("string") => string(schema),
        Some("number" | "integer") => "number".into(),
        Some("boolean") => "boolean".into(),
        Some("array") => match schema.get("items") {
            Some(items) => format!("{}[]", write_type(items, indent)),
            None => "Array<any>".into(),
        },
        _ => "any".into(),
    }
}

/// JSON Schema's integers are numbers; other names stay.
fn number_name(name: &str) -> &str {
    if name == "integer" { "number" } else { name }
}

fn string(schema: &Json) -> String {
    let values = list(schema, "enum").unwrap_or_default();
    let values: Vec<String> =
        values.iter().filter_map(Json::as_str).map(|value| format!("\"{value}\"")).collect();
    if values.is_empty() { "string".into() } else { values.join(" | ") }
}

/// A variant of a union that stands by itself.
fn union_member(variant: &Json, indent: &str) -> String {
    let kind = nullable_type(variant, &format!("{indent}   "));
    let mut comments: Vec<String> = text(variant, "description").map(String::from).into_iter().collect();
    comments.extend(variant.get("default").map(|default| {
        // Unlike elsewhere, a default among enumerated values is printed as JSON.
        match default.as_str() {
            Some(text) if !is_enum(variant) => format!("default: \"{text}\""),
            _ => format!("default: {default}"),
        }
    }));
    format!("\n{indent} | {kind}{}", behind(&comments))
}

fn object(schema: &Json, indent: &str) -> String {
    let mut out = String::new();
    if let Some(description) = text(schema, "description") {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    out.push_str("{\n");
    let required = list(schema, "required").unwrap_or_default();
    let members = schema.get("properties").and_then(Json::as_object);
    for (name, member) in members.into_iter().flatten() {
        let is_required = required.iter().any(|entry| entry.as_str() == Some(name));
        let head = format!("{indent}{name}{}", if is_required { "" } else { "?" });
        out.push_str(&comments_above(member, indent));
        match list(member, "oneOf") {
            Some(variants) => out.push_str(&union_property(member, variants, &head, indent)),
            None => out.push_str(&property(member, &head, indent)),
        }
    }
    out + indent + "}"
}

/// Title, description and examples of a property; a union's description comes later.
fn comments_above(member: &Json, indent: &str) -> String {
    let mut out = String::new();
    if let Some(title) = text(member, "title") {
        out.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    if let (None, Some(description)) = (member.get("oneOf"), text(member, "description")) {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    let examples = list(member, "examples").unwrap_or_default();
    if !examples.is_empty() {
        out.push_str(&format!("{indent}// Examples:\n"));
    }
    for example in examples.iter().filter_map(Json::as_str) {
        out.push_str(&format!("{indent}// - \"{example}\"\n"));
    }
    out
}

fn property(member: &Json, head: &str, indent: &str) -> String {
    let kind = nullable_type(member, &format!("{indent}    "));
    let default = if member.get("oneOf").is_none() { default_comment(member) } else { None };
    format!("{head}: {kind},{}\n", behind(default.as_slice()))
}

/// A property with one line for each variant. Its description is above, unless the first variant has the same.
fn union_property(member: &Json, variants: &[Json], head: &str, indent: &str) -> String {
    let description = text(member, "description");
    let first = variants.first().and_then(|variant| text(variant, "description"));
    let above = description.filter(|description| first != Some(description));
    let mut out = String::new();
    for comment in above.map(String::from).into_iter().chain(default_comment(member)) {
        out.push_str(&format!("{indent}// {comment}\n"));
    }
    out.push_str(&format!("{head}:\n"));
    for (index, variant) in variants.iter().enumerate() {
        let is_silent = index == 0 && above.is_some();
        let own = text(variant, "description").filter(|own| !is_silent && Some(*own) != description);
        let mut comments: Vec<String> = own.map(String::from).into_iter().collect();
        comments.extend(default_comment(variant));
        let kind = nullable_type(variant, &format!("{indent}   "));
        out.push_str(&format!("{indent} | {kind}{}\n", behind(&comments)));
    }
    out + indent + ",\n"
}

/// The type, with null where the schema allows it and the type does not say so already.
fn nullable_type(schema: &Json, indent: &str) -> String {
    let kind = write_type(schema, indent);
    let is_nullable = schema.get("nullable").and_then(Json::as_bool).unwrap_or(false);
    if is_nullable && !kind.contains("null") { kind + " | null" } else { kind }
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

/// Comments behind a type, on its line.
fn behind(comments: &[String]) -> String {
    if comments.is_empty() { String::new() } else { format!(" // {}", comments.join(" ")) }
}

fn text<'a>(schema: &'a Json, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str()
}

fn list<'a>(schema: &'a Json, key: &str) -> Option<&'a [Json]> {
    schema.get(key)?.as_array().map(Vec::as_slice)
}
