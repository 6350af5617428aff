//! Files with secrets, which environment variables name.

use std::{fs::File, io::Read as _};

use super::keys::{self, ValueKind};

/// Maximum length of such a file. The longest secret is a private key as PEM text.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Reads a secret from the file that a variable names. A trailing newline is removed.
pub(super) fn read(path: &str, file: &str, twin: Option<&str>) -> Result<String, String> {
    if !matches!(keys::at(path).map(|key| key.kind), Some(ValueKind::Secret | ValueKind::Url)) {
        return Err(
            "is neither a secret nor a URL, and only these can be read from files: set the variable without _FILE"
                .into(),
        );
    }
    if let Some(twin) = twin {
        return Err(format!("is set together with {twin}: unset one of them"));
    }
    let mut text = String::new();
    let opened = File::open(file)
        .map_err(|error| format!("{file:?} cannot be opened: {error}. Name a file that Dunlin's user can read"))?;
    opened
        .take(SECRET_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("{file:?} cannot be read: {error}. Name a text file that contains only the secret"))?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(format!(
            "{file:?} is larger than {SECRET_BYTES_MAX} bytes: name a file that contains only the secret"
        ));
    }
    let end = text.strip_suffix('\n').map_or(text.len(), |line| line.strip_suffix('\r').unwrap_or(line).len());
    text.truncate(end);
    if text.is_empty() {
        return Err(format!("{file:?} is empty: write the secret into it, or unset this variable"));
    }
    Ok(text)
}
