//! The committed message code is what the `.proto` files say. `WARMPATH_REGENERATE=1 cargo test -p warmpath-proto`
//! writes it anew.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

fn generate() -> Result<String, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["warmpath/v1/score.proto", "warmpath/v1/peer.proto", "warmpath/v1/mirror.proto"];
    let files = protox::compile(names, [root])?;
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tonic_prost_build::configure()
        .build_transport(false)
        .client_mod_attribute("warmpath.v1", "#[cfg(feature = \"grpc\")]")
        .server_mod_attribute("warmpath.v1", "#[cfg(feature = \"grpc\")]")
        .out_dir(&out)
        .compile_fds(files)?;
    Ok(std::fs::read_to_string(out.join("warmpath.v1.rs"))?)
}

#[test]
fn committed_code_is_current() -> Result<(), Box<dyn Error>> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated/warmpath.v1.rs");
    let fresh = generate()?;
    if option_env!("WARMPATH_REGENERATE").is_some() {
        std::fs::write(&committed, fresh)?;
        return Ok(());
    }
    let old = std::fs::read_to_string(&committed)?;
    assert!(
        old == fresh,
        "proto/src/generated is stale: run WARMPATH_REGENERATE=1 cargo test -p warmpath-proto"
    );
    Ok(())
}
