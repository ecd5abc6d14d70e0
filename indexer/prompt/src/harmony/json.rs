//! Reading of the requests' JSON.

use serde_json::{Map, Number, Value as Json};

use crate::error::PromptError;

/// Digits and decimal exponent up to which every JSON reader gives the same float: powers of ten are exact there.
const EXACT_DIGITS: usize = 15;
const EXACT_EXPONENT: i64 = 22;

/// `field` is for the message.
pub(super) fn into_list(field: &'static str, json: Json) -> Result<Vec<Json>, PromptError> {
    match json {
        Json::Array(list) => Ok(list),
        _ => Err(PromptError::refused(format!("{field} is no list"))),
    }
}

pub(super) fn into_object(field: &'static str, json: Json) -> Result<Map<String, Json>, PromptError> {
    match json {
        Json::Object(map) => Ok(map),
        _ => Err(PromptError::refused(format!("{field} is, or holds, what should be an object"))),
    }
}

/// Takes a text out; null counts as absent.
pub(super) fn take_text(
    field: &'static str,
    map: &mut Map<String, Json>,
    key: &str,
) -> Result<Option<String>, PromptError> {
    match map.shift_remove(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(PromptError::refused(format!("\"{key}\" in {field} is no text"))),
    }
}

/// As [`take_text`], where it must be there.
pub(super) fn need_text(
    field: &'static str,
    map: &mut Map<String, Json>,
    key: &str,
) -> Result<String, PromptError> {
    take_text(field, map, key)?.ok_or_else(|| PromptError::refused(format!("{field} lacks \"{key}\"")))
}

/// Rewrites the numbers of `json` as the engine prints them: it reads them as integers or floats, and prints floats in
/// their shortest form. Fails where its reader may round another way, or its printer has another form for large exponents.
pub(super) fn normalize_numbers(
    field: &'static str,
    signs_exponents: bool,
    json: &mut Json,
) -> Result<(), PromptError> {
    let go_on = |entry: &mut Json| normalize_numbers(field, signs_exponents, entry);
    match json {
        Json::Number(number) => {
            *number = normalized(number.as_str(), signs_exponents).ok_or_else(|| {
                PromptError::unsupported(field, "hold a number whose printed form is not known")
            })?;
            Ok(())
        }
        Json::Array(list) => list.iter_mut().try_for_each(go_on),
        Json::Object(map) => map.values_mut().try_for_each(go_on),
        Json::Null | Json::Bool(_) | Json::String(_) => Ok(()),
    }
}

fn normalized(text: &str, signs_exponents: bool) -> Option<Number> {
    if !text.contains(['.', 'e', 'E']) {
        let unsigned = text.parse::<u64>().ok().map(Number::from);
        return unsigned.or_else(|| text.parse::<i64>().ok().map(Number::from));
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let exponent: i64 = exponent.parse().ok()?;
    let exponent = exponent.checked_sub(i64::try_from(decimals).ok()?)?;
    if digits > EXACT_DIGITS || exponent.abs() > EXACT_EXPONENT {
        return None;
    }
    let float = Number::from_f64(text.parse().ok()?)?;
    let is_large = float.as_str().contains("e+");
    (signs_exponents || !is_large).then_some(float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_the_engine_reads_them() {
        for (given, want) in [
            ("5", Some("5")),
            ("-0", Some("0")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("-9223372036854775808", Some("-9223372036854775808")),
            ("18446744073709551616", None),
            ("0.50", Some("0.5")),
            ("1e3", Some("1000.0")),
            ("1E+16", Some("1e+16")),
            ("1e-7", Some("1e-7")),
            ("-0.0", Some("-0.0")),
            ("1e400", None),
            ("0.1234567890123456", None),
        ] {
            let number = normalized(given, true).map(|number| number.to_string());
            assert_eq!(number.as_deref(), want, "{given}");
        }
    }

    #[test]
    fn large_exponents_are_known_in_their_newer_form_only() {
        assert_eq!(normalized("1e21", false), None);
        assert_eq!(normalized("1e-7", false).map(|number| number.to_string()).as_deref(), Some("1e-7"));
    }
}
