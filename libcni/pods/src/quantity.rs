//! Quantities as Kubernetes writes them.
