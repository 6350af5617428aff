//! Placeholder bodies until the codec lands.
#![allow(missing_docs, dead_code, unused)]
use crate::{Command, DecodeError, NotJson, Push, Reply};

/// Reads JSON commands.
pub struct Decoder<'a> {
    rest: &'a [u8],
}
impl<'a> Decoder<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
    pub(crate) fn next(&mut self) -> Option<Result<Command<'a>, DecodeError>> {
        None
    }
}
pub(crate) fn encode_reply(id: u32, reply: &Reply, out: &mut Vec<u8>) -> Result<(), NotJson> {
    Ok(())
}
pub(crate) fn encode_push(push: &Push<'_>, out: &mut Vec<u8>) -> Result<(), NotJson> {
    Ok(())
}
