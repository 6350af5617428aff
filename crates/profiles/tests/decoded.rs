//! What is in a profile, as far as tests look at it.

/// A decoded profile.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The values of each sample, in the order of the types.
    pub values: Vec<Vec<i64>>,
    /// All texts.
    pub texts: Vec<String>,
}

impl Decoded {
    /// Decodes a profile that this crate has written.
    pub fn of(profile: &[u8]) -> Self {
        let mut decoded = Self::default();
        for (field, content) in fields(profile) {
            match (field, content) {
                (2, Content::Bytes(sample)) => decoded.values.push(values(sample)),
                (6, Content::Bytes(text)) => decoded.texts.push(String::from_utf8(text.to_vec()).expect("UTF-8")),
                _ => {}
            }
        }
        decoded
    }

    /// The sum of the values of one type.
    pub fn sum(&self, of_type: usize) -> i64 {
        self.values.iter().map(|values| values[of_type]).sum()
    }

    /// Whether one of the texts contains this.
    pub fn says(&self, part: &str) -> bool {
        self.texts.iter().any(|text| text.contains(part))
    }
}

enum Content<'a> {
    Number,
    Bytes(&'a [u8]),
}

fn values(sample: &[u8]) -> Vec<i64> {
    for (field, content) in fields(sample) {
        if let (2, Content::Bytes(mut packed)) = (field, content) {
            let mut values = Vec::new();
            while !packed.is_empty() {
                values.push(varint(&mut packed).cast_signed());
            }
            return values;
        }
    }
    Vec::new()
}

fn fields(mut message: &[u8]) -> Vec<(u64, Content<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let head = varint(&mut message);
        let content = match head & 7 {
            0 => {
                varint(&mut message);
                Content::Number
            }
            2 => {
                let length = usize::try_from(varint(&mut message)).expect("a length");
                let (bytes, rest) = message.split_at(length);
                message = rest;
                Content::Bytes(bytes)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((head >> 3, content));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
