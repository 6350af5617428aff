//! Stores the seat tokens of the bots in a file. With them, the bots of the next process return as the same players.
//! Without them, the players of the previous process would stay in the room without clients for its `seat_grace`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Deserialize;

/// Minimum time between two writes of the file.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// Characters of a seat token.
const TOKEN_CHARS: usize = 32;

/// Maximum size of the file in bytes: a token with quotes and a comma for each of 10,000 bots, with a margin.
const FILE_BYTES_MAX: u64 = 1 << 19;

/// The seat tokens, by bot.
pub struct BotSeats {
    file: Option<PathBuf>,
    tokens: Vec<Option<String>>,
    is_changed: bool,
    next_write: Option<Instant>,
}

#[derive(Deserialize)]
struct JoinAnswer {
    seat_token: String,
}

impl BotSeats {
    /// Reads the tokens that the bots of the previous process stored. A file that cannot be read counts as empty.
    pub fn read(file: Option<PathBuf>, bots: usize) -> Self {
        let kept = file.as_deref().and_then(read_file);
        let mut tokens: Vec<Option<String>> = kept.unwrap_or_default();
        for token in &mut tokens {
            token.take_if(|token| !is_token(token));
        }
        tokens.resize(bots, None);
        Self { file, tokens, is_changed: false, next_write: None }
    }

    /// The seat token with which a bot joins.
    pub fn token(&self, bot: usize) -> Option<&str> {
        self.tokens.get(bot)?.as_deref()
    }

    /// Stores the token from the answer to a bot's join. Rooms without `survival` issue no tokens.
    pub fn joined(&mut self, bot: usize, answer: &[u8]) {
        let given = serde_json::from_slice::<JoinAnswer>(answer).ok().map(|answer| answer.seat_token);
        if let (Some(token), Some(given)) = (self.tokens.get_mut(bot), given.filter(|token| is_token(token))) {
            *token = Some(given);
            self.is_changed = true;
        }
    }

    /// Writes the file if a token has changed, at most twice per second. If the file cannot be written, only
    /// the bots are affected: they lose their seats.
    pub fn write_changed(&mut self, now: Instant) {
        let Some(file) = self.file.as_deref().filter(|_| self.is_changed) else { return };
        if self.next_write.is_some_and(|next| now < next) {
            return;
        }
        self.is_changed = false;
        self.next_write = Some(now + WRITE_INTERVAL);
        if write_file(file, &self.tokens).is_err() {
            self.file = None;
        }
    }
}

fn is_token(text: &str) -> bool {
    text.len() == TOKEN_CHARS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn read_file(file: &Path) -> Option<Vec<Option<String>>> {
    if fs::metadata(file).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Only this user can read the file, because tokens are secrets. The rename replaces the file atomically.
fn write_file(file: &Path, tokens: &[Option<String>]) -> io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let new = file.with_extension("new");
    let mut opened = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    opened.write_all(&serde_json::to_vec(tokens)?)?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("dunlin-bots-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("it can be made");
        directory
    }

    #[test]
    fn seat_tokens_are_stored_for_the_next_process() {
        let directory = scratch("kept");
        let file = directory.join("demo-bots.json");
        let mut seats = BotSeats::read(Some(file.clone()), 3);
        assert_eq!(seats.token(1), None);
        let now = Instant::now();
        seats.write_changed(now);
        assert!(!file.exists(), "there is nothing to keep");
        seats.joined(1, format!(r#"{{"seat_token":"{TOKEN}"}}"#).as_bytes());
        seats.joined(9, format!(r#"{{"seat_token":"{TOKEN}"}}"#).as_bytes());
        seats.write_changed(now);
        let tokens = |bots| {
            let seats = BotSeats::read(Some(file.clone()), bots);
            (0..4).map(|bot| seats.token(bot).map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(tokens(3), [None, Some(TOKEN.to_owned()), None, None]);
        assert_eq!(tokens(1), [const { None }; 4], "there are fewer bots now");
        // The second write is too early.
        seats.joined(0, format!(r#"{{"seat_token":"{TOKEN}"}}"#).as_bytes());
        seats.write_changed(now + WRITE_INTERVAL / 2);
        assert_eq!(tokens(3)[0], None);
        seats.write_changed(now + WRITE_INTERVAL);
        assert_eq!(tokens(3)[0].as_deref(), Some(TOKEN));
        fs::remove_dir_all(directory).expect("it is there");
    }

    #[test]
    fn invalid_seat_tokens_are_not_stored() {
        let directory = scratch("odd");
        let file = directory.join("demo-bots.json");
        let mut seats = BotSeats::read(None, 1);
        for answer in [&b"{}"[..], b"", b"{\"seat_token\":7}", b"{\"seat_token\":\"\\\"\"}"] {
            seats.joined(0, answer);
            assert_eq!(seats.token(0), None);
        }
        for content in ["", "{}", "[1]", r#"["short"]"#] {
            fs::write(&file, content).expect("it can be written");
            assert_eq!(BotSeats::read(Some(file.clone()), 1).token(0), None, "{content}");
        }
        // The directory does not exist.
        let mut seats = BotSeats::read(Some(directory.join("none").join("demo-bots.json")), 1);
        seats.joined(0, format!(r#"{{"seat_token":"{TOKEN}"}}"#).as_bytes());
        seats.write_changed(Instant::now());
        assert_eq!(seats.token(0), Some(TOKEN), "it is known all the same");
        fs::remove_dir_all(directory).expect("it is there");
    }
}
