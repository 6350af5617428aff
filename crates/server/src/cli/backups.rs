//! `dunlin backups`.

use std::path::PathBuf;

use clap::Args;
use dunlin_storage::BackupInfo;

use super::{Failure, output};

/// List the backups in a directory.
#[derive(Debug, Args)]
pub(super) struct BackupsArgs {
    /// Directory of the backups
    #[arg(value_name = "BACKUP_DIR")]
    directory: PathBuf,
    /// Also read all files of the backups, and check that they have the right size and checksum
    #[arg(long)]
    verify: bool,
}

pub(super) fn run(args: &BackupsArgs) -> Result<(), Failure> {
    let directory = &args.directory;
    let list = if args.verify { dunlin_storage::verify_backups } else { dunlin_storage::backups };
    let backups = list(directory).map_err(Failure::Storage)?;
    for backup in &backups {
        output::line(described(*backup))?;
    }
    if args.verify {
        output::line(format_args!("{}: all files have the right size and checksum", directory.display()))?;
    }
    Ok(())
}

/// A backup in one line.
pub(super) fn described(backup: BackupInfo) -> String {
    let BackupInfo { number, made_s, bytes, files } = backup;
    format!("backup {number}: {}, {files} files, {bytes} bytes", utc(made_s))
}

/// Unix time as date and time (RFC 3339).
fn utc(unix_s: i64) -> String {
    const DAY_S: i64 = 24 * 60 * 60;
    // Years begin in March, so that leap days come last.
    const DAYS_TO_1970: i64 = 719_468;
    const ERA_DAYS: i64 = 146_097;
    let (days, second) = (unix_s.div_euclid(DAY_S) + DAYS_TO_1970, unix_s.rem_euclid(DAY_S));
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_are_dates() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_374_274, "2026-11-22T19:04:34Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), expected);
        }
    }
}
