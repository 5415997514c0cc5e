//! Throwaway nodes and containers.
