//! The throwaway nodes themselves, tried on the kernel they are for.

mod calls;
mod nodes;
