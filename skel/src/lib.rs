//! The plugin's end of CNI.
