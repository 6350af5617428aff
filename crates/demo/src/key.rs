//! The key of the server API, from the variables from which the server reads it.

use std::{ffi::OsString, fs, io};

/// The variable with the key.
pub const KEY: &str = "DUNLIN_HTTP_API_KEY";

/// The variable with the path of a file that contains the key, and at most one newline.
pub const KEY_FILE: &str = "DUNLIN_HTTP_API_KEY_FILE";

/// The variable from Centrifugo. The others come first.
const FORMER_KEY: &str = "CENTRIFUGO_HTTP_API_KEY";

/// Reads the key, where `variable` has the value of each variable. `None` if none is set: an empty one sets nothing.
///
/// # Errors
/// Both variables are set, or the file cannot be read or is empty.
pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Option<String>> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let text = |name: &str| -> io::Result<Option<String>> {
        let not_text = |_| io::Error::other(format!("{name} is no text: set it to http_api.key of the server"));
        set(name).map(OsString::into_string).transpose().map_err(not_text)
    };
    match (text(KEY)?, set(KEY_FILE)) {
        (Some(_), Some(_)) => {
            Err(io::Error::other(format!("{KEY_FILE} is set together with {KEY}: unset one of them")))
        }
        (Some(key), None) => Ok(Some(key)),
        (None, Some(file)) => {
            let name = format!("{KEY_FILE} {}", file.display());
            let key = fs::read_to_string(file).map_err(|error| {
                io::Error::other(format!("{name}: {error}: name a text file that contains only the key"))
            })?;
            let line = key.strip_suffix('\n').map_or(&*key, |line| line.strip_suffix('\r').unwrap_or(line));
            if line.is_empty() {
                return Err(io::Error::other(format!("{name} is empty: write the key into it, or unset the variable")));
            }
            Ok(Some(line.to_owned()))
        }
        (None, None) => text(FORMER_KEY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_the_server() {
        let folder = std::env::temp_dir().join(format!("dunlin-demo-key-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let file = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).expect("a file");
            file.into_os_string()
        };
        let (with_newline, empty) = (file("key", "k\r\n"), file("empty", "\n"));
        let found = |variables: &[(&str, OsString)]| {
            read(|name| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone()))
                .map_err(|error| error.to_string())
        };
        let key = |name, value: &str| (name, OsString::from(value));
        assert_eq!(found(&[]), Ok(None));
        assert_eq!(found(&[key(KEY, ""), key(KEY_FILE, "")]), Ok(None));
        assert_eq!(found(&[key(KEY, "k"), key(KEY_FILE, ""), key(FORMER_KEY, "l")]), Ok(Some("k".to_owned())));
        assert_eq!(found(&[(KEY_FILE, with_newline), key(FORMER_KEY, "l")]), Ok(Some("k".to_owned())));
        assert_eq!(found(&[key(FORMER_KEY, "l")]), Ok(Some("l".to_owned())));
        for (variables, words) in [
            (vec![key(KEY, "k"), key(KEY_FILE, "f")], "is set together with DUNLIN_HTTP_API_KEY: unset one of them"),
            (vec![(KEY_FILE, empty)], "empty is empty: write the key into it"),
            (vec![key(KEY_FILE, "/none")], "DUNLIN_HTTP_API_KEY_FILE /none: "),
        ] {
            let error = found(&variables).expect_err("refused");
            assert!(error.contains(words), "{error}");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
