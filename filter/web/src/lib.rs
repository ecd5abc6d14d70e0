//! What Warmpath reads in a request, and how it ranks endpoints, for web pages: warmpath-core through wasm-bindgen.
//!
//! Text in, JSON out; nothing is kept between calls, nothing leaves the page. The same functions run natively, and a
//! test compares the two in a real browser (`tests/cases/browser.rs`).

mod ranking;
mod reading;

pub use ranking::{RankError, rank};
pub use reading::extract;

use wasm_bindgen::prelude::wasm_bindgen;

/// [`extract`] for JavaScript.
#[wasm_bindgen(js_name = extract)]
pub fn extract_in_page(method: &str, path: &str, body: &[u8]) -> String {
    extract(method, path, body)
}

/// [`rank`] for JavaScript, which throws an `Error` where it fails.
#[wasm_bindgen(js_name = rank)]
pub fn rank_in_page(question: &str) -> Result<String, wasm_bindgen::JsError> {
    Ok(rank(question)?)
}
