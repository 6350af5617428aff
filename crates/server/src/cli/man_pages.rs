//! `dunlin man-pages`: a page for each command, for packages.

use std::{fs, path::PathBuf};

use clap::{Args, CommandFactory as _};

use super::{Cli, Failure};

/// Write a manual page for each command.
#[derive(Debug, Args)]
pub(super) struct ManPagesArgs {
    /// Directory to write to; it is created if it is missing
    directory: PathBuf,
}

pub(super) fn run(args: &ManPagesArgs) -> Result<(), Failure> {
    let failed = |error| Failure::File(args.directory.clone(), error);
    fs::create_dir_all(&args.directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pages(command: &clap::Command, name: &str) -> BTreeSet<String> {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        let mut names: BTreeSet<_> =
            below.flat_map(|below| pages(below, &format!("{name}-{}", below.get_name()))).collect();
        names.insert(format!("{name}.1"));
        names
    }

    #[test]
    fn each_visible_command_has_a_page() {
        let directory = std::env::temp_dir().join(format!("dunlin-man-pages-{}", std::process::id()));
        run(&ManPagesArgs { directory: directory.clone() }).expect("the directory can be written");
        let written: BTreeSet<_> = fs::read_dir(&directory)
            .expect("the directory is there")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let serve = fs::read_to_string(directory.join("dunlin-serve.1")).expect("serve has a page");
        fs::remove_dir_all(&directory).expect("the directory can be removed");
        assert_eq!(written, pages(&Cli::command(), "dunlin"));
        assert!(serve.contains("Run a node") && serve.contains("\\-\\-config"), "{serve}");
    }
}
