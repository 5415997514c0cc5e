//! See the library.

#![no_main]

#[path = "../../../cni-plugins/src/c_main.rs"]
mod c_main;

use cluster::main as run;
