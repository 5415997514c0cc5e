//! The networks of a folder, with real files, links and executables.

mod parallel_queries;
mod random;
mod reading;
mod reload;
mod test_folders;
