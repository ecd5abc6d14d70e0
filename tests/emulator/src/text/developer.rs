//! The role `developer`, for templates that do not know it.

use serde_json::{Value, json};

/// Makes all messages of the roles `system` and `developer` one system message in front, where one of the latter is there. A
/// single one that is in front already stays as it is, but for its role.
pub(super) fn to_system(messages: &mut Value) {
    let Some(list) = messages.as_array_mut() else { return };
    if !list.iter().any(|message| message["role"] == "developer") {
        return;
    }
    let is_system = |message: &Value| message["role"] == "system" || message["role"] == "developer";
    if list.iter().skip(1).all(|message| !is_system(message)) {
        if let Some(first) = list.first_mut().and_then(Value::as_object_mut) {
            first.insert("role".to_owned(), json!("system"));
            first.remove("tools");
        }
        return;
    }
    let texts: Vec<&str> = list.iter().filter(|message| is_system(message)).filter_map(text).collect();
    let system = json!({"role": "system", "content": texts.join("\n\n")});
    list.retain(|message| !is_system(message));
    list.insert(0, system);
}

/// What it says, unless that is nothing.
fn text(message: &Value) -> Option<&str> {
    message["content"].as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn developers_speak_as_the_system_in_front() {
        let of = |role: &str, content: &str| json!({"role": role, "content": content});
        let (user, system) = (of("user", "u"), of("system", "s"));
        for (given, expected) in [
            (json!([user, system]), json!([user, system])),
            (json!([of("developer", "d"), user]), json!([of("system", "d"), user])),
            (json!([user, of("developer", "d")]), json!([of("system", "d"), user])),
            (json!([system, user, of("developer", "d")]), json!([of("system", "s\n\nd"), user])),
            (json!([of("developer", ""), of("developer", "d")]), json!([of("system", "d")])),
        ] {
            let mut messages = given.clone();
            to_system(&mut messages);
            assert_eq!(messages, expected, "{given}");
        }
    }
}
