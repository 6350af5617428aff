//! Compiles `RocksDB` into the folder from which it is linked: see `.cargo/config.toml` and `scripts/rocksdb`.

use std::{env, path::Path, process::Command};

fn main() {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    for name in ["Cargo.lock", "scripts/rocksdb", ".rocksdb/librocksdb.a"] {
        println!("cargo::rerun-if-changed={}", root.join(name).display());
    }
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if env::var_os("CARGO_FEATURE_ROCKSDB").is_none() {
        return;
    }
    let Some(folder) = env::var_os("ROCKSDB_LIB_DIR") else { return };
    if Path::new(&folder).file_name().is_none_or(|name| name != ".rocksdb") {
        // The builder links another library.
        return;
    }
    let status = Command::new(root.join("scripts/rocksdb")).arg("link").status();
    let is_linked = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    assert!(is_linked, "scripts/rocksdb has failed ({status:?}): run `scripts/need rocksdb`, which prints the reason");
}
