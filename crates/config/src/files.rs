//! Checks the files and directories in a configuration: whether a node could use them.

use std::{
    ffi::CString,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{Config, Program, resolve::Reader};

pub(super) fn check(r: &mut Reader<'_>, config: &Config, program: Program) {
    if let Some(tls) = &config.http_server.tls
        && let Err((key, error)) = tls.check()
    {
        r.error(&format!("http_server.tls.{key}"), error.to_string());
    }
    if let Some(demo) = &config.demo
        && let Err(why) = (program.check_site)(&demo.dir)
    {
        r.error("demo.dir", why);
    }
    if config.storage.is_some() && !program.has_storage {
        r.error(
            "storage.path",
            "this program was built without a storage: build it with the feature `storage` of `dunlin-game`, or remove \
             this key and the options of namespaces that need it",
        );
    }
    let without_namespace = std::iter::once("channel.without_namespace".to_owned());
    let tables = without_namespace.chain((0..).map(|index| format!("channel.namespaces[{index}]")));
    for (table, rooms) in tables.zip(&config.rooms.namespaces) {
        let Some(recording) = rooms.as_ref().and_then(|rooms| rooms.recording.as_ref()) else { continue };
        if let Err(why) = check_writable(&recording.directory) {
            r.error(&format!("{table}.room.record_directory"), why);
        }
    }
}

/// Checks whether files can be created in a directory, which may itself have to be created.
fn check_writable(dir: &Path) -> Result<(), String> {
    let existing = dir.ancestors().find(|path| path.symlink_metadata().is_ok());
    // A relative path whose first part does not exist begins in the working directory.
    let existing =
        existing.filter(|path| !path.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    let shown = existing.display();
    match fs::metadata(&existing) {
        Err(error) => Err(format!("recordings cannot be written, because {shown} cannot be read: {error}")),
        Ok(metadata) if !metadata.is_dir() => {
            Err(format!("recordings cannot be written, because {shown} is not a directory"))
        }
        Ok(_) if !is_writable(&existing) => Err(format!(
            "recordings cannot be written, because Dunlin's user cannot write to {shown}: change its owner"
        )),
        Ok(_) => Ok(()),
    }
}

fn is_writable(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: the call reads a text that ends in a zero byte and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}
