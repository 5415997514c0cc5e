//! The runtime's end of CNI.
