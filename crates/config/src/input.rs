//! Sources of settings: a file, environment variables, flags. Later sources take precedence.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    nearest::without_indices,
    opentelemetry,
    problem::{Problems, SettingSource},
    settings::Settings,
    tree::{Format, Tree},
    value::Value,
    variables,
};

/// Maximum length of a configuration file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The default file names, in order of precedence. Centrifugo uses the first one.
const DEFAULT_FILES: [&str; 4] = ["config.json", "config.yaml", "config.yml", "config.toml"];

/// The keys that name files or directories to which a node writes.
const WRITTEN: [&str; 6] = [
    "channel.namespaces[].room.record_directory",
    "channel.without_namespace.room.record_directory",
    "log.file",
    "pid_file",
    "storage.backup.path",
    "storage.path",
];

/// The prefix of environment variables that set keys.
pub(super) const PREFIX: &str = "DUNLIN_";

/// The prefix that Centrifugo uses. Variables with Dunlin's prefix take precedence.
pub(super) const FORMER_PREFIX: &str = "CENTRIFUGO_";

/// All sources of a configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfigInput {
    /// The configuration file.
    pub document: Option<Document>,
    /// Environment variables; those without the prefix `DUNLIN_`, `CENTRIFUGO_` or `OTEL_` are ignored.
    pub variables: Vec<(String, String)>,
    /// Settings by command-line flags.
    pub flags: Vec<Flag>,
}

/// A configuration file.
#[derive(Clone, Debug)]
pub struct Document {
    /// The name in messages.
    pub name: String,
    /// The format of the file.
    pub format: Format,
    /// The text of the file.
    pub text: String,
}

/// A setting by a flag.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag, for messages: `--port`.
    pub name: &'static str,
    /// The key that it sets.
    pub path: &'static str,
    /// Its value.
    pub value: String,
}

impl ConfigInput {
    /// Reads the file, if one is named, and this process's environment.
    ///
    /// # Errors
    /// A file that cannot be read, is too large, or has an unknown extension; a variable that is not valid UTF-8.
    pub fn read(file: Option<&Path>, flags: Vec<Flag>) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let document = file.and_then(|path| {
            let name = path.display().to_string();
            let document = Document::read(path, &name);
            document.map_err(|text| problems.error(&SettingSource::File(name.into()), "", text)).ok()
        });
        let variables = env::vars_os().filter_map(|variable| text_of(variable, &mut problems)).collect();
        if problems.errors.is_empty() { Ok(Self { document, variables, flags }) } else { Err(problems) }
    }

    /// The default file: the first of [`DEFAULT_FILES`] that exists in the working directory.
    pub fn default_file() -> Option<PathBuf> {
        DEFAULT_FILES.iter().map(PathBuf::from).find(|path| path.is_file())
    }

    /// The files and directories to which a node with these settings writes. Errors elsewhere in the settings do not
    /// matter, nor which simulations the program has.
    pub fn written_paths(&self) -> Vec<PathBuf> {
        let settings = self.settings(&mut Problems::default());
        let path = |(key, value): (&str, &Value)| match value {
            Value::Text(text) if !text.is_empty() && WRITTEN.contains(&&*without_indices(key)) => {
                Some(PathBuf::from(text))
            }
            _ => None,
        };
        settings.all().filter_map(path).collect()
    }

    /// Merges the layers.
    pub(super) fn settings(&self, problems: &mut Problems) -> Settings {
        let mut settings = Settings::default();
        if let Some(document) = &self.document {
            let source = SettingSource::File(Arc::from(document.name.as_str()));
            match Tree::parse(document.format, &document.text) {
                Ok(tree) => settings.set_document(&tree, &source, problems),
                Err(why) => problems.error(&source, "", why),
            }
        }
        variables::set(&self.variables, &mut settings, problems);
        for flag in &self.flags {
            settings.set_text(flag.path, &flag.value, &SettingSource::Flag(flag.name), problems);
        }
        opentelemetry::set_standard_variables(&self.variables, &mut settings, problems);
        settings
    }
}

impl Document {
    fn read(path: &Path, name: &str) -> Result<Self, String> {
        let format = Format::of(path)
            .ok_or_else(|| "has an unknown format; the name must end in .json, .yaml, .yml or .toml".to_owned())?;
        let mut text = String::new();
        let file = File::open(path).map_err(|error| format!("can't be opened: {error}"))?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| format!("can't be read: {error}"))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
        }
        Ok(Self { name: name.to_owned(), format, text })
    }
}

fn text_of((name, value): (OsString, OsString), problems: &mut Problems) -> Option<(String, String)> {
    let name = name.into_string().ok().filter(|name| concerns_us(name))?;
    let Ok(value) = value.into_string() else {
        problems.error(&SettingSource::Variable(name), "", "is not UTF-8");
        return None;
    };
    Some((name, value))
}

/// Whether a variable is intended to set a key.
fn concerns_us(name: &str) -> bool {
    [FORMER_PREFIX, PREFIX, opentelemetry::STANDARD_PREFIX].iter().any(|prefix| setting_of(name, prefix).is_some())
}

/// The key part of a variable with this prefix.
pub(super) fn setting_of<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    name.strip_prefix(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn the_paths_that_a_node_writes_are_read_from_settings_with_errors() {
        let text = r#"{
            "pid_file": "game.pid", "log": { "file": "", "level": "loud" }, "http_server": { "port": "none" },
            "storage": { "path": "/data", "backup": { "path": "backups" } }, "demo": { "dir": "web" },
            "channel": {
                "namespaces": [
                    { "name": "a" },
                    { "name": "b", "room": { "simulation": "unknown", "record_directory": "rooms" } }
                ],
                "without_namespace": { "room": { "record_directory": "others" } }
            }
        }"#;
        let document = Document { name: "config.json".into(), format: Format::Json, text: text.into() };
        let variables = vec![("DUNLIN_PID_FILE".to_owned(), "other.pid".to_owned())];
        let input = ConfigInput { document: Some(document), variables, flags: Vec::new() };
        let paths = ["rooms", "others", "other.pid", "backups", "/data"];
        assert_eq!(input.written_paths(), paths.map(PathBuf::from));
        assert_eq!(ConfigInput::default().written_paths(), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_keys_of_written_paths_exist() {
        for key in WRITTEN {
            assert!(keys::at(key).is_some(), "{key}");
        }
    }
}
