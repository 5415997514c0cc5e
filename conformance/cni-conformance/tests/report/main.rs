//! Each format, of one made-up run with every verdict and with outputs that try to break out of it.

#![expect(clippy::unwrap_used, reason = "a test may panic, and its helpers with it")]

mod formats;
mod made_up;
