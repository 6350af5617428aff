//! The column families.

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Publications,
    Heads,
    Idempotency,
    Paths,
    Checkpoints,
}

impl Family {
    pub(crate) const ALL: [Self; 5] =
        [Self::Publications, Self::Heads, Self::Idempotency, Self::Paths, Self::Checkpoints];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Publications => "publications",
            Self::Heads => "heads",
            Self::Idempotency => "idempotency",
            Self::Paths => "paths",
            Self::Checkpoints => "checkpoints",
        }
    }

    /// Whether its values contain their expiry.
    pub(crate) const fn expires(self) -> bool {
        matches!(self, Self::Publications | Self::Heads | Self::Idempotency | Self::Paths)
    }
}
