//! Identifies the current boot of the machine.

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

use crate::error::{OpError, Result};

/// A boot of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel's random number for the boot, different for each boot (`kernel.random.boot_id`).
    pub id: String,
    /// When the boot began, by the current clock: setting the clock changes this value.
    pub started: SystemTime,
}

impl Boot {
    /// The boot that is running.
    ///
    /// # Errors
    /// `ENOENT`: no `/proc` is mounted.
    pub fn read() -> Result<Self> {
        let id = processes::boot();
        let id = id.map_err(|error| OpError::io("read", "/proc/sys/kernel/random/boot_id", &error))?.to_owned();
        // The value of /proc/uptime, by one system call instead of five.
        let started = SystemTime::now().checked_sub(uptime()?);
        let started = started.ok_or_else(|| OpError::state("read", CLOCK, "the clock says that it was before 1970"))?;
        Ok(Self { id, started })
    }

    /// Whether a file of this time was written before the boot. A second is left to the clocks' rounding.
    #[must_use]
    pub fn is_after(&self, written: SystemTime) -> bool {
        self.started.duration_since(written).is_ok_and(|before| before > Duration::from_secs(1))
    }
}

const CLOCK: &str = "the time since the machine's start";

/// How long the machine has run, with the time that it slept.
///
/// # Errors
/// As `clock_gettime(2)`.
pub fn uptime() -> Result<Duration> {
    let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).map_err(|errno| OpError::errno("read", CLOCK, errno))?;
    Ok(Duration::from(uptime))
}
