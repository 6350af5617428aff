//! Boolean options that are keys of the configuration by themselves.

/// A boolean option. Its field, its key and its description are declared together. The configuration only names the key, to
/// say where on the reference page it stands.
#[derive(Debug)]
pub struct Switch<T: 'static> {
    /// The key in the configuration, which is the name of the field. It is off by default.
    pub key: &'static str,
    /// Who has the key.
    pub origin: KeyOrigin,
    /// The description on the reference page.
    pub doc: &'static str,
    /// Sets the field.
    pub set: fn(&mut T, bool),
}

/// Who has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// Centrifugo and Dunlin, with the same meaning.
    Centrifugo,
    /// Only Dunlin.
    Dunlin,
}

/// Declares a struct of options. Each field of `switches` is declared with its key and its description. The `others` are not booleans, are the result of several keys, or have no key.
macro_rules! switches {
    (
        $(#[$meta:meta])*
        pub struct $options:ident {
            switches { $($switch:ident: $origin:ident = $doc:literal;)* }
            others { $($(#[$other_doc:meta])* pub $field:ident: $type:ty,)* }
        }
    ) => {
        $(#[$meta])*
        pub struct $options {
            $(
                #[doc = $doc]
                pub $switch: bool,
            )*
            $($(#[$other_doc])* pub $field: $type,)*
        }

        impl $options {
            /// The boolean options that are keys by themselves.
            pub const SWITCHES: &[$crate::options::Switch<Self>] = &[$(
                $crate::options::Switch {
                    key: stringify!($switch),
                    origin: $crate::options::KeyOrigin::$origin,
                    doc: $doc,
                    set: |options, is_on| options.$switch = is_on,
                },
            )*];
        }
    };
}

pub(super) use switches;
