//! A small Protobuf reader for the messages of the server. It rejects unknown fields.

use std::collections::BTreeMap;

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(self) -> Result<u64, String> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err("bytes instead of a number".to_owned()),
        }
    }

    fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err("a number instead of bytes".to_owned()),
        }
    }
}

/// A message, which consists of numbered fields.
pub trait Message: Default {
    /// Stores the value of a field.
    ///
    /// # Errors
    /// If the message has no such field, or the value is not valid.
    fn read_field(&mut self, number: u64, value: Value<'_>) -> Result<(), String>;
}

/// The type of a field.
pub trait Field {
    /// Stores a value. It replaces an earlier one, or is added to a list or a map.
    ///
    /// # Errors
    /// If the value is not valid.
    fn read(&mut self, value: Value<'_>) -> Result<(), String>;
}

impl Field for u64 {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = value.number()?;
        Ok(())
    }
}

impl Field for i64 {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = value.number()?.cast_signed();
        Ok(())
    }
}

impl Field for u32 {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = Self::try_from(value.number()?).map_err(|_| "a number exceeds 32 bits")?;
        Ok(())
    }
}

impl Field for bool {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = value.number()? != 0;
        Ok(())
    }
}

impl Field for String {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = Self::from_utf8(value.bytes()?.to_vec()).map_err(|_| "text is not UTF-8")?;
        Ok(())
    }
}

impl Field for Vec<u8> {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = value.bytes()?.to_vec();
        Ok(())
    }
}

impl<M: Message> Field for M {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = message(value.bytes()?)?;
        Ok(())
    }
}

impl<M: Message> Field for Option<M> {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        *self = Some(message(value.bytes()?)?);
        Ok(())
    }
}

impl<M: Message> Field for Vec<M> {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        self.push(message(value.bytes()?)?);
        Ok(())
    }
}

/// A map is a list of entries on the wire. Each key has one entry.
impl<V: Field + Default> Field for BTreeMap<String, V> {
    fn read(&mut self, value: Value<'_>) -> Result<(), String> {
        let entry: Entry<V> = message(value.bytes()?)?;
        match self.insert(entry.key.clone(), entry.value) {
            Some(_) => Err(format!("the key {} twice", entry.key)),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
struct Entry<V> {
    key: String,
    value: V,
}

impl<V: Field + Default> Message for Entry<V> {
    fn read_field(&mut self, number: u64, value: Value<'_>) -> Result<(), String> {
        match number {
            1 => self.key.read(value),
            2 => self.value.read(value),
            _ => Err(format!("an entry of a map has no field {number}")),
        }
    }
}

/// Reads the length-prefixed messages of a frame.
pub fn messages<M: Message>(mut payload: &[u8]) -> Result<Vec<M>, String> {
    let mut messages = Vec::new();
    while !payload.is_empty() {
        messages.push(message(delimited(&mut payload)?)?);
    }
    if messages.is_empty() { Err("empty frame".to_owned()) } else { Ok(messages) }
}

fn message<M: Message>(mut bytes: &[u8]) -> Result<M, String> {
    let mut message = M::default();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            2 => Value::Bytes(delimited(&mut bytes)?),
            kind => return Err(format!("wire type {kind}")),
        };
        message.read_field(key >> 3, value)?;
    }
    Ok(message)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a number is incomplete")?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("a number of more than ten bytes".to_owned())
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = varint(bytes)?;
    let length = usize::try_from(length).map_err(|_| "the length of a field overflows")?;
    let (field, rest) = bytes.split_at_checked(length).ok_or("a field is incomplete")?;
    *bytes = rest;
    Ok(field)
}
