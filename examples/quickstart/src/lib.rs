//! Two pods on a bridge, in a throwaway namespace.
