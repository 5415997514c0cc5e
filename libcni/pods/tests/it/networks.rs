//! The networks of a folder, with real files, links, mounts and executables.

mod burden;
mod limits;
mod mounts;
mod node;
mod random;
mod reading;
mod reload;
mod sharing;
mod through_links;
