//! The newest publication of each key in subscribe replies. A publication's data contains its key.

use dunlin_protocol::Tags;

use crate::wire::{PublicationBody, SubscribeBody};

use super::ChannelTruth;

/// The tag with the key.
pub const KEY_TAG: &str = "symbol";
/// The tag of publications that remove their key.
pub const REMOVAL_TAG: &str = "gone";

/// One in this many publications removes its key.
const REMOVALS: u64 = 23;
const KEYS: u64 = 6;

/// A subscribe reply without a recovery: the newest publications of keys, as of an offset.
#[derive(Clone, Debug)]
pub struct SeenKeys {
    pub channel: String,
    offset: u64,
    offsets: Vec<u64>,
}

/// The data of a publication with a key, and its tags.
pub fn keyed_data(number: u64) -> (Vec<u8>, Tags) {
    data_of_key(number, number % KEYS, number.is_multiple_of(REMOVALS))
}

/// The data of a publication of this key, and its tags.
pub fn data_of_key(number: u64, key: u64, is_removal: bool) -> (Vec<u8>, Tags) {
    let data = format!(r#"{{"n":{number},"k":"{key}"{}}}"#, if is_removal { r#","x":1"# } else { "" });
    let mut tags: Tags = vec![(KEY_TAG.into(), key.to_string().into())];
    tags.extend(is_removal.then(|| (REMOVAL_TAG.into(), "1".into())));
    (data.into_bytes(), tags)
}

/// The digit of a publication's key.
pub fn key_of(data: &[u8]) -> Option<u8> {
    let place = data.windows(5).position(|part| part == br#""k":""#)?;
    data.get(place + 5).copied()
}

/// Whether a publication removes its key.
pub fn is_removal(data: &[u8]) -> bool {
    data.ends_with(br#","x":1}"#)
}

impl SeenKeys {
    pub fn of(channel: &str, reply: &SubscribeBody) -> Self {
        let keyed = |publication: &&PublicationBody| publication.offset > 0 && key_of(&publication.data).is_some();
        let offsets = reply.publications.iter().filter(keyed).map(|publication| publication.offset).collect();
        Self { channel: channel.to_owned(), offset: reply.offset, offsets }
    }

    /// Checks the reply: each publication is the newest of its key, and no key is missing whose newest publication the
    /// log has kept, which are those above `floor`.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, truth: &ChannelTruth, floor: u64) -> Result<(), String> {
        for offset in &self.offsets {
            let data = truth.data.get(offset).ok_or_else(|| format!("{}: {offset} is not committed", self.channel))?;
            let later = truth.data.range(offset + 1..).take_while(|(later, _)| **later <= self.offset);
            let newer = later.filter(|(_, later)| key_of(later) == key_of(data)).map(|(newer, _)| newer).next();
            if let Some(newer) = newer {
                return Err(format!("{}: {offset} is sent as the newest of its key, but {newer} is", self.channel));
            }
            if is_removal(data) {
                return Err(format!("{}: {offset} removes its key, and is sent as its newest", self.channel));
            }
        }
        let mut is_later = std::collections::BTreeSet::new();
        for (offset, data) in truth.data.range(..=self.offset).rev().take_while(|(offset, _)| **offset > floor) {
            let Some(key) = key_of(data).filter(|key| is_later.insert(*key)) else { continue };
            if !is_removal(data) && !self.offsets.contains(offset) {
                let (key, of) = (char::from(key), self.offset);
                return Err(format!(
                    "{}: {offset}, the newest of key {key} at {of}, is not in the reply",
                    self.channel
                ));
            }
        }
        Ok(())
    }
}
