//! Every limit of this crate, with the reason for its number.

/// Bytes of a prompt: of a completion's text, of each JSON field of a chat request, and of the rendered text.
///
/// The filter collects at most this much of a body (its `max_body_bytes` default), so nothing that it sends is refused
/// here; a million tokens of English are about a third of it.
pub const MAX_PROMPT_BYTES: usize = 16 << 20;

/// Values in the JSON of a request: a million ids of a forwarded prompt fit. They take up to 0.25 GB; without a limit, 16 MB of
/// JSON took 1 GB.
pub(crate) const MAX_JSON_VALUES: usize = 1 << 20;

/// Bytes of `tokenizer.json`. The largest in use (Gemma 3, 262k entries) has 33 MB.
pub const MAX_TOKENIZER_FILE_BYTES: u64 = 256 << 20;

/// Bytes of `tokenizer_config.json` and `config.json`. Gemma 3's, which lists every unused token, has 1 MB.
pub(crate) const MAX_CONFIG_FILE_BYTES: u64 = 16 << 20;

/// Bytes of a chat template, from a file or from a trusted request. The longest in use have about 25 kB.
pub const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Fuel of one rendering: one unit per instruction and per 64 bytes made, so it bounds a rendering's time (tens of
/// milliseconds) and memory (256 MB). A conversation of 2000 messages needs about a tenth of it.
pub(crate) const RENDER_FUEL: u64 = 4_000_000;

/// Nesting of template constructs while rendering; macros that call themselves end here. Templates in use need fewer
/// than 50.
pub(crate) const RENDER_DEPTH: usize = 200;

/// Stack of a thread that renders a request's own template. A value can be put into another one with about five units of fuel,
/// and dropping takes less than a kilobyte of stack for each.
pub(crate) const DEEP_STACK_BYTES: usize = 1 << 30;

/// Nesting of a value that `tojson` writes. Requests are at most 128 deep (the JSON reader's limit).
pub(crate) const JSON_DEPTH: usize = 256;
