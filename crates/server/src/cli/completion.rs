//! `dunlin completion`: scripts with which shells complete commands and options.

use std::{env, path::Path};

use clap::{Args, Command, CommandFactory as _, ValueEnum};
use clap_complete::{Generator, generate, shells};

use super::{Cli, Failure, output};

/// How to use the scripts of this program. The Debian package installs them for all users. A new account has none of the
/// folders.
fn usage(program: &str) -> String {
    let install = |shell: &str, folder: &str, file: &str| {
        format!("mkdir -p {folder} && {program} completion {shell} > {folder}/{file}")
    };
    format!(
        "For this user, from the next shell on:\n  \
           bash  {}\n  \
           zsh   {}\n        \
                 and in ~/.zshrc: fpath=(~/.zfunc $fpath); autoload -U compinit; compinit\n  \
           fish  {}",
        install("bash", "~/.local/share/bash-completion/completions", program),
        install("zsh", "~/.zfunc", &format!("_{program}")),
        install("fish", "~/.config/fish/completions", &format!("{program}.fish")),
    )
}

/// Print a script with which a shell completes commands and options.
#[derive(Debug, Args)]
#[command(after_help = usage(&called()))]
pub(super) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(args: &CompletionArgs) -> Result<(), Failure> {
    output::text(script(args.shell, &called()))
}

/// The name that this program was called by: games of their own have other names.
fn called() -> String {
    let called = env::args_os().next().unwrap_or_default();
    Path::new(&called).file_name().map_or_else(|| "dunlin".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn script(shell: Shell, program: &str) -> String {
    match shell {
        Shell::Bash => generated(shells::Bash, program),
        Shell::Zsh => generated(shells::Zsh, program),
        Shell::Fish => generated(shells::Fish, program),
    }
}

fn generated(shell: impl Generator, program: &str) -> String {
    let mut text = Vec::new();
    generate(shell, &mut visible(), program, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The generators offer hidden commands as well, and a command cannot be taken out.
fn visible() -> Command {
    let all = Cli::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("dunlin").version(env!("CARGO_PKG_VERSION")).subcommands(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_names_each_visible_command_and_no_hidden_one() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = script(shell, "dunlin");
            for command in Cli::command().get_subcommands() {
                let (name, is_hidden) = (command.get_name(), command.is_hide_set());
                assert_eq!(text.contains(name), !is_hidden, "{shell:?}, {name}");
            }
            assert!(text.contains("strict"), "{shell:?} does not complete options");
        }
    }

    #[test]
    fn a_game_completes_its_own_name() {
        assert!(script(Shell::Bash, "island").contains("complete -F _island "));
        assert!(script(Shell::Zsh, "island").starts_with("#compdef island"));
        assert!(script(Shell::Fish, "island").contains("complete -c island "));
    }
}
