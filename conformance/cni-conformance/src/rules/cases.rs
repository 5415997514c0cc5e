//! Short forms of cases, for tables with many.

use crate::bench::Bench;
use crate::finding::Stop;
use crate::rule::{Case, Versions};

/// Tries it.
type Run = fn(&Bench) -> Result<(), Stop>;

/// A case with the newest version.
pub(super) const fn newest(name: &'static str, run: Run) -> Case {
    Case { name, versions: Versions::Newest, run }
}

/// A case with each version.
pub(super) const fn each(name: &'static str, run: Run) -> Case {
    Case { name, versions: Versions::Each, run }
}

/// A case with the newest version from `oldest` on.
pub(super) const fn since(oldest: &'static str, name: &'static str, run: Run) -> Case {
    Case { name, versions: Versions::From(oldest), run }
}

/// A case with the newest version before `newer`.
pub(super) const fn before(newer: &'static str, name: &'static str, run: Run) -> Case {
    Case { name, versions: Versions::Before(newer), run }
}
