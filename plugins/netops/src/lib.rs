//! What plugins do to a node: one kernel object a module.
