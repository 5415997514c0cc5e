//! The networks of a folder, with real files, links and executables.

mod burden;
mod node;
mod random;
mod reading;
mod reload;
mod sharing;
