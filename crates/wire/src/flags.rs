//! Bit sets of the protocol: newtypes that keep unknown bits.

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($inner:ty) { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// No bits.
            pub const NONE: Self = Self(0);
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*

            /// Whether all bits of `other` are set.
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the set with the bits of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the set without the bits of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x}"), self.0)?;
                $(if Self::$bit != Self::NONE && self.has(Self::$bit) {
                    f.write_str(concat!(" ", stringify!($bit)))?;
                })*
                f.write_str(")")
            }
        }
    };
}
