//! podman with `network_backend = "cni"`, on the suite's executables.
//!
//! Everything is in `tests/it`: each test has a node of its own (`testns`), where podman has its storage, its
//! configuration and the plugins, and starts real containers from an image of busybox.
