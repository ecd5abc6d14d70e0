//! The indexer's configuration file. Input: the file.
//!
//! A file is refused with at least one named problem, or accepted; what is accepted reads back the same from the form in
//! which the program prints it.

use warmpath_indexer::config::Config;

/// Checks one file; bytes that are no UTF-8 never reach the reader.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Config::parse(text) {
        Ok(config) => {
            let printed = config.to_yaml().map_err(|error| error.to_string());
            let again = printed.as_deref().map(|text| Config::parse(text).map_err(|error| error.to_string()));
            assert_eq!(again, Ok(Ok(config)), "printed as {printed:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error without words"),
    }
}
