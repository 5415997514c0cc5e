//! What every interface plugin shares.
