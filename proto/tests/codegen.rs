//! The committed message code is what the `.proto` files say. `WARMPATH_REGENERATE=1 cargo test -p warmpath-proto`
//! writes it anew.

use std::path::{Path, PathBuf};

fn generate() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = protox::compile(["warmpath/v1/score.proto", "warmpath/v1/peer.proto"], [root]).expect("the .proto files compile");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tonic_prost_build::configure()
        .build_transport(false)
        .client_mod_attribute("warmpath.v1", "#[cfg(feature = \"grpc\")]")
        .server_mod_attribute("warmpath.v1", "#[cfg(feature = \"grpc\")]")
        .out_dir(&out)
        .compile_fds(files)
        .expect("code is generated");
    std::fs::read_to_string(out.join("warmpath.v1.rs")).expect("one file for the package")
}

#[test]
fn committed_code_is_current() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated/warmpath.v1.rs");
    let fresh = generate();
    if std::env::var_os("WARMPATH_REGENERATE").is_some() {
        std::fs::create_dir_all(committed.parent().expect("a folder")).expect("folder");
        std::fs::write(&committed, fresh).expect("written");
        return;
    }
    let old = std::fs::read_to_string(&committed).expect("proto/src/generated/warmpath.v1.rs is committed");
    assert!(old == fresh, "proto/src/generated is stale: run WARMPATH_REGENERATE=1 cargo test -p warmpath-proto");
}
