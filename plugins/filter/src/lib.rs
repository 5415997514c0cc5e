//! What the plugins put into the packet filter.
