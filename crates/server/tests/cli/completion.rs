//! `dunlin completion`: the commands of its help, as a person types them.

use std::{fs, os::unix::fs::symlink, process::Command};

use super::{Folder, stderr, stdout};

#[test]
fn the_commands_of_the_help_install_completions_in_a_new_account() {
    let folder = Folder::new("completion");
    // A game of one's own has another name.
    let program = folder.0.join("island");
    symlink(env!("CARGO_BIN_EXE_dunlin"), &program).expect("a link");
    let mut command = Command::new(program);
    let help = command.args(["completion", "--help"]).env_clear().output().expect("it runs");
    assert!(!stdout(&help).contains("dunlin"), "{}", stdout(&help));
    for (shell, file, text) in [
        ("bash", ".local/share/bash-completion/completions/island", "complete -F _island "),
        ("zsh", ".zfunc/_island", "#compdef island"),
        ("fish", ".config/fish/completions/island.fish", "complete -c island "),
    ] {
        let line = stdout(&help).lines().find_map(|line| line.trim().strip_prefix(shell));
        let installed = Command::new("sh")
            .args(["-c", line.expect(shell)])
            .env_clear()
            .env("HOME", &folder.0)
            .env("PATH", format!("{}:/usr/bin:/bin", folder.0.display()))
            .output()
            .expect("it runs");
        assert!(installed.status.success(), "{shell}: {}", stderr(&installed));
        assert!(fs::read_to_string(folder.0.join(file)).expect(shell).contains(text), "{shell}");
    }
}
