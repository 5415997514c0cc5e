//! What rules beyond the letter have in common: operations that are cut off or disturbed, an address pool of a chosen
//! size, and choosing the points of a call.

pub(crate) mod operator;
pub(crate) mod points;
pub(crate) mod pool;
