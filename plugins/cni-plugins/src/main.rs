//! See the library of the same name.

#![no_main]

mod c_main;

use cni_plugins::main as run;
