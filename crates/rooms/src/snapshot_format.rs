//! The forms in which snapshots are written.

use dunlin_protocol::Encoding;

use crate::Schema;

/// The form of a player's snapshots: the encoding of its session, and whether its client knows the fields of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SnapshotFormat {
    /// JSON with states in base64.
    Json,
    /// Protobuf with whole states.
    Protobuf,
    /// JSON with named fields.
    TypedJson,
    /// Protobuf with the changed fields of the objects that the client has.
    TypedProtobuf,
}

impl SnapshotFormat {
    /// All forms, in the order of [`SnapshotFormat::index`]. The first are those of the encodings.
    pub const ALL: [Self; 4] = [Self::Json, Self::Protobuf, Self::TypedJson, Self::TypedProtobuf];

    /// The form for a client that knows the fields.
    pub fn typed(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::TypedJson,
            Encoding::Protobuf => Self::TypedProtobuf,
        }
    }

    /// Its index in [`SnapshotFormat::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The form of the same encoding with whole states, if the game declares no fields: both are the same then.
    #[must_use]
    pub fn in_room_with(self, schema: &Schema) -> Self {
        if schema.is_empty() { self.encoding().into() } else { self }
    }

    /// The encoding of the messages.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::TypedJson => Encoding::Json,
            Self::Protobuf | Self::TypedProtobuf => Encoding::Protobuf,
        }
    }

    /// Whether the client knows the fields of states.
    pub fn is_typed(self) -> bool {
        matches!(self, Self::TypedJson | Self::TypedProtobuf)
    }

    /// The form whose whole objects and full cells this one has. Whole states are the same in both forms of Protobuf, so
    /// that players of both share them.
    pub(crate) fn objects(self) -> Self {
        match self {
            Self::TypedProtobuf => Self::Protobuf,
            other => other,
        }
    }
}

impl From<Encoding> for SnapshotFormat {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json,
            Encoding::Protobuf => Self::Protobuf,
        }
    }
}

/// A set of forms. With [`SnapshotFormat::TypedProtobuf`] it also contains [`SnapshotFormat::Protobuf`], on which that
/// form builds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatSet([bool; SnapshotFormat::ALL.len()]);

impl FormatSet {
    /// Adds a form.
    #[must_use]
    pub fn with(mut self, format: impl Into<SnapshotFormat>) -> Self {
        let format = format.into();
        self.0[format.index()] = true;
        self.0[format.objects().index()] = true;
        self
    }

    /// Whether the set contains a form.
    pub fn contains(self, format: impl Into<SnapshotFormat>) -> bool {
        self.0[format.into().index()]
    }

    /// The forms in the set.
    pub fn iter(self) -> impl Iterator<Item = SnapshotFormat> {
        SnapshotFormat::ALL.into_iter().filter(move |format| self.contains(*format))
    }

    /// The forms in the set that have objects of their own.
    pub(crate) fn with_objects(self) -> impl Iterator<Item = SnapshotFormat> {
        self.iter().filter(|format| format.objects() == *format)
    }

    /// Whether the set contains all of `other`.
    pub fn covers(self, other: Self) -> bool {
        SnapshotFormat::ALL.into_iter().all(|format| self.contains(format) || !other.contains(format))
    }

    /// Whether a keyframe in these forms has what one in `other` has. Full cells of both forms of Protobuf are the same.
    pub fn covers_objects_of(self, other: Self) -> bool {
        other.with_objects().all(|format| self.contains(format))
    }
}
