//! What rules beyond the letter have in common: operations that are cut off or disturbed, an address pool of a chosen
//! size, choosing the points of a call, and inputs that no honest runtime would send.

pub(crate) mod input;
pub(crate) mod operator;
pub(crate) mod points;
pub(crate) mod pool;
pub(crate) mod raw;
pub(crate) mod scene;
