//! Models' folders whose tokenizer.json may be packed.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

/// A folder with the model's files as the library wants them: `dir` itself, or a copy with tokenizer.json unpacked.
pub(crate) fn unpacked(dir: &Path) -> Result<PathBuf, String> {
    let packed = dir.join("tokenizer.json.gz");
    if !packed.exists() {
        return Ok(dir.to_owned());
    }
    let unpack = || -> std::io::Result<PathBuf> {
        let copy = std::env::temp_dir().join("warmpath-golden").join(dir.file_name().unwrap_or_default());
        fs::create_dir_all(&copy)?;
        let mut text = Vec::new();
        GzDecoder::new(fs::File::open(&packed)?).read_to_end(&mut text)?;
        fs::write(copy.join("tokenizer.json"), text)?;
        fs::copy(dir.join("tokenizer_config.json"), copy.join("tokenizer_config.json"))?;
        Ok(copy)
    };
    unpack().map_err(|error| format!("{}: {error}", packed.display()))
}
