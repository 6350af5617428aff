//! Where settings come from: a file, environment variables, flags. Each has precedence over those before it.

use std::{env, ffi::OsString, fs::File, io::Read as _, path::Path, sync::Arc};

use super::{
    keys::{self, Groups, Key, Kind},
    nearest,
    problem::{Problems, Source},
    settings::Settings,
    tree::{Format, Tree},
};

/// Bytes of a configuration file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What environment variables that set a key begin with.
const PREFIX: &str = "DUNLIN_";

/// What they begin with where Centrifugo ran before. Ours are put on top.
const FORMER_PREFIX: &str = "CENTRIFUGO_";

/// All that was typed.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The file.
    pub document: Option<Document>,
    /// Environment variables; those that begin with neither `DUNLIN_` nor `CENTRIFUGO_` are not looked at.
    pub variables: Vec<(String, String)>,
    /// Settings made by flags of the command line.
    pub flags: Vec<Flag>,
}

/// A configuration file.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its name in messages.
    pub name: String,
    /// How it is written.
    pub format: Format,
    /// What it holds.
    pub text: String,
}

/// A setting made by a flag.
#[derive(Clone, Debug)]
pub struct Flag {
    /// As it was typed, for messages: `--port`.
    pub name: &'static str,
    /// The key that it sets.
    pub path: &'static str,
    /// Its value.
    pub value: String,
}

impl Input {
    /// Reads the file, if one is named, and this process's environment.
    ///
    /// # Errors
    /// A file that can't be read, is too large, or has a name that doesn't tell its format; a variable that is not text.
    pub fn read(file: Option<&Path>, flags: Vec<Flag>) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let document = file.and_then(|path| {
            let name = path.display().to_string();
            let document = Document::read(path, &name);
            document.map_err(|text| problems.error(&Source::File(name.into()), "", text)).ok()
        });
        let variables = env::vars_os().filter_map(|variable| text_of(variable, &mut problems)).collect();
        if problems.errors.is_empty() { Ok(Self { document, variables, flags }) } else { Err(problems) }
    }

    /// Puts the layers on top of one another.
    pub(super) fn settings(&self, problems: &mut Problems) -> Settings {
        let mut settings = Settings::default();
        if let Some(document) = &self.document {
            let source = Source::File(Arc::from(document.name.as_str()));
            match Tree::parse(document.format, &document.text) {
                Ok(tree) => settings.set_document(&tree, &source, problems),
                Err(why) => problems.error(&source, "", format!("is not {}: {why}", document.format.name())),
            }
        }
        self.set_variables(&mut settings, problems);
        for flag in &self.flags {
            settings.set_text(flag.path, &flag.value, &Source::Flag(flag.name), problems);
        }
        settings
    }

    /// Lists first: variables of single tables in them change what the lists hold.
    fn set_variables(&self, settings: &mut Settings, problems: &mut Problems) {
        let of_keys = variables_of_keys();
        let mut rest = Vec::new();
        for prefix in [FORMER_PREFIX, PREFIX] {
            for (name, value) in &self.variables {
                let Some(set) = setting_of(name, prefix) else { continue };
                if let Some((_, path)) = of_keys.iter().find(|(known, _)| known.strip_prefix(PREFIX) == Some(set)) {
                    settings.set_text(path, value, &Source::Variable(name.clone()), problems);
                } else {
                    rest.push((name, set, value));
                }
            }
        }
        let of_tables = variables_of_namespaces(settings);
        for (name, set, value) in rest {
            let source = Source::Variable(name.clone());
            if let Some((_, path)) = of_tables.iter().find(|(known, _)| known.strip_prefix(PREFIX) == Some(set)) {
                settings.set_text(path, value, &source, problems);
            } else if name.starts_with(PREFIX) {
                let known: Vec<_> = of_keys.iter().chain(&of_tables).map(|(name, _)| name.clone()).collect();
                problems.error(&source, "", nearest::unknown_variable(name, &known));
            } else {
                problems.warning(&source, "", "is ignored: it sets no key");
            }
        }
    }
}

impl Document {
    fn read(path: &Path, name: &str) -> Result<Self, String> {
        let format = Format::of(path)
            .ok_or_else(|| "is of no known kind; the name has to end in .json, .yaml, .yml or .toml".to_owned())?;
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
        problems.error(&Source::Variable(name), "", "is not UTF-8");
        return None;
    };
    Some((name, value))
}

/// Whether a variable is meant to set a key.
fn concerns_us(name: &str) -> bool {
    [FORMER_PREFIX, PREFIX].iter().any(|prefix| setting_of(name, prefix).is_some())
}

/// What a variable with this prefix sets. Kubernetes gives every container variables about services, and for one that
/// is called `dunlin` they begin as ours do.
fn setting_of<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    name.strip_prefix(prefix).filter(|rest| {
        *rest != "PORT"
            && !["PORT_", "SERVICE_HOST", "SERVICE_PORT"].iter().any(|of_service| rest.starts_with(of_service))
    })
}

/// The variable of every key that is in no list, and the key's path.
pub(super) fn variables_of_keys() -> Vec<(String, String)> {
    let mut variables = Vec::new();
    collect(keys::ROOT, "", &mut variables);
    variables
}

/// `DUNLIN_CHANNEL_NAMESPACES_<NAME>_<KEY>` for the namespaces that are there.
fn variables_of_namespaces(settings: &Settings) -> Vec<(String, String)> {
    const LIST: &str = "channel.namespaces";
    let Some(Key { kind: Kind::Tables(groups), .. }) = keys::at(LIST) else { return Vec::new() };
    let mut variables = Vec::new();
    for index in 0..settings.len(LIST) {
        let table = format!("{LIST}[{index}]");
        let Some(name) = settings.text(&format!("{table}.name")) else { continue };
        let mut of_table = Vec::new();
        collect(groups, &table, &mut of_table);
        let as_typed = variable_name(&table);
        let as_meant = variable_name(&format!("{LIST}.{name}"));
        variables
            .extend(of_table.into_iter().map(|(variable, path)| (variable.replacen(&as_typed, &as_meant, 1), path)));
    }
    variables
}

fn collect(groups: Groups, prefix: &str, variables: &mut Vec<(String, String)>) {
    for key in keys::names(groups) {
        let path = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
        match key.kind {
            Kind::Table(inner) => collect(inner, &path, variables),
            _ => variables.push((variable_name(&path), path)),
        }
    }
}

/// `client.ping_interval` is `DUNLIN_CLIENT_PING_INTERVAL`.
pub(super) fn variable_name(path: &str) -> String {
    let name = path.to_ascii_uppercase().replace(['.', '-'], "_");
    format!("{PREFIX}{name}")
}
