//! The Qwen3 tokenizer of the workspace's fixtures, and packed files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test without its fixture fails")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::read::GzDecoder;

/// A folder with the model's files, unpacked.
pub(crate) static QWEN3: LazyLock<PathBuf> = LazyLock::new(|| {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers/qwen3");
    // A folder per process: test programs may run side by side.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("qwen3-{}", env!("CARGO_CRATE_NAME")));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("tokenizer.json"), unpack(&packed.join("tokenizer.json.gz"))).unwrap();
    fs::copy(packed.join("tokenizer_config.json"), dir.join("tokenizer_config.json")).unwrap();
    dir
});

/// The text of a gzip file.
pub(crate) fn unpack(path: &Path) -> String {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}
