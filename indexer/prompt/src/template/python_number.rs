//! Numbers in Python's notation.

use std::fmt::{self, Write};

/// Decimal exponents from which Python's `repr` of a float turns to scientific notation.
const SCIENTIFIC_BELOW: i32 = -4;
const SCIENTIFIC_FROM: i32 = 16;

/// Names of the values that are no numbers; `str` and `json.dumps` differ in them.
pub(super) struct NonFinite {
    pub nan: &'static str,
    pub infinity: &'static str,
}

pub(super) const IN_TEXT: NonFinite = NonFinite { nan: "nan", infinity: "inf" };
pub(super) const IN_JSON: NonFinite = NonFinite { nan: "NaN", infinity: "Infinity" };

/// Writes `number` as Python's `repr` does: the shortest digits that read back, at least one decimal.
pub(super) fn write_float(out: &mut impl Write, number: f64, names: &NonFinite) -> fmt::Result {
    if number.is_nan() {
        return out.write_str(names.nan);
    }
    if number.is_infinite() {
        return write!(out, "{}{}", if number < 0.0 { "-" } else { "" }, names.infinity);
    }
    // Both languages print the shortest digits; only the layout differs.
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (SCIENTIFIC_BELOW..SCIENTIFIC_FROM).contains(&exponent) {
        let plain = number.to_string();
        let fraction = if plain.contains('.') { "" } else { ".0" };
        write!(out, "{plain}{fraction}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repr(number: f64) -> String {
        let mut out = String::new();
        write_float(&mut out, number, &IN_TEXT).unwrap();
        out
    }

    #[test]
    fn floats_look_as_python_prints_them() {
        // Printed by CPython 3.11.
        for (number, want) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e3, "1000.0"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1e-7, "1e-07"),
            (1.5e-10, "1.5e-10"),
            (1e15, "1000000000000000.0"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.2345e22, "1.2345e+22"),
            (1e100, "1e+100"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (0.1 + 0.2, "0.30000000000000004"),
        ] {
            assert_eq!(repr(number), want);
        }
    }

    #[test]
    fn values_that_are_no_numbers_have_two_sets_of_names() {
        assert_eq!([f64::NAN, f64::INFINITY, -f64::INFINITY].map(repr), ["nan", "inf", "-inf"]);
        let mut json = String::new();
        for number in [f64::NAN, f64::INFINITY, -f64::INFINITY] {
            write_float(&mut json, number, &IN_JSON).unwrap();
        }
        assert_eq!(json, "NaNInfinity-Infinity");
    }
}
