//! The one executable that is all plugins.
