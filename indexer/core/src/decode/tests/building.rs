//! A small MessagePack writer, for events that no release sends.

/// What can be written.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Nil,
    Uint(u64),
    Int(i64),
    Float(f64),
    Text(String),
    Bin(Vec<u8>),
    Array(Vec<Value>),
    Map(Vec<(String, Value)>),
}

/// Deep values must not be dropped by recursion either.
impl Drop for Value {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        let mut take = |value: &mut Value| match value {
            Value::Array(values) => rest.append(values),
            Value::Map(entries) => rest.extend(entries.drain(..).map(|(_, value)| value)),
            _ => {}
        };
        take(self);
        while let Some(mut value) = rest.pop() {
            match &mut value {
                Value::Array(values) => rest.append(values),
                Value::Map(entries) => rest.extend(entries.drain(..).map(|(_, value)| value)),
                _ => {}
            }
        }
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub(super) fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(super) fn pack(value: &Value) -> Vec<u8> {
    enum Step<'a> {
        Value(&'a Value),
        Name(&'a str),
    }
    let mut bytes = Vec::new();
    let mut steps = vec![Step::Value(value)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Name(name) => sized(&mut bytes, 0xdb, name.as_bytes()),
            Step::Value(Value::Nil) => bytes.push(0xc0),
            Step::Value(Value::Uint(value)) => fixed(&mut bytes, 0xcf, value.to_be_bytes()),
            Step::Value(Value::Int(value)) => fixed(&mut bytes, 0xd3, value.to_be_bytes()),
            Step::Value(Value::Float(value)) => fixed(&mut bytes, 0xcb, value.to_be_bytes()),
            Step::Value(Value::Text(text)) => sized(&mut bytes, 0xdb, text.as_bytes()),
            Step::Value(Value::Bin(data)) => sized(&mut bytes, 0xc6, data),
            Step::Value(Value::Array(values)) => {
                count(&mut bytes, 0xdd, values.len());
                steps.extend(values.iter().rev().map(Step::Value));
            }
            Step::Value(Value::Map(entries)) => {
                count(&mut bytes, 0xdf, entries.len());
                for (name, value) in entries.iter().rev() {
                    steps.push(Step::Value(value));
                    steps.push(Step::Name(name));
                }
            }
        }
    }
    bytes
}

fn fixed(bytes: &mut Vec<u8>, marker: u8, value: [u8; 8]) {
    bytes.push(marker);
    bytes.extend(value);
}

fn count(bytes: &mut Vec<u8>, marker: u8, count: usize) {
    bytes.push(marker);
    bytes.extend(u32::try_from(count).expect("a short value").to_be_bytes());
}

fn sized(bytes: &mut Vec<u8>, marker: u8, data: &[u8]) {
    count(bytes, marker, data.len());
    bytes.extend(data);
}
