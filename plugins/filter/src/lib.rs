//! What the plugins put into the packet filter: masquerade and spoof rules.
