//! Extensions of iptables: the kernel's matches and targets, which nf_tables rules can use, too (`nft_compat`).

use std::fmt;

use super::wire::{Attrs, Writer, c_text};

/// A match or target of iptables, with its structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// The extension's name, such as `comment`.
    pub name: String,
    /// The revision of its structure.
    pub revision: u32,
    /// The kernel's `struct xt_*`, in the machine's byte order.
    pub info: Vec<u8>,
}

/// What an extension does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionKind {
    /// Matches packets.
    Match = 0,
    /// Acts on packets.
    Target = 1,
}

impl Extension {
    /// An extension with this structure, padded to a multiple of eight bytes as the kernel requires (`XT_ALIGN`).
    #[must_use]
    pub fn new(name: &str, revision: u32, mut info: Vec<u8>) -> Self {
        info.resize(info.len().next_multiple_of(8), 0);
        Self { name: name.to_owned(), revision, info }
    }

    /// The text at the start of the structure, up to the first NUL.
    #[must_use]
    pub fn text(&self) -> String {
        c_text(&self.info)
    }

    // enum nft_match_attributes and nft_target_attributes, which are equal.
    pub(super) fn encode(&self, w: &mut Writer) {
        w.text(1, &self.name);
        w.be32(2, self.revision);
        w.attr(3, &self.info);
    }

    pub(super) fn parse(data: Attrs<'_>) -> Option<Self> {
        Some(Self { name: data.text(1)?, revision: data.be32(2)?, info: data.get(3)?.to_vec() })
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name {} rev {}", self.name, self.revision)
    }
}
