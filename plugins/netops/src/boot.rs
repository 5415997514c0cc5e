//! Which boot of the machine this is.

use std::time::{Duration, SystemTime};

use crate::error::{OpError, Result};

/// A boot of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel's random number for it, which no two boots share (`kernel.random.boot_id`).
    pub id: String,
    /// When it began, by the clock as it is now: setting the clock moves it.
    pub started: SystemTime,
}

impl Boot {
    /// The boot that is running.
    ///
    /// # Errors
    /// `ENOENT`: no `/proc` is mounted.
    pub fn read() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| OpError::io("read", path, &error));
        let id = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        // Two numbers: seconds since the start, with two decimals, and idle seconds.
        let uptime = read("/proc/uptime")?;
        let seconds = uptime.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        let uptime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let started = uptime.and_then(|uptime| SystemTime::now().checked_sub(uptime));
        let started = started.ok_or_else(|| OpError::state("read", "/proc/uptime", "it has no number of seconds"))?;
        Ok(Self { id, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_the_same_twice_and_began_before_this_process() {
        let (one, two) = (Boot::read().unwrap(), Boot::read().unwrap());
        assert_eq!((one.id.len(), one.id), (36, two.id));
        let own = std::fs::metadata("/proc/self").unwrap().modified().unwrap();
        assert!(two.started < own);
    }
}
