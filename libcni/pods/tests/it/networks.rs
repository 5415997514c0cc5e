//! The networks of a folder, with real files, links and executables.

mod random;
mod reading;
mod reload;
mod test_folders;
